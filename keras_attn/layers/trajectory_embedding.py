"""Embedding of trajectories: returns, states and actions in turn."""

import keras
from keras import ops

from keras_attn import norms, registry
from keras_attn.backend.operations import take_rows
from keras_attn.initializers import redraw
from keras_attn.layers.id_reader import IdReader
from keras_attn.ops.checks import check_shape, check_sizes
from keras_attn.ops.ids import row_ids
from keras_attn.ops.images import check_fits


@registry.register
class TrajectoryEmbedding(IdReader, registry.MaskedLayer):
    """Embed each step of a trajectory by three vectors: its return to go, its state, its action.

        x_3t = LN(r_t W_r + b_r + P_t),   x_3t+1 = LN(s_t W_s + b_s + P_t),   x_3t+2 likewise of a_t

    P_t is the vector of the step of the episode, whatever its index in the input. Time
    O(T (S + A) D).

    Args:
        action_size: int. Size A of an action, or number of choices if actions are `discrete`.
        hidden_dim: int. Width D.
        max_steps: int. Steps of the longest episode.
        discrete: bool. If True, actions are integers, each with a vector of its own.
        norm: value of the norm axis.
        kernel_initializer: of all weights but biases.

    Call arguments:
        returns: (B, T). Sum of the rewards from a step on.
        states: (B, T, S).
        actions: (B, T, A), or int (B, T) if they are `discrete`.
        steps: int (B, T). Step of the episode; by default 0 .. T-1.

    Returns:
        (B, 3 T, D).

    Raises:
        ValueError: if a size is below 1, shapes do not fit together, or in an eager call a step or
            a discrete action is none of the table's.
        InvalidArgumentError: in a graph, as `TokenEmbedding`.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.TrajectoryEmbedding(2, 8, max_steps=16)
        >>> x = keras.ops.ones((1, 5, 2))
        >>> layer(returns=x[..., 0], states=x, actions=x).shape
        TensorShape([1, 15, 8])

    Differs from the paper: none.

    Reference: [Chen et al., 2021](https://arxiv.org/abs/2106.01345), section 3, algorithm 1.
    """

    weight_axes = {
        "return_kernel": (),
        "return_bias": (),
        "state_kernel": (),
        "state_bias": (),
        "action_kernel": (),
        "action_bias": (),
        "actions": (),
        "steps": (),
    }

    def __init__(
        self,
        action_size,
        hidden_dim,
        max_steps,
        discrete=False,
        norm="layer_norm",
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(action_size=action_size, hidden_dim=hidden_dim, max_steps=max_steps)
        self.action_size = action_size
        self.hidden_dim = hidden_dim
        self.max_steps = max_steps
        self.discrete = bool(discrete)
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, returns_shape, states_shape, actions_shape, steps_shape=None):
        widths = {"return": 1, "state": states_shape[-1], "action": self.action_size}
        self.kernels, self.biases = [], []
        for name, rows in widths.items():
            self.kernels.append(self._add_table(rows, f"{name}_kernel"))
            self.biases.append(self.add_weight((self.hidden_dim,), "zeros", name=f"{name}_bias"))
        self.table = self._add_table(self.max_steps, "steps")
        registry.build_once(self.norm, (None, None, self.hidden_dim))

    def _add_table(self, rows, name):
        shape = rows, self.hidden_dim
        return self.add_weight(shape, redraw(self.kernel_initializer), name=name)

    def call(self, returns, states, actions, steps=None):
        batch, length, _ = states.shape
        check_shape(returns, "returns", (batch, length))
        size = () if self.discrete else (self.action_size,)
        check_shape(actions, "actions", (batch, length, *size))
        if steps is None:
            check_fits(length, (self.max_steps,))
            steps = ops.expand_dims(ops.arange(ops.shape(states)[1]), 0)
        else:
            steps = ops.convert_to_tensor(steps)
            check_shape(steps, "steps", (batch, length), broadcast=True)
            steps = row_ids(steps, "steps", self.max_steps)
        if self.discrete:
            actions = row_ids(ops.convert_to_tensor(actions), "actions", self.action_size)
        return_kernel, state_kernel, action_kernel = self.kernels
        vectors = [
            ops.expand_dims(returns, -1) * return_kernel,
            ops.matmul(states, state_kernel),
            take_rows(action_kernel, actions)
            if self.discrete
            else ops.matmul(actions, action_kernel),
        ]
        step_vector = take_rows(self.table, steps)
        x = [v + bias + step_vector for v, bias in zip(vectors, self.biases, strict=True)]
        x = ops.stack(x, axis=2)  # (B, T, 3, D)
        return self.norm(ops.reshape(x, (ops.shape(x)[0], -1, self.hidden_dim)))

    def call_products(self, output_shape, returns, states, actions, steps=None):
        """Return the multiply-adds of a call; discrete actions are looked up."""
        batch, length, width = states
        rows = width + (0 if self.discrete else self.action_size)
        return batch * length * rows * self.hidden_dim

    def compute_output_shape(
        self, returns_shape, states_shape, actions_shape=None, steps_shape=None
    ):
        batch, length = states_shape[:2]
        return batch, None if length is None else 3 * length, self.hidden_dim
