"""The Decision Transformer (Chen et al., 2021)."""

import keras

from keras_attn import depth, layers, norms, residuals
from keras_attn.models.state_models import TrajectoryModel
from keras_attn.ops.shapes import head_size


def decision_transformer(
    state_size,
    action_size,
    discrete=False,
    num_layers=3,
    num_heads=1,
    hidden_dim=128,
    intermediate_dim=512,
    dropout=0.1,
    max_steps=1000,
    activation="relu",
    epsilon=1e-5,
    action_activation=None,
    name="decision_transformer",
):
    """Build the Decision Transformer, a `gpt` of returns, states and actions.

        x = LN([r W_r; s W_s; a W_a] + P);  x = x + CausalSelfAttention(LN(x)),  x = x + FFN(LN(x))
        action = tanh(LN(x) W), at each state

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal | learned, one a step | pre | stack | - | squared error |

    Train it to repeat the actions of stored episodes, then give it a high return to reach.

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores, for 3 T
    vectors of T steps.

    Use it for learning to act from stored episodes, without an environment.

    Args:
        state_size: int. Size S of a state.
        action_size: int. Size A of an action, or number of choices.
        discrete: bool. If True, actions are integers and outputs their logits.
        num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings, of the attention weights and of the
            sublayers' outputs.
        max_steps: int. Steps of the longest episode.
        activation: name or function, of the feed-forward layers.
        epsilon: float. Added to the variance in the norms of the blocks.
        action_activation: as `activation` of `TrajectoryModel`.

    Returns:
        A `TrajectoryModel`, from returns (B, T), states (B, T, S) and actions (B, T, A) to actions.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.decision_transformer(3, 2, hidden_dim=8, intermediate_dim=16)
        >>> x = np.ones((1, 5, 3), "float32")
        >>> model({"returns": x[..., 0], "states": x, "actions": x[..., :2]}).shape
        TensorShape([1, 5, 2])

    Differs from the paper: outputs for states and returns, which its loss leaves out, are not
        computed.

    Reference: [Chen et al., 2021](https://arxiv.org/abs/2106.01345), section 3, table 9.
    """
    normal = keras.initializers.RandomNormal(stddev=0.02)

    def block(index):
        size = head_size(hidden_dim, num_heads)
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads, size, pattern="causal", dropout=dropout, kernel_initializer=normal
            ),
            layers.FeedForward(intermediate_dim, activation, kernel_initializer=normal),
            residual=residuals.PreNorm(norm=norms.LayerNorm(epsilon)),
            dropout=dropout,
        )

    embedding = layers.TrajectoryEmbedding(
        action_size,
        hidden_dim,
        max_steps,
        discrete,
        norm=norms.LayerNorm(1e-5),
        kernel_initializer=normal,
    )
    return TrajectoryModel(
        state_size,
        embedding=embedding,
        depth=depth.Stack(block, num_layers, name="depth"),
        activation=action_activation,
        dropout=dropout,
        name=name,
    )
