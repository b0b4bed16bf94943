"""What the exports of image models have in common."""

from keras_attn import registry
from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.generation import Sample, SamplePixels
from keras_attn.generation.generate import NAMES
from keras_attn.generation.task import Task
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics
from keras_attn.ops.logistics import num_parameters


def likelihood_of(model, tokens):
    """The mixture of logistics that a model's outputs are the parameters of; None for logits."""
    if not tokens.whole_pixels:
        return None
    channels = tokens.image_shape[2]
    num_mixtures = model.output.shape[-1] // num_parameters(1, channels)
    return MixtureOfLogistics(num_mixtures, channels, tokens.num_values)


def draw(model, inputs, tokens, strategy, seed):
    """`images` (B, H, W, C) and their `score` (B,), written by `strategy` with a seed of its own."""
    if strategy is None:
        likelihood = likelihood_of(model, tokens)
        strategy = Sample()
        if likelihood is not None:
            strategy = SamplePixels(
                likelihood.num_mixtures, likelihood.channels, likelihood.num_values
            )
    strategy = registry.resolve(strategy, NAMES, "strategy")
    config = strategy.get_config()
    if "seed" in config:
        strategy = type(strategy).from_config({**config, "seed": seed})
    task = Task(tokens.length, tokens.start_id, eos_id=-1, grows=True)
    with loop_invariants():
        ids, score = strategy.decode(model, inputs, task)
    return {"images": tokens.decode(ids), "score": score}
