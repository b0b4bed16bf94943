"""Sampling of pixels from mixtures of logistics."""

from keras import ops

from keras_attn.generation.loop import write
from keras_attn.generation.noise import uniform
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics
from keras_attn.ops.images import join_values
from keras_attn.registry import Value, register


@register
class SamplePixels(Value):
    """Draws each pixel from a mixture of discretised logistics, all its channels together.

        v_t ~ p(. | v_<t),   token = 1 + the number whose digits are v_t

    For a model whose outputs are the parameters of a `keras_attn.losses.MixtureOfLogistics` and
    whose tokens are whole pixels, as an `image_transformer` with `num_mixtures`. The score is the
    log-probability. As in `Sample`, the same seed gives the same image with and without caches.

    Args:
        num_mixtures, channels, num_values: ints, as the `MixtureOfLogistics`.
        seed: int. None draws another image at every call.

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

    def decode(self, model, inputs, task):
        likelihood = self.likelihood
        numbers = likelihood.num_mixtures + likelihood.channels
        noise = uniform((task.max_length, ops.shape(inputs)[0], numbers), self.seed)

        def choose(parameters, step):
            values = likelihood.sample_by(parameters, ops.take(noise, step, axis=0))
            token = 1 + join_values(values, likelihood.num_values)
            return token, likelihood.log_probability(values, parameters)

        return write(model, inputs, choose, task)

    def get_config(self):
        return {
            "num_mixtures": self.likelihood.num_mixtures,
            "channels": self.likelihood.channels,
            "num_values": self.likelihood.num_values,
            "seed": self.seed,
        }
