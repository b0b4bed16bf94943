"""Whole language models in float64, from the weights of a page and the keys that a query may meet.

Letters as in `oracles`. `formula(layer, x)` is the attention of a page: (B, T, D) -> (B, T, D).
"""

import numpy as np
import oracles
from keras import ops

from keras_attn.generation import generate
from keras_attn.models import CausalLanguageModel

V, L, N, D, F, T = 13, 2, 2, 6, 7, 11
SIZES = {
    "vocabulary_size": V,
    "num_layers": L,
    "num_heads": N,
    "hidden_dim": D,
    "intermediate_dim": F,
}
IDS = np.random.default_rng(1).integers(1, V, (2, T)).astype("int32")
PROMPTS = np.array([[5, 9, 3, 7], [8, 4, 0, 0]], "int32")


def scrambled(model, scale=0.6, seed=0):
    """Random weights; a small table, so that a token does not just write itself again.

    Padding has none, so that no model writes it.
    """
    for number, weight in enumerate(model.weights):
        noise = np.random.default_rng([seed, number]).normal(0.0, scale, weight.shape)
        weight.assign(noise if len(weight.shape) > 1 else weight + noise / 4)
    table = getattr(model.embedding, "table", None)
    if table is not None:
        table.assign(np.where(np.arange(V)[:, None] == 0, 0.0, 0.3 * oracles.numpy_of(table)))
    return model


def allowed(keys):
    """(T, T) of the set of keys of each query."""
    return np.array([[j in keys(i) for j in range(T)] for i in range(T)])


def heads(layer, x, name):
    """Queries, keys or values (B, N, T, H)."""
    kernel, bias = getattr(layer, f"{name}_kernel"), getattr(layer, f"{name}_bias")
    x = np.einsum("btd,dnh->bnth", x, oracles.numpy_of(kernel))
    return x if bias is None else x + oracles.numpy_of(bias)[:, None]


def weigh(layer, x, logits, mask):
    """Values (B, T, D) weighted by what is allowed of exp(logits) (B, N, T, T); 0 if nothing is."""
    weights = np.where(mask, np.exp(logits), 0.0)
    total = weights.sum(-1, keepdims=True)
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
    """A block's two sublayers, each with its norm, as functions of (B, T, D)."""

    def norm(residual):
        weights = oracles.norm_weights(residual.norm)
        return lambda x: oracles.layer_norm(x, *weights, residual.epsilon)

    weights = map(oracles.numpy_of, block.feed_forward.weights)
    weights = dict(zip(("w1", "b1", "w2", "b2"), weights, strict=True))
    return [
        (norm(block.attention_residual), lambda x: formula(block.attention, x)),
        (
            norm(block.feed_forward_residual),
            lambda x: oracles.feed_forward(x, weights, activation),
        ),
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
    """Rows of the table as the model scales them, and the table."""
    table = oracles.numpy_of(model.embedding.table)
    return table[ids] * (np.sqrt(D) if model.embedding.scaled else 1.0), table


def without_memory(model):
    """The same layers, which read a text in one pass."""
    parts = {"position": model.position, "head": model.head}
    return CausalLanguageModel(model.embedding, model.depth, **parts)


def read(model, ends):
    """Logits of a text that goes in segment by segment."""
    state, logits, start = model.initial_memory(len(IDS)), [], 0
    for end in ends:
        outputs = model({"token_ids": ops.convert_to_tensor(IDS[:, start:end]), **state})
        logits.append(outputs.pop("logits"))
        state, start = outputs, end
    return np.concatenate(logits, axis=1)


def check_steps(model):
    """Steps with a cache give the logits of one pass."""
    plain = without_memory(model) if model.memory is not None else model
    expected = np.asarray(plain({"token_ids": IDS}))
    constants, cache = model.start({"token_ids": IDS}, max_length=T)
    for start, end in ((0, 5), (5, 6), (6, T)):
        places = np.arange(start, end, dtype="int32")
        logits, cache = model.step(IDS[:, start:end], constants, cache, places)
        np.testing.assert_allclose(logits, expected[:, start:end], atol=1e-3)


def check_generation(model):
    """Greedy decoding, of prompts of different length, writes what one pass would choose."""
    plain = without_memory(model) if model.memory is not None else model
    ids = np.asarray(generate(model, PROMPTS, "greedy", 4, eos_id=-1)[0])
    assert np.all(ids > 0)
    for row, prompt in zip(ids, PROMPTS, strict=True):
        prompt = prompt[prompt != 0]
        logits = np.asarray(plain({"token_ids": np.concatenate([prompt, row])[None]}))[0]
        np.testing.assert_array_equal(logits[len(prompt) - 1 : -1].argmax(-1), row)


def check_no_leak(model):
    """Other tokens from place 6 on change no logit before, bit for bit, and all from there on."""
    plain = without_memory(model) if model.memory is not None else model
    before, changed = np.asarray(plain({"token_ids": IDS})), IDS.copy()
    changed[:, 6:] = changed[:, 6:] % (V - 1) + 1
    after = np.asarray(plain({"token_ids": changed}))
    np.testing.assert_array_equal(after[:, :6], before[:, :6])
    assert np.all(np.any(after[:, 6:] != before[:, 6:], axis=-1))
