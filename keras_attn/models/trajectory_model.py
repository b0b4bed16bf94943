"""A functional model that chooses actions by the return that it is to reach."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes


@registry.register
class TrajectoryModel(Model):
    """Predict each action from the wanted return, the state, and all steps before.

        action_t = f(R_0, s_0, a_0, .., R_t, s_t) = act(Depth(Embedding(R, s, a))_3t+1 W + b)

    A functional `keras.Model`, called with a dict of its inputs. It learns from stored episodes, in
    which R_t is the sum of the rewards from step t on. To act, give as R_t the wanted return less
    the rewards so far, and any last action, which is not read.

    Args:
        state_size: int. Size S of a state.
        embedding: a `TrajectoryEmbedding`.
        depth: of the depth axis; its blocks' pattern is causal.
        activation: name or function, of the actions; by default tanh, or none for discrete actions,
            whose outputs are logits.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        returns: (B, T).
        states: (B, T, S).
        actions: (B, T, A), or int32 (B, T) if they are discrete.
        steps: optional int32 (B, T), steps of the episode, by default 0 .. T-1.
        padding_mask: optional bool (B, T), False at padding.

    Returns:
        (B, T, A), float32.

    Raises:
        ValueError: if a pattern in `depth` is not causal, or `state_size` < 1.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.decision_transformer(3, 2, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_steps=10)
        >>> model.output.shape
        (None, None, 2)

    Differs from the paper: states and returns are not predicted.

    Reference: [Chen et al., 2021](https://arxiv.org/abs/2106.01345), section 3, algorithm 1.
    """

    parts = ("state_size", "embedding", "depth", "activation", "dropout")

    def __init__(self, state_size, embedding, depth, activation=None, dropout=0.0, **kwargs):
        check_sizes(state_size=state_size)
        assembly.check_layers(embedding=embedding, depth=depth)
        assembly.check_causal(depth)
        discrete, size = embedding.discrete, embedding.action_size
        action = {"shape": (None,), "dtype": "int32"} if discrete else {"shape": (None, size)}
        mask = keras.Input((None,), dtype="bool", name="padding_mask", optional=True)
        inputs = {
            "returns": keras.Input((None,), name="returns"),
            "states": keras.Input((None, state_size), name="states"),
            "actions": keras.Input(name="actions", **action),
            "steps": assembly.token_input("steps", optional=True),
        }
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        x = assembly.drop_symbolic(drop, embedding(**inputs))
        x = _OfStates()(depth(x, padding_mask=_OfEachVector()(mask)))
        default = None if discrete else "tanh"
        # Outputs of a model are float32 under any policy.
        head = keras.layers.Dense(size, activation or default, dtype="float32", name="head")
        super().__init__(
            inputs={**inputs, "padding_mask": mask}, outputs=divide_outputs(head)(x), **kwargs
        )
        self.state_size, self.embedding, self.depth = state_size, embedding, depth
        self.activation, self.dropout, self.head = activation, dropout, head


@registry.register
class _OfEachVector(keras.Operation):
    """Repeat the mask of steps (B, T) for the three vectors of each, (B, 3 T); None stays None."""

    def call(self, mask):
        return None if mask is None else ops.repeat(ops.cast(mask, "bool"), 3, axis=1)


@registry.register
class _OfStates(keras.Operation):
    """Select the outputs (B, T, D) at the states, the second of three vectors of each step."""

    def call(self, x):
        return x[:, 1::3]
