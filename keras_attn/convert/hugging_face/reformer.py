"""Reformer: its names on disk, and the model for them."""

import math

import keras

from keras_attn import depth, layers, models, norms, patterns, positions, residuals
from keras_attn.compat.unallocated import initialize, without_values
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import Family, read_options, read_part
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import (
    Fold,
    copy,
    copy_projection,
    copy_table,
)
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.per_layer import pattern_of

BLOCK = {
    "attention_residual.norm": "attention.layer_norm",
    "attention.value": "attention.self_attention.value",
    "attention.output": "attention.output.dense",
    "feed_forward_residual.norm": "feed_forward.layer_norm",
    "feed_forward.intermediate": "feed_forward.dense.dense",
    "feed_forward.output_dense": "feed_forward.output.dense",
}
LOCAL = {
    "attention.query": "attention.self_attention.query",
    "attention.key": "attention.self_attention.key",
}
EMBEDDINGS = {"embedding": "embeddings.word_embeddings", "depth.norm": "encoder.layer_norm"}
POSITIONS = "embeddings.position_embeddings"
# Options with the one value that is converted.
REQUIRED = {"is_decoder": True}
FIXED = {
    **{"lsh_num_chunks_before": 1, "lsh_num_chunks_after": 0, "local_num_chunks_after": 0},
    **{**REQUIRED, "tie_word_embeddings": False},
}
KINDS = {"local": patterns.BlockLocal1D, "lsh": patterns.LSH}
FIRST = "depth.blocks.0"
# The path in the model of each option of `config.json`, in all models and by the kind of a layer.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "hidden_size": "embedding.hidden_dim",
    "num_attention_heads": f"{FIRST}.attention.num_heads",
    "attention_head_size": f"{FIRST}.attention.key_dim",
    "feed_forward_size": f"{FIRST}.feed_forward.intermediate_dim",
    "layer_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
    "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "position.max_length",
}
KIND_OPTIONS = {
    "local": {
        "local_attn_chunk_length": "pattern.block_length",
        "local_attention_probs_dropout_prob": "dropout",
    },
    "lsh": {
        "lsh_attn_chunk_length": "pattern.chunk_length",
        "lsh_attention_probs_dropout_prob": "dropout",
        "num_hashes": "pattern.num_rounds",
    },
}


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint.

    Overrides are `pattern`, which may be a function of the layer's index, `dropout` and `name`.
    """
    checkpoint.strip("reformer.")
    checkpoint.drop_copy("lm_head.decoder.bias", "lm_head.bias")
    with without_values() as variables:  # which would be drawn at random
        model = _build(checkpoint.config, overrides)
    copy_weights(checkpoint, model)
    initialize(variables)
    return model


def _build(config, overrides):
    if not config.flag("is_decoder"):
        config.refuse("The option is_decoder=False is not converted, only True.")
    config.require(**FIXED)
    kinds = config.strings("attn_layers")
    if not kinds or not KINDS.keys() >= set(kinds):
        config.refuse(f"The option attn_layers={kinds!r} is not converted.")
    position = _position(config)
    chunk = config.number("chunk_size_feed_forward", 0)

    def own_pattern(index):
        return _pattern(config, kinds[index])

    def build_model(
        pattern=own_pattern, dropout=config.number("hidden_dropout_prob", 0.05), name="reformer"
    ):
        def block(index):
            kind = kinds[index]
            return layers.TransformerBlock(
                layers.MultiHeadAttention(
                    config.size("num_attention_heads"),
                    config.size("attention_head_size"),
                    score="shared_qk" if kind == "lsh" else "scaled_dot",
                    pattern=pattern_of(pattern, index),
                    use_bias=False,
                    dropout=config.number(f"{kind}_attention_probs_dropout_prob", 0.0),
                ),
                layers.FeedForward(
                    config.size("feed_forward_size"),
                    config.activation("hidden_act", "relu"),
                    dropout=dropout,
                    chunks=ceil_div(position.max_length, chunk) if chunk else 1,
                ),
                residual=residuals.PreNorm(
                    norm=norms.LayerNorm(config.number("layer_norm_eps", 1e-12))
                ),
                dropout=dropout,
            )

        return models.CausalLanguageModel(
            embedding=layers.TokenEmbedding(
                *(config.size("vocab_size"), config.size("hidden_size")),
                scaled=False,
                pad_id=None,  # id 0 is a token
            ),
            position=position,
            depth=depth.Reversible(block, len(kinds), join="concatenate", name="depth"),
            head=keras.layers.Dense(config.size("vocab_size"), dtype="float32", name="head"),
            dropout=dropout,
            name=name,
        )

    return build(build_model, {}, overrides)


def _position(config):
    if config.flag("axial_pos_embds", True):
        return positions.Axial(*map(config.integers, ("axial_pos_shape", "axial_pos_embds_dim")))
    return positions.Learned(config.size("max_position_embeddings"))


def _pattern(config, kind):
    """Return the pattern of a local layer, or of one by hashes."""
    length = config.size(f"{kind}_attn_chunk_length")
    if kind == "local":
        before = config.number("local_num_chunks_before", 1)
        return patterns.BlockLocal1D(length, lookback=before * length)
    num_buckets = config.get("num_buckets")
    return patterns.LSH(
        length,
        config.size("num_hashes", 1),
        math.prod(num_buckets) if isinstance(num_buckets, list) else num_buckets,
        across_buckets=True,
        wrap=True,
    )


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    copy_table(checkpoint, model, EMBEDDINGS)
    _copy_positions(checkpoint, model.position)
    for index, block in enumerate(model.depth.blocks):
        _copy_block(checkpoint, block, f"encoder.layers.{index}.")
    copy(checkpoint, model.head.kernel, "lm_head.decoder.weight", transpose=True)
    copy(checkpoint, model.head.bias, "lm_head.bias")


def _copy_positions(checkpoint, position):
    if isinstance(position, positions.Learned):
        return copy(checkpoint, position.table, f"{POSITIONS}.embedding.weight")
    for axis, table in enumerate(position.tables):
        length, width = table.shape
        shape = [1] * len(position.tables)
        shape[axis] = length
        checkpoint.transfer(f"{POSITIONS}.weights.{axis}", Fold([table], (*shape, width)))


def _copy_block(checkpoint, block, prefix):
    copy_table(checkpoint, block, BLOCK, prefix)
    if not block.attention.shares_query:
        copy_table(checkpoint, block, LOCAL, prefix)
    else:  # whose queries are not divided by the root of their size
        name, scale = f"{prefix}attention.self_attention.query_key", block.attention.key_dim**0.5
        copy_projection(checkpoint, block.attention, "query", name, scale=scale)


def fits(model):
    """Return True for a model of reversible layers."""
    return isinstance(model.depth, depth.Reversible)


def options(model):
    """Return the options of `config.json` for a model.

    Chunks of the feed-forward layers, which change no number, are left out: with them transformers
    refuses texts whose length they do not divide.
    """
    kinds = [_kind(model, index) for index in range(read_part(model, "depth.num_layers"))]
    found = {
        **read_options(model, OPTIONS),
        **FIXED,
        "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        "attn_layers": kinds,
        "axial_pos_embds": isinstance(model.position, positions.Axial),
        "architectures": ["ReformerModelWithLMHead"],
    }
    if found["axial_pos_embds"]:
        found["axial_pos_shape"] = list(model.position.shape)
        found["axial_pos_embds_dim"] = list(model.position.dims)
    for kind in set(kinds):
        attention = model.depth.blocks[kinds.index(kind)].attention
        found |= read_options(attention, KIND_OPTIONS[kind])
        if kind == "local":
            pattern = attention.pattern
            found["local_num_chunks_before"] = pattern.lookback // pattern.block_length
        else:
            found["num_buckets"] = attention.pattern.num_buckets
    return found


def _kind(model, index):
    """Return the kind of a layer in `attn_layers`."""
    path = f"depth.blocks.{index}.attention.pattern"
    pattern = read_part(model, path)
    for kind, cls in KINDS.items():
        if type(pattern) is cls:
            return kind
    raise ValueError(
        f"`model` fits no family of checkpoints: `model.{path}` must be a `BlockLocal1D` or an "
        f"`LSH`, as in a model of reformer. Received: model.{path}={pattern!r}."
    )


FAMILY = Family(
    convert=convert,
    options=options,
    build=lambda config, model: _build(config, {}),
    copy_weights=copy_weights,
    prefix="reformer.",
    heads=("lm_head.",),
    requires=REQUIRED,
    free=("pad_id",),  # padding is at the end, where no token sees it
    pad_id=0,  # with which transformers fills the last chunk
)
