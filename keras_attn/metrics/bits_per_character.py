"""How many bits a character of text takes."""

import math
from collections.abc import Iterable

import keras
from keras import ops

from keras_attn.ops.checks import check_numbers
from keras_attn.ops.token_weights import known_labels, token_losses, token_weights
from keras_attn.registry import register


@register
class BitsPerCharacter(keras.metrics.Mean):
    """Negative log-likelihood of the real tokens in bits, divided by the characters they stand for.

        -sum_i log_2 softmax(z_i)(y_i) / sum_i c(y_i),   i: y_i != ignore_id

    With tokens that are characters (or bytes) this is the mean loss over log 2. Subwords are
    compared with characters by giving the number of characters of each: the bits of a mark that
    stands for none then count, and its length of 0 does not. Sums are kept apart over batches and
    replicas, so that the result is that of all tokens seen at once; it is 0 before the first.

    Args:
        token_lengths: optional sequence of V numbers: how many characters each id stands for. By
            default every token is one character.
        ignore_id: int. Tokens with this label do not count.
        name: optional name.
        dtype: of the sums; optional.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits; or (B, T), the losses of tokens as
            `keras_attn.layers.AdaptiveSoftmax` gives them.
        sample_weight: optional, (B,) or (B, T): tokens count this many times.

    Raises:
        ValueError: if `token_lengths` are not a number of at least 0 for each id, or labels and
            logits do not fit.

    Example:

    >>> import numpy as np
    >>> from keras_attn.metrics import BitsPerCharacter
    >>> labels, logits = np.array([[3, 1, 0]]), np.zeros((1, 3, 8))
    >>> metric = BitsPerCharacter()
    >>> metric.update_state(labels, logits)
    >>> round(float(metric.result()), 3)  # 3 bits tell 8 characters apart
    3.0
    >>> metric = BitsPerCharacter(token_lengths=[0, 1, 2, 5, 3, 3, 4, 2])
    >>> metric.update_state(labels, logits)
    >>> round(float(metric.result()), 3)  # 6 bits for 5 + 1 characters
    1.0

    Reference: Al-Rfou et al., 2018 (https://arxiv.org/abs/1808.04444), "Experimental Setup".
    """

    def __init__(self, token_lengths=None, ignore_id=0, name="bits_per_character", dtype=None):
        super().__init__(name=name, dtype=dtype)
        if token_lengths is not None:
            if not isinstance(token_lengths, Iterable):
                raise ValueError(
                    "`token_lengths` must have a number for each id. "
                    f"Received: token_lengths={token_lengths!r}."
                )
            token_lengths = list(token_lengths)
            check_numbers(0, **{f"token_lengths[{i}]": x for i, x in enumerate(token_lengths)})
            token_lengths = [float(x) for x in token_lengths]
        self.token_lengths = token_lengths
        self.ignore_id = ignore_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, predictions = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = token_losses(labels, predictions, self.ignore_id)
        weights = token_weights(labels, self.ignore_id, sample_weight)
        characters = weights
        if self.token_lengths is not None:
            if len(predictions.shape) > len(labels.shape):
                self._check_vocabulary(predictions.shape[-1])
            lengths = ops.convert_to_tensor(self.token_lengths, "float32")
            ids = ops.cast(known_labels(labels, self.ignore_id), "int32")
            characters = weights * ops.take(lengths, ids)
        self.total.assign_add(ops.cast(ops.sum(losses * weights) / math.log(2.0), self.dtype))
        self.count.assign_add(ops.cast(ops.sum(characters), self.dtype))

    def _check_vocabulary(self, size):
        if size not in (None, len(self.token_lengths)):
            raise ValueError(
                "`token_lengths` must have a number for each id. "
                f"Received: {len(self.token_lengths)} numbers, logits of {size} ids."
            )

    def get_config(self):
        return {
            **super().get_config(),
            "token_lengths": self.token_lengths,
            "ignore_id": self.ignore_id,
        }
