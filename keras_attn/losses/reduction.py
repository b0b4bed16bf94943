"""Reduction of losses over the elements of the whole batch, of all replicas together."""

from keras import ops

from keras_attn.backend.replicas import replica_sum


def reduce_losses(losses, elements, sample_weight, reduction):
    """Reduce losses by Keras's rules, with means over the elements of all replicas.

    Keras adds the gradients of replicas up, so a mean must divide by the elements of all of them;
    a loss of Keras divides by those of its own replica. A mean of no element is 0.

    Args:
        losses: float tensor, zero where an element does not count.
        elements: tensor like `losses`. The number of elements that each loss stands for.
        sample_weight: tensor like `losses`, or None.
        reduction: "sum_over_batch_size" or "mean", which divide by the sum of `elements`;
            "mean_with_sample_weight", which divides by their weighted sum; "sum"; "none" or None.

    Returns:
        Scalar, this replica's summand of the loss; without a reduction the weighted losses.
    """
    if sample_weight is not None:
        losses = losses * sample_weight
    if reduction in (None, "none"):
        return losses
    total = ops.sum(losses)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        return ops.divide_no_nan(total, replica_sum(ops.sum(elements * sample_weight)))
    return total / ops.maximum(replica_sum(ops.sum(elements)), 1.0)
