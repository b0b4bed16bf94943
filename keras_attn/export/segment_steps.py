"""Segments in, logits out, with a memory that the client holds."""

import tensorflow as tf

from keras_attn.export.lengths import real


class SegmentSteps(tf.Module):
    """A model with a memory, as functions from tensors to tensors.

        logits_t, memory_{t+1} = model(segment_t, memory_t)

    Nothing is kept between calls: whoever asks sends the memory and gets the next one, so that one
    server serves any number of texts. Memory and logits are float32 whatever the model computes in.
    A model of states, as `SequenceModel`, has `states` in the place of `token_ids`, and its heads'
    outputs in that of logits.

    Args:
        model: a model with a memory: a `CausalLanguageModel` or a `SequenceModel`.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding
        >>> attention = MultiHeadAttention(2, 4, score="relative", pattern="causal", use_bias=False)
        >>> block = keras_attn.layers.TransformerBlock(attention, FeedForward(16))
        >>> steps = keras_attn.export.SegmentSteps(keras_attn.models.CausalLanguageModel(
        ...     TokenEmbedding(50, 8), keras_attn.depth.Stack([block]),
        ...     memory=keras_attn.memory.SegmentMemory(32)))
        >>> outputs = steps.step([[5, 7, 9]], [3], **steps.initial_memory(1))
        >>> outputs["logits"].shape, outputs["memory_length"].numpy().tolist()
        (TensorShape([1, 3, 50]), [3])

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(self, model):
        super().__init__()
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]

        def initial_memory(batch_size):
            """The memory before the first segment of so many rows."""
            state = model.initial_memory(batch_size)
            return {**state, "memory": tf.cast(state["memory"], tf.float32)}

        def step(segment, lengths, memory, memory_length):
            """The outputs for a segment, and the memory after it.

            Of `segment`, `token_ids` [B, T] or `states` [B, T, ...], the first `lengths` [B] steps
            are real. What lies beyond is neither read nor remembered, whatever a server padded it
            with, and its outputs mean nothing.
            """
            outputs = model(
                {
                    **padded(segment, real(segment, lengths)),
                    "memory": tf.cast(memory, dtype),
                    "memory_length": memory_length,
                },
                training=False,
            )
            # A head of the user's own may compute in another dtype.
            return {
                name: tf.cast(x, tf.float32) if x.dtype.is_floating else x
                for name, x in outputs.items()
            }

        name, padded = _segment_of(model)
        _, num_layers, _, hidden_dim = model.input["memory"].shape
        dtype = model.input["memory"].dtype
        segment = model.input[name]
        inputs = [
            tf.TensorSpec(segment.shape, segment.dtype, name),
            tf.TensorSpec([None], tf.int32, "lengths"),
            tf.TensorSpec([None, num_layers, None, hidden_dim], tf.float32, "memory"),
            tf.TensorSpec([None], tf.int32, "memory_length"),
        ]
        rows = [tf.TensorSpec([], tf.int32, "batch_size")]
        self.initial_memory = tf.function(initial_memory, rows, autograph=False)
        self.step = tf.function(step, inputs, autograph=False)


def _segment_of(model):
    """The name of what a model reads, and a function that makes its inputs of that and a mask."""
    if "token_ids" in model.input:
        return "token_ids", lambda ids, mask: {"token_ids": tf.where(mask, ids, 0)}
    return "states", lambda states, mask: {"states": states, "padding_mask": mask}
