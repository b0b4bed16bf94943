"""Strategies that choose one token per row and step: greedy decoding and sampling."""

from keras import ops

from keras_attn.backend.operations import uniform
from keras_attn.generation.loop import Strategy, decode_tokens
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics
from keras_attn.ops.checks import check_numbers, check_sizes, check_that
from keras_attn.ops.images import join_values
from keras_attn.registry import register


@register
class Greedy(Strategy):
    """Greedy decoding: take the most likely token at each step.

        y_t = argmax p(. | y_<t),   score = sum_t log p(y_t | y_<t)

    Example:
        >>> from keras_attn.generation import Greedy
        >>> Greedy()
        Greedy()

    Differs from the paper: none; the paper decodes with a beam.

    Reference: [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.2, beam of 1.
    """

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `inputs` (B, S), as `generate` does."""
        return decode_tokens(model, inputs, self.choose, options)

    def choose(self, logits, step):
        """Return tokens (B,) and their log-probabilities (B,) from logits (B, V)."""
        # The largest of V probabilities is at least 1 / V: its logarithm is exact.
        log_prob = ops.log(ops.max(ops.softmax(logits, axis=-1), axis=-1))
        return ops.cast(ops.argmax(logits, axis=-1), "int32"), log_prob


@register
class Sample(Strategy):
    """Sampling: draw each token from the model's distribution, sharpened or truncated.

        y_t ~ softmax(logits / temperature), restricted to the `top_k` most likely tokens and to
        the smallest set of most likely tokens whose probability reaches `top_p`

    The score is the log-probability under that distribution. One uniform number per token is drawn
    before the loop, so that the same seed gives the same text with and without caches, in a graph
    and under XLA.

    Args:
        temperature: float > 0. A value below 1 sharpens.
        top_k: int. Number of tokens to choose from; None for all.
        top_p: float in (0, 1]. Probability to choose from; None for all.
        seed: int. None gives different text at every call.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from keras_attn.generation import Sample
        >>> Sample(temperature=0.8, top_k=40, seed=1)
        Sample(temperature=0.8, top_k=40, seed=1)

    Differs from the paper: none.

    Reference: top-k: [Fan et al., 2018](https://arxiv.org/abs/1805.04833), section 5.4; top-p:
        [Holtzman et al., 2019](https://arxiv.org/abs/1904.09751), section 3.1, eq. 2.
    """

    def __init__(self, temperature=1.0, top_k=None, top_p=None, seed=None):
        check_numbers(temperature=temperature)
        check_that(temperature > 0, "above 0", temperature=temperature)
        if top_k is not None:
            check_sizes(top_k=top_k)
        if top_p is not None:
            check_numbers(top_p=top_p)
            check_that(0 < top_p <= 1, "in (0, 1]", top_p=top_p)
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.seed = seed

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `inputs` (B, S), as `generate` does."""
        noise = uniform((options.max_length, ops.shape(inputs)[0]), self.seed)

        def choose(logits, step):
            return self._choose(logits, ops.take(noise, step, axis=0))

        return decode_tokens(model, inputs, choose, options)

    def _choose(self, logits, numbers):
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
        below = ops.cast(cumulative <= numbers[:, None] * total, "int32")
        # A uniform number that rounds up to the total would select a token after the last kept one.
        last = ops.sum(ops.cast(cumulative < total, "int32"), axis=-1)
        chosen = ops.minimum(ops.sum(below, axis=-1), last)[:, None]
        probability = ops.take_along_axis(probabilities, chosen, axis=-1) / total
        token = chosen if tokens is None else ops.take_along_axis(tokens, chosen, axis=-1)
        return ops.cast(token[:, 0], "int32"), ops.log(probability[:, 0])


@register
class SamplePixels(Strategy):
    """Sampling of whole pixels, all channels together, from a mixture of discretised logistics.

        v_t ~ p(. | v_<t),   token = 1 + the number whose digits are v_t

    For a model whose outputs are the parameters of a `keras_attn.losses.MixtureOfLogistics` and
    whose tokens are whole pixels, as an `image_transformer` with `num_mixtures`. The score is the
    log-probability. As in `Sample`, the same seed gives the same image with and without caches.

    Args:
        num_mixtures, channels, num_values: ints, as the `MixtureOfLogistics`.
        seed: int. None gives different images at every call.

    Raises:
        ValueError: if a size is too small, or the model's outputs are not its parameters.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.image_transformer(258, (2, 3, 3), num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, num_mixtures=5)
        >>> tokens = keras_attn.models.ImageTokens.of(model)
        >>> ids, scores = keras_attn.generation.generate(model, tokens.start(4),
        ...     keras_attn.generation.SamplePixels(num_mixtures=5), tokens.length, eos_id=-1)
        >>> tokens.decode(ids).shape
        TensorShape([4, 2, 3, 3])

    Differs from the paper: none.

    Reference: [Salimans et al., 2017](https://arxiv.org/abs/1701.05517), sections 2.1 and 2.2.
    """

    def __init__(self, num_mixtures=10, channels=3, num_values=256, seed=None):
        self.likelihood = MixtureOfLogistics(num_mixtures, channels, num_values)
        self.seed = seed

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `inputs` (B, S), as `generate` does."""
        likelihood = self.likelihood
        count = likelihood.num_mixtures + likelihood.channels
        noise = uniform((options.max_length, ops.shape(inputs)[0], count), self.seed)

        def choose(parameters, step):
            values = likelihood.sample_by(parameters, ops.take(noise, step, axis=0))
            token = 1 + join_values(values, likelihood.num_values)
            return token, likelihood.log_probability(values, parameters)

        return decode_tokens(model, inputs, choose, options)

    def get_config(self):
        names = ("num_mixtures", "channels", "num_values")
        return {**{name: getattr(self.likelihood, name) for name in names}, "seed": self.seed}
