"""Decoders of long texts: Transformer-XL, with its adaptive softmax, and the Reformer."""

import math

import keras
import numpy as np

from keras_attn import (
    depth,
    layers,
    memory,
    models,
    norms,
    patterns,
    positions,
    residuals,
    scores,
)
from keras_attn.compat.unallocated import assign, initialize
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.causal_family import FIRST
from keras_attn.convert.hugging_face.families.family import Family, build, read_options, read_part
from keras_attn.convert.hugging_face.weights import (
    Fold,
    copy,
    copy_projection,
    copy_table,
    numbers,
)
from keras_attn.models.papers.reformer import reformer_block
from keras_attn.models.papers.transformer_xl import relative_stack
from keras_attn.ops.checks import check_that
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.per_layer import pattern_of

# Names of an adaptive embedding and its softmax.
TABLE, PROJECTION = "word_emb.emb_layers.{}.weight", "word_emb.emb_projs.{}"
HEAD_TABLE, HEAD_PROJECTION = "crit.out_layers.{}.weight", "crit.out_projs.{}"


class TransformerXL(Family):
    """Transformer-XL."""

    model_classes = (models.CausalLanguageModel,)
    prefix = "transformer."
    heads = ("crit.",)
    # Padding is at the end, where no token sees it; only losses ignore a class.
    free = ("pad_id", "ignore_class")
    block = {
        "attention.output": "dec_attn.o_net",
        "attention_residual.norm": "dec_attn.layer_norm",
        "feed_forward.intermediate": "pos_ff.CoreNet.0",
        "feed_forward.output_dense": "pos_ff.CoreNet.3",
        "feed_forward_residual.norm": "pos_ff.layer_norm",
    }
    biases = {"u": "r_w_bias", "v": "r_r_bias"}
    # Options with the one value that is converted.
    fixed = {"attn_type": 0, "pre_lnorm": False, "sample_softmax": -1, "tie_word_embeddings": True}
    # The path in the model of each option of `config.json`.
    paths = {
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

    def convert(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint.

        Overrides are `memory_length`, `clamp_length`, `pattern`, which may be a function of the
        layer's index, `dropout` and `name`.
        """
        checkpoint.strip("transformer.")
        checkpoint.ignore("pos_emb.inv_freq")
        model = self.read_model(checkpoint.config, overrides)
        drop_copies(checkpoint, model.head)
        self.copy_tensors(checkpoint, model)
        return model

    def read_model(self, config, overrides, has_width=True):
        """Return a model; without `has_width` its scores take theirs from the size of the heads."""
        width, length = config.size("d_model"), config.number("mem_len", 1600)
        config.require(**self.fixed, d_embed=width, ext_len=0, tie_weight=True)
        cutoffs, has_same_length = config.integers("cutoffs"), config.flag("same_length", True)
        if has_same_length and not length:
            config.refuse(
                "The option same_length=True is not converted without a `mem_len` above 0."
            )
        clamp = config.integer("clamp_len", 1000)
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
                depth=relative_stack(
                    config.size("n_layer"),
                    config.size("n_head"),
                    config.size("d_head"),
                    config.size("d_inner"),
                    dropout,
                    config.number("dropatt", 0.0),
                    clamp_length,
                    width if has_width else None,
                    pattern,
                    residuals.PostNorm(norm=norm),
                ),
                memory=memory.SegmentMemory(memory_length) if memory_length else None,
                dropout=dropout,
                name=name,
            )

        return build(build_model, {}, overrides)

    def copy_tensors(self, checkpoint, model):
        """Copy the tensors of a model, but the frequencies."""
        for index, block in enumerate(model.depth.blocks):
            self._copy_block(checkpoint, block, f"layers.{index}.")
        self._copy_biases(checkpoint, [block.attention.score for block in model.depth.blocks])
        copy_embedding(checkpoint, model.embedding)
        copy_head(checkpoint, model.head)

    def _copy_block(self, checkpoint, block, prefix):
        copy_table(checkpoint, block, self.block, prefix)
        attention, prefix = block.attention, f"{prefix}dec_attn."
        kernels = [attention.query_kernel, attention.key_kernel, attention.value_kernel]
        width, num_heads, size = kernels[0].shape
        outputs = num_heads * size
        checkpoint.transfer(f"{prefix}qkv_net.weight", Fold(kernels, (3 * outputs, width), (1, 0)))
        distances = Fold([attention.score.kernel], (outputs, width), (1, 0))
        checkpoint.transfer(f"{prefix}r_net.weight", distances)

    def _copy_biases(self, checkpoint, scores):
        """Copy u and v of each layer, or those of all: training unties them."""
        is_untied = checkpoint.config.flag("untie_r", True)
        for name, stored in self.biases.items():
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

    def copy_weights(self, stored, model):
        self.copy_tensors(stored, model)
        stored.transfer("pos_emb.inv_freq", _Frequencies(model.embedding.hidden_dim))

    def fits(self, model):
        """Return True for a model whose first layer scores distances as Transformer-XL does."""
        first = next(iter(getattr(model.depth, "blocks", ())), None)
        attention = getattr(first, "attention", None)
        return isinstance(getattr(attention, "score", None), scores.Relative)

    def options(self, model):
        options = {**self.fixed, **read_options(model, self.paths)}
        check_tied(model)
        length = getattr(model.memory, "memory_length", 0)
        pattern = read_part(model, f"{FIRST}.attention.pattern")
        return {
            **options,
            **projection_options(model.head),
            "mem_len": length,
            "clamp_len": model.depth.blocks[0].attention.score.clamp_length or -1,
            "same_length": length > 0 and isinstance(pattern, patterns.Local),
            "untie_r": True,
            "architectures": ["TransfoXLLMHeadModel"],
        }

    def build(self, config, model):
        """Return a model of the family; where the heads have its width, scores may leave it out."""
        attention, width = model.depth.blocks[0].attention, model.embedding.hidden_dim
        is_implied = attention.num_heads * attention.key_dim == width
        return self.read_model(config, {}, attention.score.hidden_dim is not None or not is_implied)


class _Frequencies:
    """The frequencies of the sinusoids, which transformers stores beside the weights."""

    def __init__(self, width):
        self._width, self.shape = width, (-(-width // 2),)

    def tensor(self):
        return (1e4 ** (-np.arange(0, self._width, 2) / self._width)).astype("float32")


def tied_projections(config):
    """Return the argument of an `AdaptiveSoftmax` for the option `tie_projs`."""
    count, shares = len(config.integers("cutoffs")), config.flag("proj_share_all_but_first", True)
    tied = config.get("tie_projs", [False] + [shares] * count)
    for argument in (False, True, "all_but_first"):
        if tied == _flags(argument, count):
            return argument
    config.refuse(f"The option tie_projs={tied!r} is not converted.")


def projection_options(head):
    """Return the options of `config.json` for the projections of an `AdaptiveSoftmax`."""
    return {"tie_projs": _flags(head.tied_projections, len(head.embedding.cutoffs))}


def _flags(argument, count):
    """Return for each cluster whether its projection is shared, with `count` cutoffs."""
    return [argument is True] + [argument is not False] * count


def check_tied(model):
    """Refuse a model whose head is no `AdaptiveSoftmax` of its embedding."""
    read_part(model, "embedding.cutoffs")
    is_tied = (
        isinstance(model.head, layers.AdaptiveSoftmax) and model.head.embedding is model.embedding
    )
    check_that(is_tied, "an `AdaptiveSoftmax` of the model's embedding", head=model.head)


def drop_copies(checkpoint, head):
    """Leave out stored copies of tensors that the softmax shares with the embedding."""
    embedding = head.embedding
    for index in range(_num_tables(embedding)):
        checkpoint.drop_copy(HEAD_TABLE.format(index), TABLE.format(index))
    for index in range(len(head.projections), len(embedding.projections)):
        checkpoint.drop_copy(HEAD_PROJECTION.format(index), PROJECTION.format(index))


def copy_embedding(checkpoint, embedding):
    """Copy the tensors of an `AdaptiveEmbedding`, in either direction."""
    for index, tables in enumerate(_by_table(embedding, embedding.tables)):
        checkpoint.transfer(TABLE.format(index), _Rows([(x, x.shape[0]) for x in tables]))
    for index, projection in enumerate(embedding.projections):
        copy(checkpoint, projection, PROJECTION.format(index), transpose=True)


def copy_head(checkpoint, head):
    """Copy the tensors of an `AdaptiveSoftmax` that the embedding lacks, in either direction."""
    embedding, first = head.embedding, head.biases[0]
    initialize(head.biases)  # two tensors fill the first one
    words = [(bias, end - start) for bias, (start, end) in zip(head.biases, embedding.bounds)]
    for index, parts in enumerate(_by_table(embedding, words)):
        checkpoint.transfer(f"crit.out_layers.{index}.bias", _Rows(parts))
    if count := len(embedding.cutoffs):
        copy(checkpoint, head.cluster_table, "crit.cluster_weight")
        checkpoint.transfer("crit.cluster_bias", _Rows([(first, count)], embedding.cutoffs[0]))
    for index, projection in enumerate(head.projections):
        copy(checkpoint, projection, HEAD_PROJECTION.format(index), transpose=True)


def _num_tables(embedding):
    """Return the number of tables on disk: where all are equally wide, there is one."""
    return 1 if embedding.div_val == 1 else len(embedding.bounds)


def _by_table(embedding, parts):
    """Return the parts of all clusters as lists, one for each table on disk."""
    return [parts] if _num_tables(embedding) == 1 else [[part] for part in parts]


class _Rows:
    """One tensor of the rows of several variables.

    Args:
        parts: list of pairs of a variable and its number of rows in the tensor.
        start: int. The first of these rows in each variable.
    """

    def __init__(self, parts, start=0):
        self.variables, self._counts = zip(*parts, strict=True)
        self._start = start
        self.shape = sum(self._counts), *self.variables[0].shape[1:]

    def assign(self, tensor):
        """Assign the rows of a tensor to the variables, whose other rows stay as they are."""
        for variable, rows, part in self._with_rows(tensor):
            if part.shape != tuple(variable.shape):
                whole = numbers(variable)
                whole[rows] = part
                part = whole
            assign(variable, part)

    def tensor(self):
        """Return the rows of the variables, float32."""
        return np.concatenate([numbers(x)[rows] for x, rows in self._slices()])

    def _slices(self):
        for variable, count in zip(self.variables, self._counts, strict=True):
            yield variable, slice(self._start, self._start + count)

    def _with_rows(self, tensor):
        parts = np.split(tensor, np.cumsum(self._counts)[:-1])
        for (variable, rows), part in zip(self._slices(), parts, strict=True):
            yield variable, rows, part


class Reformer(Family):
    """The Reformer, as a causal model."""

    model_classes = (models.CausalLanguageModel,)
    prefix = "reformer."
    heads = ("lm_head.",)
    requires = {"is_decoder": True}
    free = ("pad_id",)  # padding is at the end, where no token sees it
    pad_id = 0  # with which transformers fills the last chunk
    # Options with the one value that is converted.
    fixed = {
        "lsh_num_chunks_before": 1,
        "lsh_num_chunks_after": 0,
        "local_num_chunks_after": 0,
        "is_decoder": True,
        "tie_word_embeddings": False,
    }
    kinds = {"local": patterns.BlockLocal1D, "lsh": patterns.LSH}
    block = {
        "attention_residual.norm": "attention.layer_norm",
        "attention.value": "attention.self_attention.value",
        "attention.output": "attention.output.dense",
        "feed_forward_residual.norm": "feed_forward.layer_norm",
        "feed_forward.intermediate": "feed_forward.dense.dense",
        "feed_forward.output_dense": "feed_forward.output.dense",
    }
    local = {
        "attention.query": "attention.self_attention.query",
        "attention.key": "attention.self_attention.key",
    }
    embeddings = {"embedding": "embeddings.word_embeddings", "depth.norm": "encoder.layer_norm"}
    position_names = "embeddings.position_embeddings"
    # The path in the model of each option of `config.json`, of all layers and by their kind.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "hidden_size": "embedding.hidden_dim",
        "num_attention_heads": f"{FIRST}.attention.num_heads",
        "attention_head_size": f"{FIRST}.attention.key_dim",
        "feed_forward_size": f"{FIRST}.feed_forward.intermediate_dim",
        "layer_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
        "hidden_dropout_prob": "dropout",
        "max_position_embeddings": "position.max_length",
    }
    kind_paths = {
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

    def convert(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint.

        Overrides are `pattern`, which may be a function of the layer's index, `dropout` and `name`.
        """
        checkpoint.strip("reformer.")
        checkpoint.drop_copy("lm_head.decoder.bias", "lm_head.bias")
        model = self.read_model(checkpoint.config, overrides)
        self.copy_weights(checkpoint, model)
        return model

    def read_model(self, config, overrides):
        """Return a `CausalLanguageModel` with the sizes of a configuration."""
        if not config.flag("is_decoder"):
            config.refuse("The option is_decoder=False is not converted, only True.")
        config.require(**self.fixed)
        kinds = config.strings("attn_layers")
        if not kinds or not self.kinds.keys() >= set(kinds):
            config.refuse(f"The option attn_layers={kinds!r} is not converted.")
        position = self._position(config)
        chunk = config.number("chunk_size_feed_forward", 0)

        def own_pattern(index):
            return self._pattern(config, kinds[index])

        def build_model(
            pattern=own_pattern, dropout=config.number("hidden_dropout_prob", 0.05), name="reformer"
        ):
            def block(index):
                kind = kinds[index]
                return reformer_block(
                    config.size("num_attention_heads"),
                    config.size("attention_head_size"),
                    config.size("feed_forward_size"),
                    config.activation("hidden_act", "relu"),
                    ceil_div(position.max_length, chunk) if chunk else 1,
                    pattern_of(pattern, index),
                    kind == "lsh",
                    dropout,
                    config.number(f"{kind}_attention_probs_dropout_prob", 0.0),
                    residuals.PreNorm(norm=norms.LayerNorm(config.number("layer_norm_eps", 1e-12))),
                )

            return models.CausalLanguageModel(
                embedding=layers.TokenEmbedding(
                    config.size("vocab_size"),
                    config.size("hidden_size"),
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

    def _position(self, config):
        if config.flag("axial_pos_embds", True):
            return positions.Axial(
                *map(config.integers, ("axial_pos_shape", "axial_pos_embds_dim"))
            )
        return positions.Learned(config.size("max_position_embeddings"))

    def _pattern(self, config, kind):
        """Return the pattern of a local layer, or of one by hashes."""
        length = config.size(f"{kind}_attn_chunk_length")
        if kind == "local":
            before = config.number("local_num_chunks_before", 1)
            return patterns.BlockLocal1D(length, lookback=before * length)
        num_buckets = config.get("num_buckets")
        if num_buckets is not None and type(num_buckets) is not int:
            num_buckets = math.prod(config.integers("num_buckets"))
        return patterns.LSH(
            length,
            config.size("num_hashes", 1),
            num_buckets,
            across_buckets=True,
            wrap=True,
        )

    def build(self, config, model):
        return self.read_model(config, {})

    def copy_weights(self, checkpoint, model):
        copy_table(checkpoint, model, self.embeddings)
        self._copy_positions(checkpoint, model.position)
        for index, block in enumerate(model.depth.blocks):
            self._copy_block(checkpoint, block, f"encoder.layers.{index}.")
        copy(checkpoint, model.head.kernel, "lm_head.decoder.weight", transpose=True)
        copy(checkpoint, model.head.bias, "lm_head.bias")
        # Version 5 adds this one alone, and draws it at random where it is missing.
        bias = Fold([model.head.bias], tuple(model.head.bias.shape))
        checkpoint.transfer_copy("lm_head.decoder.bias", bias)

    def _copy_positions(self, checkpoint, position):
        if isinstance(position, positions.Learned):
            return copy(checkpoint, position.table, f"{self.position_names}.embedding.weight")
        for axis, table in enumerate(position.tables):
            length, width = table.shape
            shape = [1] * len(position.tables)
            shape[axis] = length
            checkpoint.transfer(
                f"{self.position_names}.weights.{axis}", Fold([table], (*shape, width))
            )

    def _copy_block(self, checkpoint, block, prefix):
        copy_table(checkpoint, block, self.block, prefix)
        if not block.attention.shares_query:
            copy_table(checkpoint, block, self.local, prefix)
        else:  # whose queries are not divided by the root of their size
            name = f"{prefix}attention.self_attention.query_key"
            scale = block.attention.key_dim**0.5
            copy_projection(checkpoint, block.attention, "query", name, scale=scale)

    def fits(self, model):
        """Return True for a model of reversible layers."""
        return isinstance(model.depth, depth.Reversible)

    def options(self, model):
        """Return the options of `config.json` for a model.

        Chunks of the feed-forward layers, which change no number, are left out: with them
        transformers refuses texts whose length they do not divide.
        """
        kinds = [self._kind(model, index) for index in range(read_part(model, "depth.num_layers"))]
        options = {
            **read_options(model, self.paths),
            **self.fixed,
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            "attn_layers": kinds,
            "axial_pos_embds": isinstance(model.position, positions.Axial),
            "architectures": ["ReformerModelWithLMHead"],
        }
        if options["axial_pos_embds"]:
            options["axial_pos_shape"] = list(model.position.shape)
            options["axial_pos_embds_dim"] = list(model.position.dims)
        for kind in sorted(set(kinds)):
            attention = model.depth.blocks[kinds.index(kind)].attention
            options |= read_options(attention, self.kind_paths[kind])
            if kind == "local":
                pattern = attention.pattern
                options["local_num_chunks_before"] = pattern.lookback // pattern.block_length
            else:
                options["num_buckets"] = attention.pattern.num_buckets
        return options

    def _kind(self, model, index):
        """Return the kind of a layer in `attn_layers`."""
        path = f"depth.blocks.{index}.attention.pattern"
        pattern = read_part(model, path)
        for kind, cls in self.kinds.items():
            if type(pattern) is cls:
                return kind
        raise ValueError(
            f"`model` fits no family of checkpoints: `model.{path}` must be a `BlockLocal1D` or an "
            f"`LSH`, as in a model of reformer. Received: model.{path}={pattern!r}."
        )
