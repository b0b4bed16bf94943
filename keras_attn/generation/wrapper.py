"""The base class of strategies that change the logits of another strategy."""

import inspect

from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.loop import Strategy


class Wrapper(Strategy):
    """Base class of a strategy that runs another one on logits that a processor has changed.

    Of nested wrappers the innermost changes the logits last.

    Args:
        strategy: name or object of a decoding strategy.
        renormalize: bool. If True, the score is the log-probability among the tokens that the
            processor allows. If False, the others keep their mass, as in the model's own
            log-probability. One False among nested wrappers holds for all of them. Sampling always
            normalises again.
    """

    def __init__(self, strategy, renormalize=True):
        self.renormalize = bool(renormalize)
        self.strategy = get_strategy(strategy)
        self.models = self.strategy.models
        self.runs_in_one_thread = self.strategy.runs_in_one_thread

    # Not by configuration: a strategy may hold a model, whose weights are in none.
    def __eq__(self, other):
        is_same = type(self) is type(other) and self.strategy == other.strategy
        return is_same and self._own_arguments() == other._own_arguments()

    def __hash__(self):
        return hash((type(self), self.strategy, repr(self._own_arguments())))

    def _own_arguments(self):
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if name != "strategy"}

    def decode(self, model, inputs, options):
        """Return ids (B, max_length) and scores (B,) for `Inputs`, as `generate` does."""
        renormalize = options.renormalize and self.renormalize
        options = self.extend(options)._replace(renormalize=renormalize)
        return self.strategy.decode(model, inputs, options)

    def extend(self, options):
        """Return the `DecodingOptions` with one more processor."""
        raise NotImplementedError(f"{type(self).__name__} must define `extend`.")
