"""Transformer-XL: its names on disk, and the model for them."""

import numpy as np

from keras_attn import depth, layers, memory, models, norms, patterns, residuals, scores
from keras_attn.compat.unallocated import assign, initialize, without_values
from keras_attn.convert.hugging_face.family import Family
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_table

BLOCK = {
    "attention.output": "dec_attn.o_net",
    "attention_residual.norm": "dec_attn.layer_norm",
    "feed_forward.intermediate": "pos_ff.CoreNet.0",
    "feed_forward.output_dense": "pos_ff.CoreNet.3",
    "feed_forward_residual.norm": "pos_ff.layer_norm",
}
BIASES = {"u": "r_w_bias", "v": "r_r_bias"}


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint.

    Overrides are `memory_length`, `clamp_length`, `pattern`, which may be a function of the layer's
    index, `dropout` and `name`.
    """
    checkpoint.strip("transformer.")
    checkpoint.ignore("pos_emb.inv_freq")
    with without_values() as variables:  # which would be drawn at random
        model = _build(checkpoint.config, overrides)
    for index, block in enumerate(model.depth.blocks):
        _copy_block(checkpoint, block, f"layers.{index}.")
    _copy_biases(checkpoint, [block.attention.score for block in model.depth.blocks])
    _copy_embedding(checkpoint, model.embedding)
    _copy_head(checkpoint, model.head)
    initialize(variables)
    return model


def _build(config, overrides):
    width, length = config.size("d_model"), config.number("mem_len", 1600)
    config.require(
        **{"attn_type": 0, "d_embed": width, "ext_len": 0, "pre_lnorm": False},
        **{"sample_softmax": -1, "tie_weight": True, "tie_word_embeddings": True},
    )
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
                    score=scores.Relative(width, clamp_length),
                    pattern=pattern(index) if callable(pattern) else pattern,
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
            head=layers.AdaptiveSoftmax(embedding, _tied_projections(config), ignore_class=-100),
            depth=depth.Stack(block, config.size("n_layer"), name="depth"),
            memory=memory.SegmentMemory(memory_length) if memory_length else None,
            dropout=dropout,
            name=name,
        )

    return build(build_model, {}, overrides)


def _tied_projections(config):
    """Return the argument of an `AdaptiveSoftmax` for the option `tie_projs`."""
    count, shares = len(config.integers("cutoffs")), config.flag("proj_share_all_but_first", True)
    tied = config.get("tie_projs", [False] + [shares] * count)
    for argument, flags in (
        (False, [False] * (1 + count)),
        (True, [True] * (1 + count)),
        ("all_but_first", [False] + [True] * count),
    ):
        if tied == flags:
            return argument
    config.refuse(f"The option tie_projs={tied!r} is not converted.")


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


def _copy_embedding(checkpoint, embedding):
    names = [f"word_emb.emb_layers.{index}.weight" for index in range(len(embedding.bounds))]
    if embedding.div_val > 1:
        for table, name in zip(embedding.tables, names, strict=True):
            copy(checkpoint, table, name)
    else:  # one table of all clusters
        shape = embedding.vocabulary_size, embedding.hidden_dim
        rows = np.split(checkpoint.take(names[0], shape), embedding.cutoffs)
        for table, value in zip(embedding.tables, rows, strict=True):
            assign(table, value)
    for index, projection in enumerate(embedding.projections):
        copy(checkpoint, projection, f"word_emb.emb_projs.{index}", transpose=True)


def _copy_head(checkpoint, head):
    embedding = head.embedding
    sizes = [end - first for first, end in embedding.bounds]
    is_whole = embedding.div_val == 1  # one layer of all clusters
    layers = [embedding.vocabulary_size] if is_whole else sizes
    biases = []
    for index, size in enumerate(layers):
        name = f"crit.out_layers.{index}"
        checkpoint.drop_copy(f"{name}.weight", f"word_emb.emb_layers.{index}.weight")
        biases.append(checkpoint.take(f"{name}.bias", (size,)))
    biases = np.split(np.concatenate(biases), embedding.cutoffs)
    if len(sizes) > 1:
        copy(checkpoint, head.cluster_table, "crit.cluster_weight")
        more = checkpoint.take("crit.cluster_bias", (len(sizes) - 1,))
        biases[0] = np.concatenate([biases[0], more])
    for variable, value in zip(head.biases, biases, strict=True):
        assign(variable, value)
    for index in range(len(embedding.projections)):
        name = f"crit.out_projs.{index}"
        if index < len(head.projections):
            copy(checkpoint, head.projections[index], name, transpose=True)
        else:
            checkpoint.drop_copy(name, f"word_emb.emb_projs.{index}")


FAMILY = Family(convert=convert)
