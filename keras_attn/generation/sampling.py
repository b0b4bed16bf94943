"""Strategies that choose one token per row and step: greedy decoding and sampling."""

from keras import ops

from keras_attn.backend.loop_invariants import loop_invariant
from keras_attn.backend.operations import uniform
from keras_attn.generation.distributions import (
    bounded,
    draw,
    keep_likely,
    keep_nucleus,
    keep_typical,
    log_sum_exp,
)
from keras_attn.generation.loop import TokenStrategy
from keras_attn.generation.processors import RepetitionPenalty
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics
from keras_attn.ops.checks import (
    check_numbers,
    check_positive,
    check_seeds,
    check_sizes,
    check_that,
)
from keras_attn.ops.images import join_values
from keras_attn.ops.sorting import top_k
from keras_attn.registry import register

# Of float32: below the first the best token is certain, above the second all are alike.
_TEMPERATURES = 1e-37, 1e37


@register
class Greedy(TokenStrategy):
    """Greedy decoding: take the most likely token at each step.

        y_t = argmax p(. | y_<t),   score = sum_t log p(y_t | y_<t)

    Time O(V) a token beside the model's step.

    Use it for translations, labels and other outputs of which one is right.

    Example:
        >>> from keras_attn.generation import Greedy
        >>> Greedy()
        Greedy()

    Differs from the paper: none; the paper decodes with a beam.

    Reference: [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.2, beam of 1.
    """

    dynamic = ()

    def select(self, logits, noise, renormalize):
        best, token = top_k(logits, 1)
        log_prob = -log_sum_exp(logits, best) if renormalize else best
        return token[:, 0], log_prob[:, 0]

    def distribution(self, logits, renormalize=True):
        """Return probabilities (B, V), 1 at the choice, and log-probabilities for the score."""
        choice, vocabulary_size = top_k(logits, 1)[1][..., 0], logits.shape[-1]
        log_probs = ops.log_softmax(logits, axis=-1) if renormalize else logits
        return ops.one_hot(choice, vocabulary_size), log_probs


@register
class Sample(TokenStrategy):
    """Sampling: draw each token from the model's distribution, sharpened or truncated.

        y_t ~ softmax(logits / temperature), restricted to tokens that pass each truncation

    The logits of tokens seen before are penalised first: l / r if l > 0, else l r. After the
    temperature come `top_k`, `top_p`, `min_p` and `typical_p`, in this order. The score is the
    log-probability under the final distribution. One uniform number per token is drawn before the
    loop, so that the same seed gives the same text with and without caches, in a graph and under
    XLA. Time O(V) a token beside the model's step, O(V log V) with `top_p` or `typical_p`.

    Use it for text that should vary from call to call.

    Args:
        temperature: float > 0. A value below 1 sharpens; near 0 the likeliest token is drawn.
        top_k: int. Number of tokens to choose from; None for all.
        top_p: float in (0, 1]. Choose from the smallest set of most likely tokens with this
            probability; None for all.
        seed: int. None gives different text at every call.
        min_p: float in [0, 1]. Choose from tokens at least `min_p` times as likely as the most
            likely one; None for all.
        typical_p: float in (0, 1]. Choose from the tokens whose -log p is closest to the entropy:
            the smallest set of them with this probability; None for all.
        repetition_penalty: float > 0. The factor r for tokens in the prompt or generated before:
            above 1 makes them less likely. A token counts once, padding does not; 1 for no penalty.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from keras_attn.generation import Sample
        >>> Sample(temperature=0.8, top_k=40, seed=1)
        Sample(temperature=0.8, top_k=40, seed=1)

    Differs from the paper: the sources of a translation are not penalised.

    Reference: top-k: [Fan et al., 2018](https://arxiv.org/abs/1805.04833), section 5.4; top-p:
        [Holtzman et al., 2019](https://arxiv.org/abs/1904.09751), section 3.1, eq. 2; min-p:
        [Nguyen et al., 2024](https://arxiv.org/abs/2407.01082), section 3; typical:
        [Meister et al., 2022](https://arxiv.org/abs/2202.00666), section 4; penalty:
        [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1.
    """

    dynamic = "temperature", "top_p", "min_p", "typical_p", "penalty"

    def __init__(
        self,
        temperature=1.0,
        top_k=None,
        top_p=None,
        seed=None,
        min_p=None,
        typical_p=None,
        repetition_penalty=1.0,
    ):
        check_seeds(seed=seed)
        check_positive(temperature=temperature, repetition_penalty=repetition_penalty)
        if top_k is not None:
            check_sizes(top_k=top_k)
        for name, probability in {"top_p": top_p, "typical_p": typical_p}.items():
            if probability is not None:
                check_numbers(**{name: probability})
                check_that(0 < probability <= 1, "in (0, 1]", **{name: probability})
        if min_p is not None:
            check_numbers(min_p=min_p)
            check_that(0 <= min_p <= 1, "in [0, 1]", min_p=min_p)
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed
        self.min_p, self.typical_p, self.repetition_penalty = min_p, typical_p, repetition_penalty

    @property
    def repetition_penalty(self):
        """The factor r, a float; 1 for no penalty."""
        return 1.0 if self.penalty is None else self.penalty

    @repetition_penalty.setter
    def repetition_penalty(self, value):
        self.penalty = None if value == 1 else value  # without a penalty there is nothing to do

    def noise(self, length, batch_size):
        return uniform((length, batch_size), self.seed)

    def select(self, logits, noise, renormalize):
        probabilities, tokens = self._truncate(logits)
        chosen, probability = draw(probabilities, noise)
        if tokens is not None:
            chosen = ops.take_along_axis(tokens, ops.expand_dims(chosen, 1), axis=-1)[:, 0]
        return ops.cast(chosen, "int32"), ops.log(probability)

    def distribution(self, logits, renormalize=True):
        """Return the probabilities (B, V) that tokens are drawn with, and their logarithms."""
        probabilities, tokens = self._truncate(logits)
        probabilities = probabilities / ops.sum(probabilities, axis=-1, keepdims=True)
        if tokens is not None:
            batch_size, vocabulary_size = ops.shape(logits)[0], logits.shape[-1]
            rows = ops.expand_dims(ops.arange(batch_size, dtype="int32"), 1) * vocabulary_size
            indices = ops.reshape(rows + ops.cast(tokens, "int32"), (-1, 1))
            probabilities = ops.scatter(
                indices, ops.reshape(probabilities, (-1,)), (batch_size * vocabulary_size,)
            )
            probabilities = ops.reshape(probabilities, (batch_size, vocabulary_size))
        return probabilities, ops.log(probabilities)

    def with_processors(self, options):
        """Return the `DecodingOptions` with the repetition penalty, if there is one."""
        options = options._replace(renormalize=True)  # tokens are drawn from probabilities
        if self.penalty is None:
            return options
        return options.with_processor(RepetitionPenalty(self.penalty))

    def _truncate(self, logits):
        """Return probabilities (B, K) that need not sum to 1, and their tokens: None for all V."""
        logits = ops.cast(logits, "float32")
        # Differences from the largest logit: one by itself, divided, may be beyond float32.
        logits = logits - ops.max(logits, axis=-1, keepdims=True)
        logits = logits / loop_invariant(
            self, "temperature", lambda: bounded(self.temperature, *_TEMPERATURES)
        )
        tokens = None
        if self.top_k is not None or self.top_p is not None:
            vocabulary_size = logits.shape[-1]
            logits, tokens = top_k(logits, min(self.top_k or vocabulary_size, vocabulary_size))
        probabilities = ops.softmax(logits, axis=-1)
        if self.top_p is not None:
            probabilities = keep_nucleus(probabilities, self.top_p)
        if self.min_p is not None:
            probabilities = keep_likely(probabilities, self.min_p)
        if self.typical_p is not None:
            probabilities = keep_typical(probabilities, self.typical_p)
        return probabilities, tokens


@register
class SamplePixels(TokenStrategy):
    """Sampling of whole pixels, all channels together, from a mixture of discretised logistics.

        v_t ~ p(. | v_<t),   token = 1 + the number whose digits are v_t

    For a model whose outputs are the parameters of a `keras_attn.losses.MixtureOfLogistics` and
    whose tokens are whole pixels, as an `image_transformer` with `num_mixtures`. The score is the
    log-probability. As in `Sample`, the same seed gives the same image with and without caches.
    Time O(C K) a pixel of C channels, for K logistics.

    Use it for image models that predict all channels of a pixel at once.

    Args:
        num_mixtures, channels, num_values: ints, as the `MixtureOfLogistics`.
        seed: int. None gives different images at every call.

    Raises:
        ValueError: if a size is too small, the model's outputs are not its parameters, or another
            strategy wraps it, which would change parameters as if they were logits.

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

    dynamic = ()

    def __init__(self, num_mixtures=10, channels=3, num_values=256, seed=None):
        check_seeds(seed=seed)
        self.likelihood = MixtureOfLogistics(num_mixtures, channels, num_values)
        self.seed = seed

    def with_processors(self, options):
        """Return the `DecodingOptions`; refuse those with a processor."""
        if options.processors.processors:
            raise ValueError(
                "`SamplePixels` draws pixels, not tokens, so no other strategy can wrap it. "
                f"Received: {options.processors.processors}."
            )
        return options

    def noise(self, length, batch_size):
        count = self.likelihood.num_mixtures + self.likelihood.channels
        return uniform((length, batch_size, count), self.seed)

    def select(self, logits, noise, renormalize):
        """Return tokens and log-probabilities (B,); the `logits` are the mixture's parameters."""
        values = self.likelihood.sample_by(logits, noise)
        token = 1 + join_values(values, self.likelihood.num_values)
        return token, self.likelihood.log_probability(values, logits)

    def get_config(self):
        names = ("num_mixtures", "channels", "num_values")
        return {**{name: getattr(self.likelihood, name) for name in names}, "seed": self.seed}
