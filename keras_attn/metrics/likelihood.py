"""Negative log-likelihood: as perplexity, in bits per character of text, or per value of images."""

import math
from collections.abc import Iterable

import keras
from keras import ops

from keras_attn.metrics.accuracy import TokenMetric
from keras_attn.ops.checks import check_numbers
from keras_attn.ops.ids import narrow
from keras_attn.ops.token_losses import element_weights, known_labels, token_losses, token_weights
from keras_attn.registry import register


@register
class Perplexity(TokenMetric):
    """exp of the mean negative log-likelihood of the real tokens, without label smoothing.

        exp(-sum_i log softmax(z_i)(y_i) / #{i: y_i != ignore_class})

    The result is that of all tokens of all batches and replicas at once; it is 1 before the first
    token. Beside `LabelSmoothedCrossentropy` in a training step it costs nothing measurable,
    because it repeats that loss's own softmax.

    Args:
        ignore_class: int. Tokens with this label do not count; None counts all.
        name, dtype: as in `keras.metrics.Mean`; `dtype` is that of the sums.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits; or (B, T), the losses of tokens as
            `keras_attn.layers.AdaptiveSoftmax` gives them.
        sample_weight: optional, (B,) or (B, T): tokens count this many times.

    Example:
        >>> import numpy as np
        >>> from keras_attn.metrics import Perplexity
        >>> metric = Perplexity()
        >>> metric.update_state(np.array([[3, 1, 0]]), np.zeros((1, 3, 7)))
        >>> round(float(metric.result()), 3)
        7.0

    Reference: [Jelinek et al., 1977](https://doi.org/10.1121/1.2016299).
    """

    def __init__(self, ignore_class=0, name="perplexity", dtype=None):
        super().__init__(ignore_class, name, dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, predictions = ops.convert_to_tensor(narrow(y_true)), ops.convert_to_tensor(y_pred)
        losses = token_losses(labels, predictions, self.ignore_class)
        self.add(losses, token_weights(labels, self.ignore_class, sample_weight))

    def result(self):
        return ops.exp(super().result())


@register
class BitsPerCharacter(TokenMetric):
    """Negative log-likelihood of the real tokens in bits, divided by the characters they stand for.

        -sum_i log_2 softmax(z_i)(y_i) / sum_i c(y_i),   i: y_i != ignore_class

    With tokens that are characters (or bytes) this is the mean loss over log 2. Subwords are
    compared with characters by giving the number of characters of each: the bits of a mark that
    stands for none then count, and its length of 0 does not. The result is that of all tokens of
    all batches and replicas at once; it is 0 before the first.

    Args:
        token_lengths: optional sequence of V numbers: how many characters each id stands for. By
            default every token is one character.
        ignore_class: int. Tokens with this label do not count; None counts all.
        name, dtype: as in `keras.metrics.Mean`; `dtype` is that of the sums.

    Call arguments:
        y_true, y_pred, sample_weight: as those of `Perplexity`.

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

    Reference: [Al-Rfou et al., 2018](https://arxiv.org/abs/1808.04444), "Experimental Setup".
    """

    def __init__(self, token_lengths=None, ignore_class=0, name="bits_per_character", dtype=None):
        super().__init__(ignore_class, name, dtype)
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

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, predictions = ops.convert_to_tensor(narrow(y_true)), ops.convert_to_tensor(y_pred)
        losses = token_losses(labels, predictions, self.ignore_class)
        weights = characters = token_weights(labels, self.ignore_class, sample_weight)
        if self.token_lengths is not None:
            is_logits = len(predictions.shape) > len(labels.shape)
            vocabulary_size = predictions.shape[-1] if is_logits else None
            if vocabulary_size not in (None, len(self.token_lengths)):
                raise ValueError(
                    "`token_lengths` must have a number for each id. Received: "
                    f"{len(self.token_lengths)} numbers, logits of {vocabulary_size} ids."
                )
            ids = ops.cast(known_labels(labels, self.ignore_class), "int32")
            lengths = ops.convert_to_tensor(self.token_lengths, "float32")
            characters = weights * ops.take(lengths, ids)
        self.add(losses / math.log(2.0), weights, characters)


@register
class BitsPerDim(TokenMetric):
    """Negative log-likelihood in bits, divided by the number of values.

        -sum_i log_2 p(v_i) / #{i},   i over pixels and channels (or v_i != ignore_class)

    Of logits every label that is not padding is a value. Of a likelihood such as
    `MixtureOfLogistics` all of `y_true` are values, zeros too. The result is that of all values of
    all batches and replicas at once; it is 0 before the first.

    Args:
        likelihood: optional loss whose `call(y_true, y_pred)` gives -log p of whole pixels, as
            `MixtureOfLogistics` does; by default the softmax of logits.
        ignore_class: int. Labels of logits with this id do not count.
        name, dtype: as in `keras.metrics.Mean`; `dtype` is that of the sums.

    Call arguments:
        y_true, y_pred: as those of `Perplexity`; with `likelihood`, what that takes.
        sample_weight: optional, (B,) or (B, T): values, or pixels, count this many times.

    Example:
        >>> import numpy as np
        >>> from keras_attn.metrics import BitsPerDim
        >>> metric = BitsPerDim()
        >>> metric.update_state(np.array([[3, 256, 1]]), np.zeros((1, 3, 256 + 1)))
        >>> round(float(metric.result()), 3)
        8.006

    Reference: [van den Oord et al., 2016](https://arxiv.org/abs/1601.06759), section 5.1;
    [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 5.1.
    """

    def __init__(self, likelihood=None, ignore_class=0, name="bits_per_dim", dtype=None):
        super().__init__(ignore_class, name, dtype)
        if isinstance(likelihood, dict):
            likelihood = keras.saving.deserialize_keras_object(likelihood)
        if not (likelihood is None or isinstance(likelihood, keras.losses.Loss)):
            raise ValueError(
                "`likelihood` must be a loss, such as `MixtureOfLogistics`, or None for logits. "
                f"Received: likelihood={likelihood!r}"
            )
        self.likelihood = likelihood

    def update_state(self, y_true, y_pred, sample_weight=None):
        values, predictions = ops.convert_to_tensor(narrow(y_true)), ops.convert_to_tensor(y_pred)
        if self.likelihood is None:
            losses = token_losses(values, predictions, self.ignore_class)
            weights = dimensions = token_weights(values, self.ignore_class, sample_weight)
        else:
            losses = self.likelihood.call(values, predictions)
            weights = element_weights(losses, sample_weight)
            pixels = ops.maximum(ops.size(losses), 1)
            dimensions = weights * ops.cast(ops.size(values) / pixels, weights.dtype)
        self.add(losses / math.log(2.0), weights, dimensions)

    def get_config(self):
        likelihood = keras.saving.serialize_keras_object(self.likelihood)
        return {**super().get_config(), "likelihood": likelihood}
