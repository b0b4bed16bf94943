"""Greedy decoding."""

from keras import ops

from keras_attn.generation.loop import write
from keras_attn.registry import Value, register


@register
class Greedy(Value):
    """Takes the likeliest token at each step.

        y_t = argmax p(. | y_<t),   score = sum_t log p(y_t | y_<t)

    Example:
        >>> from keras_attn.generation import Greedy
        >>> Greedy()
        Greedy()

    Differs from the paper: none; the paper decodes with a beam.

    Reference: [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.2, beam of 1.
    """

    def decode(self, model, inputs, task):
        return write(model, inputs, self._choose, task)

    def _choose(self, logits, step):
        # The largest of V probabilities is at least 1 / V: its logarithm is exact.
        log_prob = ops.log(ops.max(ops.softmax(logits, axis=-1), axis=-1))
        return ops.cast(ops.argmax(logits, axis=-1), "int32"), log_prob
