"""Mistakes that a conversion of each family could make, planted in a converted model."""

import contextlib
import functools
import itertools

import keras
import numpy as np
import oracles

from keras_attn import layers, patterns
from keras_attn.ops.activations import gelu_tanh


def blocks(model):
    stack = next(getattr(model, n) for n in ("depth", "decoder", "encoder") if hasattr(model, n))
    return stack.blocks


@contextlib.contextmanager
def changed(*attributes):
    """Change attributes, each `(object, name, value)`; values of variables are assigned."""
    before = []
    for owner, name, value in attributes:
        old = getattr(owner, name)
        if hasattr(old, "assign"):
            before.append((old.assign, old.numpy()))
            old.assign(value(old.numpy()))
        else:
            before.append((functools.partial(setattr, owner, name), old))
            setattr(owner, name, value)
    try:
        yield
    finally:
        for restore, old in reversed(before):
            restore(old)


def in_each_block(path, value):
    """Change what is at a path in each block; `value` is a function of the old value."""

    def change(model):
        for block in blocks(model):
            *owners, name = path.split(".")
            owner = functools.reduce(getattr, owners, block)
            old = getattr(owner, name)
            yield owner, name, value if hasattr(old, "assign") else value(old)

    return change


def in_model(path, value):
    def change(model):
        *owners, name = path.split(".")
        yield functools.reduce(getattr, owners, model), name, value

    return change


def transposed(kernel):
    """Copy a square kernel as it is stored."""
    rows = kernel.shape[0] if kernel.ndim == 2 else int(np.prod(kernel.shape[:-1]))
    return kernel.reshape(rows, -1).T.reshape(kernel.shape)


def heads_last(kernel):
    """Read the heads' axis of a kernel (D, N, H) as (H, N)."""
    width, heads, size = kernel.shape
    return kernel.reshape(width, size, heads).swapaxes(1, 2)


def narrower(pattern):
    """Take a key at either end of a window."""
    return patterns.Local(pattern.first.window - 1, causal=False) | pattern.second


def shorter_windows(model):
    for block in blocks(model):
        if isinstance(window := block.attention.pattern, patterns.Local):
            yield block.attention, "pattern", patterns.Local(window.window - 1, window.causal)


def plain_queries(model):
    for block in blocks(model):
        for name in ("global_query_kernel", "global_query_bias"):
            plain = getattr(block.attention, name.removeprefix("global_")).numpy()
            yield block.attention, name, lambda _, plain=plain: plain


def swapped_pairs(model):
    """Give the windows of one kind of layers to the other kind."""
    stack = blocks(model)
    for block, other in zip(stack, [*stack[1:], stack[0]], strict=True):
        yield block.attention, "pattern", other.attention.pattern


def swapped_gates(model):
    for block in blocks(model):
        gate, intermediate = block.feed_forward.gate, block.feed_forward.intermediate
        yield block.feed_forward, "gate", intermediate
        yield block.feed_forward, "intermediate", gate


def tiled_heads(axis):
    """Give key head n % K to query head n, by an order of the query heads."""
    return lambda kernel: np.take(kernel, [0, 2, 1, 3], axis=axis)


def tiled(model):
    yield from in_each_block("attention.query_kernel", tiled_heads(1))(model)
    yield from in_each_block("attention.output_kernel", tiled_heads(0))(model)


def without_scaling(model):
    for block in model.depth.blocks:
        yield block.attention.position, "scaling", None


def scaled_windows(model):
    """Give layers with a window the scaling of those without one."""
    positions = [block.attention.position for block in model.depth.blocks]
    scaling = next(x.scaling for x in positions if x.scaling is not None)
    return [(position, "scaling", scaling) for position in positions]


def positions_everywhere(model):
    """Give layers without a position that of the first layer."""
    turn = model.depth.blocks[0].attention.position
    for block in model.depth.blocks[1:]:
        yield block.attention, "position", lambda x, positions=None: turn(x, positions)


def positions_reversed(model):
    """Give each layer the position of the layer as far from the other end."""
    turns = [block.attention.position or first_argument for block in model.depth.blocks]
    for block, turn in zip(model.depth.blocks, reversed(turns), strict=True):
        yield block.attention, "position", lambda x, positions=None, turn=turn: turn(x, positions)


def in_scalings(name, value):
    """Change an attribute of the scalings of all positions that have one."""

    def change(model):
        scalings = [block.attention.position.scaling for block in model.depth.blocks]
        return [(scaling, name, value) for scaling in scalings if scaling is not None]

    return change


def whole_heads(model):
    """Turn all components of the heads, with more factors of the same kind."""
    for position in (block.attention.position for block in model.depth.blocks):
        yield position, "fraction", 1.0
        yield position.scaling, "factors", [*position.scaling.factors, 4.0]


def in_experts(path, value):
    """Change what is at a path in the experts of each block that has some."""

    def change(model):
        for layer in (block.feed_forward for block in model.depth.blocks):
            if hasattr(layer, "router_kernel"):
                *owners, name = path.split(".")
                yield functools.reduce(getattr, owners, layer), name, value

    return change


def swapped_kernels(model):
    """Exchange the kernels of the gates of experts with those that the gates multiply."""
    for layer in (block.feed_forward for block in model.depth.blocks):
        gate, intermediate = layer.gate_kernel.numpy(), layer.intermediate_kernel.numpy()
        yield layer, "gate_kernel", lambda _, x=intermediate: x
        yield layer, "intermediate_kernel", lambda _, x=gate: x


def halves_of_experts(model):
    """Take columns that alternate for the gates, then the other layer."""
    for layer in (block.feed_forward for block in model.depth.blocks):
        pair = layer.gate_kernel.numpy(), layer.intermediate_kernel.numpy()
        joined = np.stack(pair, axis=-1).reshape(*pair[0].shape[:-1], -1)
        for name, half in zip(("gate_kernel", "intermediate_kernel"), np.split(joined, 2, axis=-1)):
            yield layer, name, lambda _, half=half: half


def one_wavelength(model):
    for block in model.depth.blocks:
        yield block.attention.position, "max_wavelength", 1e6


def in_each_table(value):
    """Change the tables of distances of an encoder."""

    def change(model):
        for block in model.encoder.blocks:
            yield block.attention.score.terms[-1], "table", value

    return change


def one_table(model):
    """Give all blocks of the encoder the distances of the first one."""
    first, *others = (block.attention.score.terms[-1] for block in model.encoder.blocks)
    table = first.table.numpy()
    for term in others:
        yield term, "table", lambda _: table


def sines(table):
    """Return what `Sinusoidal(layout="concat")` adds, in place of a table of positions."""
    length, width = table.shape
    rows = np.array([oracles.sinusoids(p, width, "concat") for p in range(length)])
    return rows.astype("float32")


def tied(model):
    yield model.head, "kernel", lambda _: model.target_embedding.table.numpy().T


def in_each_expert_block(name, value):
    """Change an attribute of each mixture of experts."""

    def change(model):
        for block in [*model.encoder.blocks, *model.decoder.blocks]:
            if hasattr(block.feed_forward, "num_experts"):
                yield block.feed_forward, name, value

    return change


def scaled_scores(model):
    sides = [getattr(model, side) for side in ("encoder", "decoder") if hasattr(model, side)]
    for block in (block for side in sides for block in side.blocks):
        yield block.attention, "query_kernel", lambda x: x / np.float32(5**0.5)


def exchanged_biases(model):
    for score in (block.attention.score for block in model.depth.blocks):
        u, v = score.u.numpy(), score.v.numpy()
        yield score, "u", lambda _, v=v: v
        yield score, "v", lambda _, u=u: u


def in_each_hash_block(path, value):
    """Change what is at a path in each block whose keys are its queries."""

    def change(model):
        for block in model.depth.blocks:
            if block.attention.shares_query:
                yield block.attention, path, value

    return change


def pooled(kind):
    return lambda model: [(model.get_layer("pool"), "pooling", kind)]


def own_table(path):
    """Score tokens by the table of the embeddings, whose rows are those at a path."""
    return lambda model: in_model(path, lambda _: model.embedding.table.numpy())(model)


def all_queries_first(model):
    """Read joined rows as all queries, all keys and all values, not as those of each group."""
    for attention in (block.attention for block in model.depth.blocks):
        names = [f"{part}_kernel" for part in ("query", "key", "value")]
        kernels = [getattr(attention, name).numpy() for name in names]
        width, groups, size = kernels[1].shape
        by_group = [kernel.reshape(width, groups, -1, size) for kernel in kernels]
        stored = np.concatenate(by_group, axis=2).reshape(width, -1, size)
        ends = np.cumsum([kernel.shape[1] for kernel in kernels[:-1]])
        for name, kernel in zip(names, np.split(stored, ends, axis=1), strict=True):
            yield attention, name, lambda _, kernel=kernel: kernel


def one_norm(model):
    for block in model.depth.blocks:
        yield block, "feed_forward_residual", block.attention_residual


def in_turn(apply):
    """Replace `apply` of a block with parallel sublayers by that of `TransformerBlock`."""
    return functools.partial(layers.TransformerBlock.apply, apply.__self__)


def exact_gelu(x):
    return keras.activations.gelu(x, approximate=False)


def identity(x):
    return x


def first_argument(x, positions):
    return x


def farther(model):
    for block in blocks(model):
        yield block.attention.score.terms[-1], "max_distance", 512


def groups_in_turn(model):
    """Run a layer of each group in turn."""
    repeated = [group.block for group in model.encoder.blocks]
    steps = itertools.cycle([block.apply for block in repeated])
    for block in repeated:
        yield block, "apply", lambda x, call: next(steps)(x, call)


def convolved_padding(model):
    convolution = model.encoder.blocks[0].convolution
    call = convolution.call
    yield convolution, "call", lambda x, padding_mask=None: call(x)


def other_convolution(model):
    yield model.encoder.blocks[0].convolution, "kernel", lambda x: x[::-1]


def in_distances(name, value):
    """Change the tables of distances or a size of the scores."""

    def change(model):
        for block in blocks(model):
            yield block.attention.score, name, value

    return change


def backwards(table):
    """Read the row of j - i for that of i - j."""
    return np.roll(table[::-1], 1, axis=0)


# A kind of mistake that could be made in several families is planted in one or two of them.
MISTAKES = {
    "bert": {
        "tanh GELU": in_each_block("feed_forward.activation", lambda _: gelu_tanh),
        "epsilon 1e-12": in_each_block("attention_residual.norm.epsilon", lambda _: 1e-12),
        "kernel not transposed": in_each_block("attention.output_kernel", transposed),
        "heads as (H, N)": in_each_block("attention.query_kernel", heads_last),
    },
    "bert_answers": {"ends are starts": in_model("head.kernel", lambda x: x[:, ::-1])},
    "bert_untied": {"the table of the tokens": own_table("head.embedding.table")},
    "bert_classifier": {"a linear pooler": in_model("pooler.activation", identity)},
    "distilbert": {
        "segments of BERT": in_model("segment.table", lambda x: x + np.arange(12) / 12),
    },
    "roberta": {
        "positions from row 1": in_model("position.table", lambda x: np.roll(x, 1, axis=0)),
        "no row of types": in_model("segment.table", np.zeros_like),
        "id 0 is padding": in_model("embedding.pad_id", 0),
    },
    "xlm_roberta": {
        "positions from row 0": in_model("position.table", lambda x: np.roll(x, 2, axis=0)),
        "the head's activation is that of the layers": in_model(
            "head.activation", keras.activations.relu
        ),
    },
    "camembert_classifier": {"the classes of BERT": in_model("pooler.activation", identity)},
    "mpnet": {
        "no bias": in_each_table(np.zeros_like),
        "j - i": in_each_table(lambda x: np.roll(x, 16, axis=0)),
        "distances up to 512": farther,
    },
    "albert": {
        "exact GELU": in_each_block("block.feed_forward.activation", lambda _: exact_gelu),
        "groups in turn": groups_in_turn,
    },
    "electra": {
        "the head's activation is that of the layers": in_model(
            "head.activation", keras.activations.relu
        ),
    },
    "electra_discriminator": {
        "GELU whatever the layers have": in_model("head.transform.activation", exact_gelu),
    },
    "electra_classifier": {"the pooler of BERT": in_model("pooler.activation", np.tanh)},
    "deberta_v2": {
        "keys of j - i": in_distances("key_table", backwards),
        "queries of j - i": in_distances("query_table", backwards),
        "a distance in each bucket": in_distances("max_distance", None),
        "distances up to 512": in_distances("max_distance", 512),
        "padding is convolved": convolved_padding,
        "a convolution from right to left": other_convolution,
    },
    "deberta_v2_classifier": {
        "the scale of two directions": in_each_block(
            "attention.query_kernel", lambda x: x * np.float32(2 / 3) ** 0.5
        ),
        "the pooler of BERT": in_model("pooler.activation", np.tanh),
    },
    "modernbert": {
        "interleaved pairs": in_each_block("attention.position.layout", lambda _: "interleaved"),
        "one wavelength": in_each_block("attention.position.max_wavelength", lambda _: 160000.0),
        "windows in other layers": swapped_pairs,
        "a window of one key less": shorter_windows,
        "gate and up swapped": swapped_gates,
    },
    "modernbert_classifier": {
        "the first token": pooled("first"),
        "no norm before the classes": in_model("pooler.norm", identity),
        "the norms of BERT": in_each_block("feed_forward_residual.norm.epsilon", lambda _: 1e-12),
    },
    "modernbert_tags": {"no activation": in_model("head.transform.activation", identity)},
    "longformer": {
        "a window of one key less": in_each_block("attention.pattern", narrower),
        "windows in other layers": swapped_pairs,
        "a global token": in_each_block("attention.pattern", lambda x: x | patterns.Global(1)),
    },
    "longformer_classifier": {
        "no second projections": in_each_block("attention.num_global", lambda _: 0),
        "no global token": in_each_block("attention.pattern", lambda x: x.first),
        "a global query by the plain projection": plain_queries,
        "second values not transposed": in_each_block("attention.global_value_kernel", transposed),
    },
    "big_bird": {
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "no root of D": in_model("embedding.scaled", False),
    },
    "big_bird_classifier": {"the pooler of BERT": in_model("pooler.activation", np.tanh)},
    "gpt2": {
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "c_proj transposed": in_each_block("attention.output_kernel", transposed),
        "id 0 is padding": in_model("embedding.pad_id", 0),
    },
    "llama": {
        "interleaved pairs": in_each_block("attention.position.layout", lambda _: "interleaved"),
        "no scaling": without_scaling,
        "heads tiled": tiled,
        "gate and up swapped": swapped_gates,
    },
    "llama_features": {"the first token": pooled("first")},
    "llama_classifier": {
        "the first token": pooled("first"),
        "the mean of all tokens": pooled("mean"),
    },
    "mistral": {
        "a window of one key less": in_each_block("attention.pattern", lambda _: patterns.Local(4)),
    },
    "qwen2": {"windows in other layers": swapped_pairs},
    "qwen3": {"no norm of queries": in_each_block("attention.qk_norm", lambda _: identity)},
    "gemma": {
        "gain g": in_each_block("attention_residual.norm.offset", lambda _: 0.0),
        "no root of D": in_model("embedding.scaled", False),
    },
    "gemma2": {
        "no cap of scores": in_each_block("attention.score.cap", lambda _: 1e6),
        "no cap of logits": in_model("embedding.logits_cap", None),
        "scale by the size of a head": in_each_block(
            "attention.query_kernel", lambda x: x * np.float32(10 / 6) ** 0.5
        ),
    },
    "gemma3": {"one wavelength": one_wavelength},
    "mixtral": {
        "w1 and w3 exchanged": swapped_kernels,
        "weights of all experts": in_experts("router", "probability"),
        "a window of one key less": in_each_block("attention.pattern", lambda _: patterns.Local(6)),
    },
    "qwen2_moe": {
        "no gate of the shared expert": in_experts("use_shared_gate", False),
        "weights of the chosen experts": in_experts("router", "renormalized"),
        "windows as Qwen 2": swapped_pairs,
    },
    "qwen3_moe": {
        "weights of all experts": in_experts("router", "probability"),
        "experts in another order": in_experts("gate_kernel", lambda x: x[::-1]),
    },
    "gpt_oss": {
        "gate and up in halves": halves_of_experts,
        "no sinks": in_each_block("attention.sink_logits", lambda x: x - 1e9),
        "windows in other layers": swapped_pairs,
        "limit 7": in_experts("expert.limit", 7.0),
        "alpha 1.702": in_experts("expert.alpha", 1.702),
        "a window of one key less": shorter_windows,
        "no bias of the router": in_experts("router_bias", np.zeros_like),
        "down_proj transposed": in_experts("output_kernel", lambda x: x.swapaxes(1, 2)),
        "truncate": in_scalings("truncate", True),
    },
    "olmo2": {"no norm of queries": in_each_block("attention.qk_norm", lambda _: identity)},
    "olmo3": {
        "a window of one key less": shorter_windows,
        "YaRN in layers with a window": scaled_windows,
        "no amplitude": in_scalings("amplitude", 1.0),
        "beta_fast 32": in_scalings("beta_fast", 32.0),
    },
    "starcoder2": {
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "a window of one key less": in_each_block("attention.pattern", lambda _: patterns.Local(6)),
    },
    "smollm3": {
        "positions in all layers": positions_everywhere,
        "layers with positions from the end": positions_reversed,
    },
    "phi": {
        "all components turn": in_each_block("attention.position.fraction", lambda _: 1.0),
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "no bias of logits": in_model("head.bias", np.zeros_like),
        "no norm of queries": in_each_block("attention.qk_norm", lambda _: identity),
    },
    "gpt_neox": {
        "queries of all heads first": all_queries_first,
        "one norm": one_norm,
        "one sublayer after the other": in_each_block("apply", in_turn),
        "GELU by tanh": in_each_block("feed_forward.activation", lambda _: gelu_tanh),
        "all components turn": in_each_block("attention.position.fraction", lambda _: 1.0),
    },
    "gptj": {
        "halves turn": in_each_block("attention.position.layout", lambda _: "half"),
        "all components turn": in_each_block("attention.position.fraction", lambda _: 1.0),
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "no bias of logits": in_model("head.bias", np.zeros_like),
    },
    "falcon": {
        "queries of all groups first": all_queries_first,
        "one norm": one_norm,
        "one sublayer after the other": in_each_block("apply", in_turn),
        "GELU by tanh": in_each_block("feed_forward.activation", lambda _: gelu_tanh),
    },
    "falcon_classifier": {
        "one sublayer after the other": in_each_block("apply", in_turn),
    },
    "bloom": {
        "queries of all heads first": all_queries_first,
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
        "no bias of distances": in_each_block("attention.score", lambda score: score.terms[0]),
    },
    "opt": {
        "positions from row 0": in_model("position.table", lambda x: np.roll(x, 2, axis=0)),
        "exact GELU": in_each_block("feed_forward.activation", lambda _: exact_gelu),
    },
    "phi3": {
        "all components turn": whole_heads,
        "long factors": in_scalings("factors", [3.0, 4.0, 6.0]),
        "no amplitude": in_scalings("amplitude", 1.0),
        "gate and up swapped": swapped_gates,
    },
    "granite": {
        "scores divided": in_each_block("attention.query_kernel", lambda x: x / np.float32(0.6)),
        "whole residuals": in_each_block("attention.output_kernel", lambda x: x / np.float32(0.4)),
    },
    "marian": {
        "interleaved sinusoids": in_model("position.layout", "interleaved"),
        "no bias of logits": in_model("head.bias", np.zeros_like),
    },
    "bart": {
        "no norm of embeddings": in_model("norm.epsilon", 1.0),
    },
    "mbart": {
        "no norm after the last block": in_model("decoder.norm", None),
        "no norm of embeddings": in_model("norm.epsilon", 1.0),
        "no bias of logits": in_model("head.bias", np.zeros_like),
    },
    "m2m_100": {
        "positions from 0": in_model("position.first_position", 0),
        "wavelengths of the paper": in_model("position.layout", "concat"),
    },
    "pegasus": {
        "computed positions": in_model("source_position.table", sines),
        "tied logits": tied,
    },
    "t5": {
        "scores divided": scaled_scores,
        "no root of D at the output": in_model("decoder.norm.scale", lambda x: x * 12**0.5),
        "sides of the buckets swapped": in_each_table(lambda x: np.roll(x, 4, axis=0)),
        "buckets of one side": in_each_table(lambda x: np.concatenate([x[:4], x[:4]])),
    },
    "decision_transformer": {
        "tanh of actions left out": in_model("head.activation", keras.activations.linear),
        "ReLU": in_each_block("feed_forward.activation", lambda _: keras.activations.relu),
        "steps from 1": in_model("embedding.table", lambda x: np.roll(x, -1, axis=0)),
    },
    "perceiver": {
        "no bias of logits": in_model("head.bias", np.zeros_like),
        "latents written without a norm": in_model("encoder.depth.norm.gamma", np.ones_like),
        "queries of positions added": in_model("encoder.write.adds_query", True),
    },
    "t5_encoder": {
        "scores divided": scaled_scores,
        "no root of D at the token table": in_model("embedding.table", lambda x: x / 12**0.5),
        "sides of the buckets swapped": in_each_table(lambda x: np.roll(x, 4, axis=0)),
    },
    "t5_silu": {
        "epsilon 1e-6": in_each_block("attention_residual.norm.epsilon", lambda _: 1e-6),
        "gates by GELU": in_each_block("feed_forward.activation", lambda _: gelu_tanh),
    },
    "mt5": {
        "outputs divided by the root of D": in_model("decoder.norm.scale", lambda x: x / 12**0.5)
    },
    "umt5": {"one table of distances": one_table},
    "umt5_tags": {
        "one table of distances": one_table,
        "tags in the opposite order": in_model("head.kernel", lambda x: x[:, ::-1]),
    },
    "switch_transformers": {
        "no capacity": in_each_expert_block("capacity", None),
        "experts not weighted": in_each_expert_block("router", "renormalized"),
    },
    "reformer": {
        "scores not divided": in_each_block("attention.query_kernel", lambda x: x * 5**0.5),
        "no chunk before": in_each_block(
            "attention.pattern", lambda _: patterns.BlockLocal1D(5, lookback=0)
        ),
        "root of D": in_model("embedding.scaled", True),
        "streams exchanged": in_model("head.kernel", lambda x: np.roll(x, 12, axis=0)),
    },
    "reformer_lsh": {
        "scores divided": in_each_hash_block("query_kernel", lambda x: x / np.float32(5**0.5)),
        "its own key": in_each_hash_block("pattern", patterns.Causal()),
    },
    "transformer_xl": {
        "u and v exchanged": exchanged_biases,
        "no clamp": in_each_block("attention.score.clamp_length", lambda _: None),
        "all earlier keys": in_each_block("attention.pattern", lambda _: patterns.Causal()),
        "a window of one key more": in_each_block(
            "attention.pattern", lambda _: patterns.Local(12)
        ),
        "clusters in the authors' order": in_model("head.cluster_table", lambda x: x[::-1]),
        "the first projection shared": in_model("head.projections", []),
    },
    "vit_features": {"a linear pooler": in_model("pooler.activation", identity)},
    "vit": {
        "patches by channel": in_model(
            "embedding.kernel",
            lambda x: x.reshape(3, 3, 2, -1).transpose(2, 0, 1, 3).reshape(x.shape),
        ),
    },
}
