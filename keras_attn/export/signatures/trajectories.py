"""Signatures of models of stored episodes: the action of each step."""

import tensorflow as tf

from keras_attn.export.signatures.model_functions import ModelFunctions, length_mask
from keras_attn.models.state_models import TrajectoryModel


class TrajectoryFunctions(ModelFunctions):
    """Model of stored episodes as a graph function, from episodes to the action of each step.

    Args:
        model: a `TrajectoryModel`.
    """

    kind = "act"

    @classmethod
    def fits(cls, model, options):
        return isinstance(model, TrajectoryModel)

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A model of episodes")
        return cls(model)

    def __init__(self, model):
        super().__init__(model)
        self._model, self.max_length = model, model.embedding.max_steps
        read = [model.input[name] for name in ("returns", "states", "actions")]
        specs = [tf.TensorSpec(x.shape, x.dtype, x.name) for x in read]
        lengths = tf.TensorSpec([None], tf.int32, "lengths")
        self.act = tf.function(self._act, [*specs, lengths], autograph=False)

    @property
    def signatures(self):
        return {"act": self.act, "serving_default": self.act}

    def _act(self, returns, states, actions, lengths):
        """Map returns [B, T], states [B, T, S] and earlier actions to the `actions` [B, T, A]."""
        inputs = {"returns": returns, "states": states, "actions": actions}
        return {"actions": self._model({**inputs, "padding_mask": length_mask(returns, lengths)})}
