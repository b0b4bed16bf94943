"""Encoders with decoders: Marian, BART and their kin, of one builder and one table."""

import keras
import numpy as np

from keras_attn import depth, layers, models, norms, positions, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.family import (
    FIRST,
    SIDES,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.families.side_heads import (
    SIDE_HEAD_PREFIXES,
    SIDE_HEADS,
    copy_side_head,
    has_both_sides,
    reads_by_both,
    side_head_options,
    sides_of,
    with_side_head,
)
from keras_attn.convert.hugging_face.heads import (
    CLASSES,
    FEATURES,
    TOKENS,
    has_several_labels,
    head_of,
    last_layer,
    read_head,
)
from keras_attn.convert.hugging_face.weights import (
    Fold,
    LastRows,
    copy,
    copy_blocks,
    copy_part,
    numbers,
)
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of

BLOCK = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.intermediate": "fc1",
    "feed_forward.output_dense": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
CROSS_ATTENTION = {
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
BIAS, POSITIONS = "final_logits_bias", "{}.embed_positions.weight"
SINUSOIDS = "*.embed_positions.weight", "*.embed_positions.weights"
LENGTH = 1024  # default of `max_position_embeddings`
# The path in the model of each option of `config.json`.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "d_model": "embedding.hidden_dim",
    "scale_embedding": "embedding.scaled",
    "dropout": "dropout",
    "attention_dropout": f"{FIRST}.attention.dropout",
}
SIDE_OPTIONS = {
    "layers": "num_layers",
    "attention_heads": "blocks.0.attention.num_heads",
    "ffn_dim": "blocks.0.feed_forward.intermediate_dim",
}


class EncoderDecoderFamily(Family):
    """Encoders with decoders, whose tables and blocks have the same names on disk.

    A family defines `parts`, and these attributes.

    Attributes:
        name: str. Beginning of the names of the classes of transformers.
        architecture: str. Name of the class with logits.
        head_names: dict by head, but that for tokens, of the names of its parts.
        wraps_last: bool. True if the decoder of other heads begins with a text's last token.
        residual: class of the blocks' residuals.
        has_bias: bool. False for a family whose logits have no bias.
        has_two_tables: bool. True for a family that may tie the logits to a table of the targets.
        buffers: patterns of names of constants that files hold.
        activation, is_scaled, start_id: defaults of options that are absent; the start is None for
            the id of padding.
    """

    model_classes = (models.EncoderDecoder,)
    prefix = "model."
    heads = (BIAS, "lm_head", *SIDE_HEAD_PREFIXES)
    free = ("start_id",)  # changes the model only if it is the id of padding
    name = architecture = None
    residual = residuals.PreNorm
    has_bias, has_two_tables = True, False
    buffers = ()
    head_names = {}
    wraps_last = False
    activation, is_scaled, start_id = "gelu", False, None
    end_id = 2  # default of the end of a text

    def parts(self, config):
        """Return the arguments of an `EncoderDecoder` by which a family differs."""
        raise NotImplementedError

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint."""
        checkpoint.ignore(*self.buffers)
        return self.read(checkpoint, overrides, self.parts(checkpoint.config))

    def read(self, checkpoint, overrides, parts):
        """Return the model with all tensors that the checkpoint has left.

        The class without a head, which files of BART name, has all that tied logits need.
        """
        config = checkpoint.config
        head = read_head(checkpoint, self.name, self.head_names, TOKENS)
        checkpoint.strip(self.prefix)
        is_of_tokens = head in (TOKENS, FEATURES)
        if is_of_tokens and not config.flag("tie_word_embeddings", True):
            checkpoint.shape("lm_head.weight")
        tables = _find_tables(checkpoint)
        has_bias = self.has_bias and checkpoint.has(BIAS)
        model = self.build_sides(config, overrides, parts, tables, has_bias)
        if not is_of_tokens:
            if tables[0] != tables[1]:
                config.refuse(
                    f"A {self.name} with {head} whose sides have tables of tokens of their own is "
                    "not converted."
                )
            size, multi_label = None, False
            if head == CLASSES:
                size = checkpoint.shape(f"{last_layer(self.head_names[head])}.weight")[0]
                multi_label = has_several_labels(config, head)
            model = self.add_head(config, model, head, size, multi_label)
        self.copy_tensors(checkpoint, model, tables)
        return model

    def add_head(self, config, sides, head, size, multi_label):
        """Return a model with classes or answers, of the sides of an `EncoderDecoder`."""
        start_id = None if self.wraps_last else sides.start_id
        end_id = config.index("eos_token_id", self.end_id)
        return with_side_head(sides, head, start_id, end_id, size, multi_label)

    def build_sides(self, config, overrides, parts, tables, has_bias):
        """Return an `EncoderDecoder` with the sizes of a configuration.

        Overrides are `pattern`, which is that of the encoder, `dropout` and `name`. Without a bias
        tied logits are products with the target's embedding.

        Args:
            config: a `Config`.
            overrides: dict.
            parts: dict, as from the method of that name.
            tables: names of the tables of the source, the target and the logits.
            has_bias: bool. True if the logits have a bias.
        """
        source, target, logits = tables
        width, is_scaled = config.size("d_model"), config.flag("scale_embedding", self.is_scaled)
        activation = config.activation("activation_function", self.activation)
        pad_id = config.index("pad_token_id", self.pad_id)

        def stack(side, pattern, dropout):
            num_heads = config.size(f"{side}_attention_heads")

            def attention(pattern):
                return layers.MultiHeadAttention(
                    num_heads,
                    head_size(width, num_heads),
                    pattern=pattern,
                    dropout=config.number("attention_dropout", 0.0),
                )

            def block(index):
                return layers.TransformerBlock(
                    attention(pattern_of(pattern, index)),
                    layers.FeedForward(config.size(f"{side}_ffn_dim"), activation),
                    cross_attention=attention("dense") if side == "decoder" else None,
                    residual=self.residual(norm=norms.LayerNorm(1e-5)),
                    dropout=dropout,
                )

            return depth.Stack(block, config.size(f"{side}_layers"), name=side)

        def build_model(
            pattern="dense",
            dropout=config.number("dropout", 0.1),
            name=config.get("model_type"),
        ):
            size = config.size("vocab_size")
            embedding = other = layers.TokenEmbedding(size, width, is_scaled, pad_id)
            if source != target:
                size = config.size("decoder_vocab_size", size)
                other = layers.TokenEmbedding(size, width, is_scaled, pad_id)
            return models.EncoderDecoder(
                embedding=embedding,
                encoder=stack("encoder", pattern, dropout),
                decoder=stack("decoder", "causal", dropout),
                dropout=dropout,
                head=_build_head(other, logits == target, has_bias),
                target_embedding=other,
                start_id=config.index(
                    "decoder_start_token_id", pad_id if self.start_id is None else self.start_id
                ),
                name=name,
                **parts,
            )

        return build(build_model, {}, overrides)

    def build(self, config, model):
        sides, tables = sides_of(model), self.tables_of(model)
        has_bias = sides is model and _head_bias(model) is not None
        built = self.build_sides(config, {}, self.parts_of(sides, config), tables, has_bias)
        if sides is model:
            return built
        multi_label = getattr(model, "multi_label", False)
        size = getattr(model, "num_classes", None)
        return self.add_head(config, built, head_of(model), size, multi_label)

    def tables_of(self, model):
        """Return the names by which the tables of a model are written.

        They are one of all, one of each side, or one of each side and one of the logits.
        """
        if reads_by_both(model):
            return ("shared",) * 3
        is_tied = not isinstance(model.head, keras.layers.Dense)
        if is_tied and model.embedding is model.target_embedding:
            return ("shared",) * 3
        source, target = (f"{side}.embed_tokens" for side in SIDES)
        return source, target, target if is_tied and self.has_two_tables else "lm_head"

    def parts_of(self, model, config):
        """Return the `parts` of a model that is to be written."""
        return self.parts(config)

    def copy_weights(self, checkpoint, model):
        self.copy_tensors(checkpoint, model, self.tables_of(model))

    def copy_tensors(self, checkpoint, model, tables):
        """Copy all tensors, with the names of the `tables`."""
        sides = sides_of(model)
        copy_part(checkpoint, sides, "embedding", tables[0])
        if sides is model:
            self.copy_logits(checkpoint, model, tables)
        else:
            copy_side_head(checkpoint, model)
        for side in SIDES:
            stack = getattr(sides, side)
            copy_blocks(checkpoint, stack.blocks, BLOCK, f"{side}.layers.{{}}.")
            if stack.norm is not None:
                copy_part(checkpoint, stack, "norm", f"{side}.layer_norm")
        copy_blocks(checkpoint, sides.decoder.blocks, CROSS_ATTENTION, "decoder.layers.{}.")

    def copy_logits(self, checkpoint, model, tables):
        """Copy the table of the targets, and that of the logits with their bias."""
        source, target, logits = tables
        if target != source:
            copy_part(checkpoint, model, "target_embedding", target)
        if isinstance(model.head, keras.layers.Dense):
            copy(checkpoint, model.head.kernel, f"{logits}.weight", transpose=True)
        elif logits != target:
            copy_part(checkpoint, model, "target_embedding", logits)
        if "shared" not in tables and not self.has_two_tables:  # transformers stores it, unused
            table = model.embedding.table
            checkpoint.transfer_constant("shared.weight", table.shape, lambda _: numbers(table))
        shape = 1, model.target_embedding.vocabulary_size
        if (bias := _head_bias(model)) is not None:
            checkpoint.transfer(BIAS, Fold([bias], shape))
        elif self.has_bias:
            checkpoint.transfer_constant(BIAS, shape)

    def options(self, model):
        both = sides_of(model)
        paths = {
            f"{side}_{option}": f"{side}.{path}"
            for side in SIDES
            for option, path in SIDE_OPTIONS.items()
        }
        activation = activation_name(read_part(both, f"{FIRST}.feed_forward.activation"))
        head = {"architectures": [self.architecture]}
        if both is not model:
            head = side_head_options(model, self.name)
        return {
            **read_options(both, {**OPTIONS, **paths}),
            "activation_function": activation,
            "is_encoder_decoder": True,
            "tie_word_embeddings": "lm_head" not in self.tables_of(model),
            **head,
            **self.more_options(both),
        }

    def more_options(self, model):
        """Return the options that other families lack."""
        return {}


class Marian(EncoderDecoderFamily):
    """Marian, the models of OPUS-MT: norms after the sublayers, and positions by a formula."""

    name, architecture = "Marian", "MarianMTModel"
    residual = residuals.PostNorm
    has_two_tables = True
    buffers = SINUSOIDS

    def parts(self, config):
        config.require(
            normalize_before=False, add_final_layer_norm=False, normalize_embedding=False
        )
        return sinusoidal_positions(config)

    def more_options(self, model):
        return {
            "share_encoder_decoder_embeddings": model.embedding is model.target_embedding,
            "decoder_vocab_size": model.target_embedding.vocabulary_size,
        }


class Bart(EncoderDecoderFamily):
    """BART: norms after the sublayers, learned positions, and a norm after them."""

    name, architecture = "Bart", "BartForConditionalGeneration"
    residual = residuals.PostNorm
    head_names = SIDE_HEADS
    pad_id, start_id = 1, 2
    model_classes = models.EncoderDecoder, models.MaskedLanguageModel, models.Classifier
    first_row = 2  # of the tables of positions, that of position 0

    def fits(self, model):
        return has_both_sides(model) and sides_of(model).norm is not None

    def parts(self, config):
        config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
        return {**learned_positions(config), "norm": norms.LayerNorm(1e-5)}

    def copy_tensors(self, checkpoint, model, tables):
        super().copy_tensors(checkpoint, model, tables)
        sides = sides_of(model)
        copy_positions(checkpoint, sides, self.first_row)
        for side, norm in zip(SIDES, (sides.norm, sides.target_norm), strict=True):
            copy_part(checkpoint, norm, "", f"{side}.layernorm_embedding")

    def more_options(self, model):
        return {"max_position_embeddings": read_part(model, "position.max_length")}


class MBart(Bart):
    """mBART: BART with norms before the sublayers; targets begin with a language, or bos."""

    name, architecture = "MBart", "MBartForConditionalGeneration"
    wraps_last = True
    residual = residuals.PreNorm
    start_id = 0

    def fits(self, model):
        return super().fits(model) and is_pre_norm(sides_of(model))

    def parts(self, config):
        return {**learned_positions(config), "norm": norms.LayerNorm(1e-5)}


class M2M100(EncoderDecoderFamily):
    """M2M100 and NLLB: norms before the sublayers, and sinusoids from the row after padding's."""

    name, architecture = "M2M100", "M2M100ForConditionalGeneration"
    has_bias = False
    buffers = SINUSOIDS
    activation, is_scaled, pad_id, start_id = "relu", True, 1, 2

    def fits(self, model):
        return getattr(model.position, "layout", None) == "tensor2tensor"

    def parts(self, config):
        pad_id = config.index("pad_token_id", self.pad_id)
        if config.index("decoder_start_token_id", self.start_id) == pad_id:
            config.refuse(
                "The option decoder_start_token_id is that of padding, which has no position in "
                "this family."
            )
        sinusoids = positions.Sinusoidal("tensor2tensor", first_position=pad_id + 1)
        return {"position": sinusoids}


class Pegasus(EncoderDecoderFamily):
    """Pegasus: norms before the sublayers; its stored positions are sinusoids, or are learned."""

    name, architecture = "Pegasus", "PegasusForConditionalGeneration"
    pad_id, start_id = 0, 0

    def fits(self, model):
        return is_pre_norm(model)

    def convert(self, checkpoint, overrides):
        checkpoint.strip(self.prefix)
        names = [POSITIONS.format(side) for side in SIDES]
        if all(checkpoint.is_constant(name, _sinusoids) for name in names):
            checkpoint.ignore(*names)
            return self.read(checkpoint, overrides, sinusoidal_positions(checkpoint.config))
        return self.read(checkpoint, overrides, learned_positions(checkpoint.config))

    def parts_of(self, model, config):
        is_learned = isinstance(model.position, positions.Learned)
        return learned_positions(config) if is_learned else sinusoidal_positions(config)

    def copy_tensors(self, checkpoint, model, tables):
        super().copy_tensors(checkpoint, model, tables)
        if isinstance(model.position, positions.Learned):
            return copy_positions(checkpoint, model)
        shape = (
            checkpoint.config.size("max_position_embeddings", LENGTH),
            model.embedding.hidden_dim,
        )
        for side in SIDES:
            checkpoint.transfer_constant(POSITIONS.format(side), shape, _sinusoids)

    def more_options(self, model):
        return {"max_position_embeddings": model.max_length or LENGTH}


def is_pre_norm(model):
    """Return True if the sublayers of a model have norms of their inputs, and so a last one."""
    return model.encoder.norm is not None


def sinusoidal_positions(config):
    """Return the positions of Marian and Pegasus, by a formula."""
    if config.size("d_model") % 2:
        config.refuse("An odd d_model, of which one more half is sines, is not converted.")
    return {"position": positions.Sinusoidal(layout="concat")}


def learned_positions(config):
    """Return the positions of both sides, a table of each."""
    length = config.size("max_position_embeddings", LENGTH)
    return {"position": positions.Learned(length), "source_position": positions.Learned(length)}


def copy_positions(checkpoint, model, first_row=0):
    """Copy the tables of positions, which are stored after rows of no position."""
    for side, position in zip(SIDES, (model.source_position, model.position), strict=True):
        rows = LastRows(position.table, first_row)
        checkpoint.transfer(POSITIONS.format(side), rows)


def _sinusoids(shape):
    """Return the vectors of the first positions, as `Sinusoidal(layout="concat")` adds them."""
    length, width = shape
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width - 1, 2) / width)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(waves, ((0, 0), (0, width % 2)))


def _build_head(embedding, is_tied, has_bias):
    """Return the layer of logits; None for those of the embedding."""
    if not is_tied:
        size = embedding.vocabulary_size
        return keras.layers.Dense(size, use_bias=has_bias, dtype="float32", name="head")
    return layers.TokenHead(embedding) if has_bias else None


def _head_bias(model):
    """Return the variable of the logits' bias; None without one."""
    return None if model.head is None else model.head.bias


def _find_tables(checkpoint):
    """Return the names of the tables of the source, the target and the logits.

    Equal tables have one name. A shared table that neither side nor the logits use is left out.
    """

    def stored(*names):
        return next((name for name in names if checkpoint.has(f"{name}.weight")), names[-1])

    def are_equal(name, other):
        return name == other or checkpoint.drop_if_equal(f"{name}.weight", f"{other}.weight")

    source, target = (stored(f"{side}.embed_tokens", "shared") for side in SIDES)
    logits = stored("lm_head", "shared", target)
    target = source if are_equal(target, source) else target
    logits = target if are_equal(logits, target) else logits
    if "shared" not in (source, target, logits):
        checkpoint.ignore("shared.weight")
    return source, target, logits
