"""Sampling."""

from keras import ops

from keras_attn.generation.loop import write
from keras_attn.generation.noise import uniform
from keras_attn.registry import Value, register


@register
class Sample(Value):
    """Draws each token from the model's distribution, sharpened or cut.

        y_t ~ softmax(logits / temperature), restricted to the `top_k` likeliest tokens and to the
        smallest set of likeliest tokens whose probability reaches `top_p`

    The score is the log-probability under the distribution that was drawn from. One uniform
    number a token is drawn before the loop, so that the same seed gives the same text with and
    without caches, in a graph and under XLA.

    Args:
        temperature: float > 0. Below 1 sharpens.
        top_k: int. Number of tokens to choose from; None for all.
        top_p: float in (0, 1]. Probability to choose from; None for all.
        seed: int. None draws other text at every call.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from keras_attn.generation import Sample
        >>> Sample(temperature=0.8, top_k=40, seed=1)
        Sample(temperature=0.8, top_k=40, top_p=None, seed=1)

    Differs from the paper: none.

    Reference: top-k: [Fan et al., 2018](https://arxiv.org/abs/1805.04833), section 5.4; top-p:
        [Holtzman et al., 2019](https://arxiv.org/abs/1904.09751), section 3.1, eq. 2.
    """

    def __init__(self, temperature=1.0, top_k=None, top_p=None, seed=None):
        if not temperature > 0:
            raise ValueError(f"`temperature` must be above 0. Received: temperature={temperature}.")
        if top_k is not None and top_k < 1:
            raise ValueError(f"`top_k` must be at least 1. Received: top_k={top_k}.")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"`top_p` must be in (0, 1]. Received: top_p={top_p}.")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.seed = seed

    def decode(self, model, inputs, task):
        noise = uniform((task.max_length, ops.shape(inputs)[0]), self.seed)

        def choose(logits, step):
            return self._choose(logits, ops.take(noise, step, axis=0))

        return write(model, inputs, choose, task)

    def _choose(self, logits, uniform):
        logits = ops.cast(logits, "float32") / self.temperature
        tokens = None
        if self.top_k is not None or self.top_p is not None:
            vocabulary_size = logits.shape[-1]
            logits, tokens = ops.top_k(logits, min(self.top_k or vocabulary_size, vocabulary_size))
        probabilities = ops.softmax(logits, axis=-1)
        cumulative = ops.cumsum(probabilities, axis=-1)
        if self.top_p is not None:
            kept = cumulative - probabilities < self.top_p
            probabilities = ops.where(kept, probabilities, 0.0)
            cumulative = ops.cumsum(probabilities, axis=-1)
        total = cumulative[:, -1:]
        below = ops.cast(cumulative <= uniform[:, None] * total, "int32")
        # A uniform number that rounds up to the total would fall behind the last kept token.
        last = ops.sum(ops.cast(cumulative < total, "int32"), axis=-1)
        chosen = ops.minimum(ops.sum(below, axis=-1), last)[:, None]
        probability = ops.take_along_axis(probabilities, chosen, axis=-1) / total
        token = chosen if tokens is None else ops.take_along_axis(tokens, chosen, axis=-1)
        return ops.cast(token[:, 0], "int32"), ops.log(probability[:, 0])

    def get_config(self):
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
        }
