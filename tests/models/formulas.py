"""Whole language models in float64, from a model's weights and the keys that each query attends to.

Letters as in `oracles`. `formula(layer, x)` is the attention of a model: (B, T, D) -> (B, T, D).
"""

import numpy as np
import oracles
from keras import ops

from keras_attn.models import CausalLanguageModel

V, L, N, D, F, T = 13, 2, 2, 8, 7, 11
SIZES = {
    "vocabulary_size": V,
    "num_layers": L,
    "num_heads": N,
    "hidden_dim": D,
    "intermediate_dim": F,
}
IDS = np.random.default_rng(1).integers(1, V, (2, T)).astype("int32")


def scrambled(model, scale=0.6, seed=0):
    """Randomise the weights, with a small table, so that a token does not just predict itself.

    Padding has a zero vector, so that no model predicts it.
    """
    for number, weight in enumerate(model.weights):
        noise = np.random.default_rng([seed, number]).normal(0.0, scale, weight.shape)
        weight.assign(noise if len(weight.shape) > 1 else weight + noise / 4)
    table = getattr(model.embedding, "table", None)
    if table is not None and table.shape[0] == V:
        table.assign(np.where(np.arange(V)[:, None] == 0, 0.0, 0.3 * oracles.numpy_of(table)))
    return model


def allowed(keys):
    """Return the mask (T, T) of the set of keys of each query."""
    return np.array([[j in keys(i) for j in range(T)] for i in range(T)])


def heads(layer, x, name):
    """Return queries, keys or values (B, N, T, H); shared heads are repeated."""
    kernel, bias = getattr(layer, f"{name}_kernel"), getattr(layer, f"{name}_bias")
    x = np.einsum("btd,dnh->bnth", x, oracles.numpy_of(kernel))
    x = x if bias is None else x + oracles.numpy_of(bias)[:, None]
    return np.repeat(x, layer.num_heads // x.shape[1], axis=1)


def weigh(layer, x, logits, mask):
    """Return values (B, T, D) weighted by the allowed part of exp(logits), (B, N, T, T)."""
    weights = np.where(mask, np.exp(logits), 0.0)
    total = weights.sum(-1, keepdims=True)
    if layer.sinks:
        total = total + np.exp(oracles.numpy_of(layer.sink_logits))[:, None, None]
    weights = weights / np.where(total == 0, 1, total)
    kernel = oracles.numpy_of(layer.output_kernel)
    bias = 0.0 if layer.output_bias is None else oracles.numpy_of(layer.output_bias)
    return np.einsum("bnts,bnsh,nhd->btd", weights, heads(layer, x, "value"), kernel) + bias


def scaled_dot(mask):
    def formula(layer, x):
        query, key = heads(layer, x, "query"), heads(layer, x, "key")
        logits = np.einsum("bnth,bnsh->bnts", query, key) / np.sqrt(query.shape[-1])
        return weigh(layer, x, logits, mask)

    return formula


def sublayers(block, formula, activation=lambda value: max(value, 0.0)):
    """Return a block's two sublayers, each with its norm, as functions of (B, T, D)."""

    def norm(residual):
        weights = oracles.norm_weights(residual.norm)
        return lambda x: oracles.layer_norm(x, *weights, residual.norm.epsilon)

    weights = map(oracles.numpy_of, block.feed_forward.weights)
    weights = dict(zip(("w1", "b1", "w2", "b2"), weights, strict=True))
    return [
        (norm(block.attention_residual), lambda x: formula(block.attention, x)),
        (norm(block.feed_forward_residual), lambda x: oracles.feed_forward(x, weights, activation)),
    ]


def post_norm(x, steps):
    for norm, function in steps:
        x = norm(x + function(x))
    return x


def pre_norm(x, steps):
    for norm, function in steps:
        x = x + function(norm(x))
    return x


def closing(model, x):
    return oracles.layer_norm(x, *oracles.norm_weights(model.depth.norm), model.depth.norm.epsilon)


def embedded(model, ids):
    """Return the scaled embeddings of ids, and the table."""
    table = oracles.numpy_of(model.embedding.table)
    return table[ids] * (np.sqrt(D) if model.embedding.scaled else 1.0), table


def without_memory(model):
    """Return a model without a memory, of the same layers."""
    parts = {"position": model.position, "head": model.head}
    return CausalLanguageModel(model.embedding, model.depth, **parts)


def read(model, ends):
    """Return the logits of a text that is read segment by segment."""
    state, logits, start = model.initial_memory(len(IDS)), [], 0
    for end in ends:
        outputs = model({"token_ids": ops.convert_to_tensor(IDS[:, start:end]), **state})
        logits.append(outputs.pop("logits"))
        state, start = outputs, end
    return np.concatenate(logits, axis=1)
