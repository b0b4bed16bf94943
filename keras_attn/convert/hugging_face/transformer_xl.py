"""Transformer-XL: its names on disk, and the model for them."""

import numpy as np

from keras_attn import depth, layers, memory, models, norms, patterns, residuals, scores
from keras_attn.compat.unallocated import assign, initialize, without_values
from keras_attn.convert.hugging_face.adaptive_softmax import (
    check_tied,
    copy_embedding,
    copy_head,
    drop_copies,
    projection_options,
    tied_projections,
)
from keras_attn.convert.hugging_face.family import Family, read_options, read_part
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_table
from keras_attn.patterns.per_layer import pattern_of

BLOCK = {
    "attention.output": "dec_attn.o_net",
    "attention_residual.norm": "dec_attn.layer_norm",
    "feed_forward.intermediate": "pos_ff.CoreNet.0",
    "feed_forward.output_dense": "pos_ff.CoreNet.3",
    "feed_forward_residual.norm": "pos_ff.layer_norm",
}
BIASES = {"u": "r_w_bias", "v": "r_r_bias"}
# Options with the one value that is converted.
FIXED = {"attn_type": 0, "pre_lnorm": False, "sample_softmax": -1, "tie_word_embeddings": True}
FIRST = "depth.blocks.0"
# The path in the model of each option of `config.json`.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "cutoffs": "embedding.cutoffs",
    "div_val": "embedding.div_val",
    "d_embed": "embedding.hidden_dim",
    "d_model": "embedding.hidden_dim",
    "n_layer": "depth.num_layers",
    "n_head": f"{FIRST}.attention.num_heads",
    "d_head": f"{FIRST}.attention.key_dim",
    "d_inner": f"{FIRST}.feed_forward.intermediate_dim",
    "dropout": "dropout",
    "dropatt": f"{FIRST}.attention.dropout",
    "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
}


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint.

    Overrides are `memory_length`, `clamp_length`, `pattern`, which may be a function of the layer's
    index, `dropout` and `name`.
    """
    checkpoint.strip("transformer.")
    checkpoint.ignore("pos_emb.inv_freq")
    with without_values() as variables:  # which would be drawn at random
        model = _build(checkpoint.config, overrides)
    drop_copies(checkpoint, model.head)
    copy_weights(checkpoint, model)
    initialize(variables)
    return model


def _build(config, overrides, has_width=True):
    """Return a model; without `has_width` its scores take theirs from the size of the heads."""
    width, length = config.size("d_model"), config.number("mem_len", 1600)
    config.require(**FIXED, d_embed=width, ext_len=0, tie_weight=True)
    cutoffs, has_same_length = config.integers("cutoffs"), config.flag("same_length", True)
    if has_same_length and not length:
        config.refuse("The option same_length=True is not converted without a `mem_len` above 0.")
    clamp = config.get("clamp_len", 1000)
    if type(clamp) is not int:
        config.refuse(f"`clamp_len` in config.json must be an integer, not {clamp!r}.")
    norm = norms.LayerNorm(config.number("layer_norm_epsilon", 1e-5))

    def build_model(
        memory_length=length,
        clamp_length=clamp if clamp > 0 else None,
        pattern=None,
        dropout=config.number("dropout", 0.1),
        name="transformer_xl",
    ):
        if pattern is None:
            pattern = patterns.Local(memory_length) if has_same_length else "causal"

        def block(index):
            return layers.TransformerBlock(
                layers.MultiHeadAttention(
                    config.size("n_head"),
                    config.size("d_head"),
                    score=scores.Relative(width if has_width else None, clamp_length),
                    pattern=pattern_of(pattern, index),
                    use_bias=False,
                    dropout=config.number("dropatt", 0.0),
                ),
                layers.FeedForward(config.size("d_inner"), dropout=dropout),
                residual=residuals.PostNorm(norm=norm),
                dropout=dropout,
            )

        embedding = layers.AdaptiveEmbedding(
            config.size("vocab_size", config.get("n_token")),
            width,
            cutoffs,
            config.size("div_val", 4),
            pad_id=None,  # id 0 is a token
        )
        return models.CausalLanguageModel(
            embedding=embedding,
            head=layers.AdaptiveSoftmax(embedding, tied_projections(config), ignore_class=-100),
            depth=depth.Stack(block, config.size("n_layer"), name="depth"),
            memory=memory.SegmentMemory(memory_length) if memory_length else None,
            dropout=dropout,
            name=name,
        )

    return build(build_model, {}, overrides)


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    for index, block in enumerate(model.depth.blocks):
        _copy_block(checkpoint, block, f"layers.{index}.")
    _copy_biases(checkpoint, [block.attention.score for block in model.depth.blocks])
    copy_embedding(checkpoint, model.embedding)
    copy_head(checkpoint, model.head)


def _copy_block(checkpoint, block, prefix):
    copy_table(checkpoint, block, BLOCK, prefix)
    attention, prefix = block.attention, f"{prefix}dec_attn."
    kernels = [attention.query_kernel, attention.key_kernel, attention.value_kernel]
    width, num_heads, size = kernels[0].shape
    outputs = num_heads * size
    checkpoint.transfer(f"{prefix}qkv_net.weight", Fold(kernels, (3 * outputs, width), (1, 0)))
    distances = Fold([attention.score.kernel], (outputs, width), (1, 0))
    checkpoint.transfer(f"{prefix}r_net.weight", distances)


def _copy_biases(checkpoint, scores):
    """Copy u and v of each layer, or those of all: training unties them."""
    is_untied = checkpoint.config.flag("untie_r", True)
    for name, stored in BIASES.items():
        variables = [getattr(score, name) for score in scores]
        names = [f"layers.{index}.dec_attn.{stored}" for index in range(len(scores))]
        if is_untied:
            for variable, own in zip(variables, names, strict=True):
                copy(checkpoint, variable, own)
            continue
        for own in names:
            checkpoint.drop_copy(own, stored)
        value = checkpoint.take(stored, variables[0].shape)
        for variable in variables:
            assign(variable, value)


class _Frequencies:
    """The frequencies of the sinusoids, which transformers stores beside the weights."""

    def __init__(self, width):
        self._width, self.shape = width, (-(-width // 2),)

    def tensor(self):
        return (1e4 ** (-np.arange(0, self._width, 2) / self._width)).astype("float32")


def _store(stored, model):
    copy_weights(stored, model)
    stored.transfer("pos_emb.inv_freq", _Frequencies(model.embedding.hidden_dim))


def fits(model):
    """Return True for a model whose first layer scores distances as Transformer-XL does."""
    first = next(iter(getattr(model.depth, "blocks", ())), None)
    attention = getattr(first, "attention", None)
    return isinstance(getattr(attention, "score", None), scores.Relative)


def options(model):
    """Return the options of `config.json` for a model."""
    found = {**FIXED, **read_options(model, OPTIONS)}
    check_tied(model)
    length = getattr(model.memory, "memory_length", 0)
    pattern = read_part(model, f"{FIRST}.attention.pattern")
    return {
        **found,
        **projection_options(model.head),
        "mem_len": length,
        "clamp_len": model.depth.blocks[0].attention.score.clamp_length or -1,
        "same_length": length > 0 and isinstance(pattern, patterns.Local),
        "untie_r": True,
        "architectures": ["TransfoXLLMHeadModel"],
    }


def _build_alike(config, model):
    """Return a model of the family; a score may leave its width to the heads, if that is it."""
    attention, width = model.depth.blocks[0].attention, model.embedding.hidden_dim
    is_implied = attention.num_heads * attention.key_dim == width
    return _build(config, {}, attention.score.hidden_dim is not None or not is_implied)


FAMILY = Family(
    convert=convert,
    options=options,
    build=_build_alike,
    copy_weights=_store,
    prefix="transformer.",
    heads=("crit.",),
    # Padding is at the end, where no token sees it; only losses ignore a class.
    free=("pad_id", "ignore_class"),
)
