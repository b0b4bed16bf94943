"""T5 1.0 and 1.1, FLAN-T5, ByT5, mT5, UMT5 and the Switch Transformer."""

import math

import numpy as np

from keras_attn import layers, models, scores
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
    TAGS,
    TOKENS,
    has_several_labels,
    head_of,
    head_options,
    last_layer,
    named_head,
    read_head,
    with_head,
)
from keras_attn.convert.hugging_face.weights import (
    Fold,
    SharedTable,
    copy,
    copy_part,
    copy_table,
    numbers,
)
from keras_attn.models.papers.decoder import untied_head
from keras_attn.models.papers.t5 import scaled_normal, text_to_text

LAYERS = {"encoder": "num_layers", "decoder": "num_decoder_layers"}
DISTANCES = "{}.block.{}.layer.0.SelfAttention.relative_attention_bias.weight"


class T5(Family):
    """T5 1.0 and 1.1, FLAN-T5 and ByT5, with a table of distances for each side."""

    model_classes = models.EncoderDecoder, models.MaskedLanguageModel, models.Classifier
    name = "T5"  # in those of classes
    heads = ("classifier", *SIDE_HEAD_PREFIXES)
    inner_prefix = "transformer."  # of the classes with tags and with classes
    head_names = {TAGS: {"head": "classifier"}}  # of an encoder alone
    side_head_names = SIDE_HEADS  # of both sides
    free = ("start_id",)  # changes the model only if it is the id of padding
    table = "shared.weight"
    feed_forward = "relu"  # default of the option `feed_forward_proj`
    self_attention = {
        "attention.query": "layer.0.SelfAttention.q",
        "attention.key": "layer.0.SelfAttention.k",
        "attention.value": "layer.0.SelfAttention.v",
        "attention.output": "layer.0.SelfAttention.o",
        "attention_residual.norm": "layer.0.layer_norm",
    }
    cross_attention = {
        "cross_attention.query": "layer.1.EncDecAttention.q",
        "cross_attention.key": "layer.1.EncDecAttention.k",
        "cross_attention.value": "layer.1.EncDecAttention.v",
        "cross_attention.output": "layer.1.EncDecAttention.o",
        "cross_attention_residual.norm": "layer.1.layer_norm",
    }
    plain = {"feed_forward.intermediate": "wi", "feed_forward.output_dense": "wo"}
    gated = {
        "feed_forward.gate": "wi_0",
        "feed_forward.intermediate": "wi_1",
        "feed_forward.output_dense": "wo",
    }
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "d_model": "embedding.hidden_dim",
        "num_layers": "encoder.num_layers",
        "num_decoder_layers": "decoder.num_layers",
        "num_heads": f"{FIRST}.attention.num_heads",
        "d_kv": f"{FIRST}.attention.key_dim",
        "dropout_rate": "dropout",
        "relative_attention_num_buckets": f"{FIRST}.attention.score.terms.1.num_buckets",
        "relative_attention_max_distance": f"{FIRST}.attention.score.terms.1.max_distance",
        "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def convert(self, checkpoint, overrides):
        """Return the model of a checkpoint: of both sides, or an encoder with tags or features.

        Each layer gets a copy of the table of distances, which T5 shares: training unties them.
        """
        config, tied, size = checkpoint.config, True, None
        if checkpoint.has(f"{self.inner_prefix}encoder.final_layer_norm.weight"):
            checkpoint.strip(self.inner_prefix)
        has_decoder = checkpoint.has("decoder.final_layer_norm.weight")
        has_decoder = has_decoder or named_head(config) == TOKENS
        head = self.read_head(checkpoint, has_decoder)
        if head in (TAGS, CLASSES):
            names = {**self.head_names, **self.side_head_names}[head]
            size = checkpoint.shape(f"{last_layer(names)}.weight")[0]
        for side in SIDES:
            checkpoint.drop_copy(f"{side}.embed_tokens.weight", self.table)
        if has_decoder:
            pattern = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
            checkpoint.ignore(pattern)
        if head == TOKENS:
            tied = checkpoint.drop_if_equal("lm_head.weight", self.table)
        model = self.build_sides(config, tied, overrides)
        multi_label = has_several_labels(config, head)
        model = self.add_head(config, model, head, size, multi_label)
        self.copy_weights(checkpoint, model)
        return model

    def read_head(self, checkpoint, has_decoder):
        """Return the head of a checkpoint, of both sides or of an encoder alone."""
        if not has_decoder:
            return read_head(checkpoint, self.name, self.head_names, FEATURES)
        name = f"{self.name} with a decoder"
        head = read_head(checkpoint, name, self.side_head_names, TOKENS)
        if head == FEATURES and not checkpoint.config.flag("tie_word_embeddings", True):
            checkpoint.shape("lm_head.weight")
        return TOKENS if head == FEATURES else head

    def add_head(self, config, sides, head, size, multi_label):
        """Return a model of the parts of an `EncoderDecoder`, with a head."""
        if head not in self.side_head_names:
            return with_head(sides, head, size)
        end_id = config.index("eos_token_id", 1)
        return with_side_head(sides, head, sides.start_id, end_id, size, multi_label)

    def build_sides(self, config, tied, overrides):
        """Return the model of a configuration."""
        arguments = {**self.side_arguments(config), "tied": tied}
        return build(models.t5, arguments, overrides)

    def side_arguments(self, config):
        """Return the arguments of `models.t5` but those of its head."""
        has_gates, activation = self._feed_forward(config)
        return {
            **self.arguments(config),
            "intermediate_dim": config.size("d_ff"),
            "gated": has_gates,
            "activation": activation,
        }

    def arguments(self, config):
        """Return the arguments of `models.t5` but those of its feed-forward layers and its head."""
        num_layers = config.size("num_layers")
        return {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": num_layers,
            "num_decoder_layers": config.size("num_decoder_layers", num_layers),
            "num_heads": config.size("num_heads"),
            "hidden_dim": config.size("d_model"),
            "dropout": config.number("dropout_rate", 0.1),
            "key_dim": config.size("d_kv"),
            "num_buckets": config.size("relative_attention_num_buckets", 32),
            "max_distance": config.size("relative_attention_max_distance", 128),
            "epsilon": config.number("layer_norm_epsilon", 1e-6),
            "pad_id": config.index("pad_token_id", 0),
            "start_id": config.index("decoder_start_token_id", 0),
        }

    def _feed_forward(self, config):
        """Return whether feed-forward layers have gates, and their activation.

        `feed_forward_proj` is such as "relu" or "gated-silu". Where the file has `is_gated_act` and
        `dense_act_fn`, these decide.
        """
        kind = config.get("feed_forward_proj", self.feed_forward)
        *before, name = kind.split("-") if isinstance(kind, str) else ("", "")
        if before not in ([], ["gated"]):
            config.refuse(
                f"The option feed_forward_proj={kind!r} is not converted, only the name of an "
                "activation, alone or after 'gated-'."
            )
        name = "gelu_new" if kind == "gated-gelu" else name
        has_gates = config.flag("is_gated_act", bool(before))
        return has_gates, config.activation("dense_act_fn", name)

    def is_scaled(self, config):
        """Return True if the decoder's outputs are divided by the root of the width."""
        return config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))

    def fits(self, model):
        """Return True for a model whose positions are all biases of distances."""
        if has_both_sides(model):
            return sides_of(model).position is None
        block = next(iter(getattr(model.encoder, "blocks", ())), None)
        score = getattr(getattr(block, "attention", None), "score", None)
        has_bias = isinstance(getattr(score, "terms", [None])[-1], scores.T5Bias)
        return has_bias and model.position is None

    def build(self, config, model):
        if isinstance(model, models.EncoderDecoder):
            return self.build_sides(config, model.head is None, {})
        sides, head = self.build_sides(config, True, {}), self.written_head(model)
        size = {CLASSES: getattr(model, "num_classes", None), TAGS: getattr(model.head, "units", 1)}
        multi_label = getattr(model, "multi_label", False)
        return self.add_head(config, sides, head, size.get(head), multi_label)

    def written_head(self, model):
        """Return the head of a model that is to be written; refuse one that the family lacks."""
        head, names = head_of(model), {FEATURES: {}, **self.head_names}
        if head not in (self.side_head_names if reads_by_both(model) else names):
            raise ValueError(
                f"`model` fits no family of checkpoints: a {self.name} has no class with {head}. "
                f"Received: model={model!r}."
            )
        return head

    def prefix_of(self, model):
        return self.inner_prefix if head_of(model) in (TAGS, CLASSES) else ""

    def copy_weights(self, checkpoint, model):
        sides = sides_of(model)
        root = self.copy_embedding(checkpoint, sides.embedding)
        if sides is not model:
            copy_side_head(checkpoint, model)
            copy_part(checkpoint, sides, "decoder.norm", "decoder.final_layer_norm")
        elif hasattr(model, "decoder"):
            self._copy_outputs(checkpoint, model, root)
        else:
            copy_table(checkpoint, model, self.head_names.get(head_of(model), {}))
        copy_part(checkpoint, sides, "encoder.norm", "encoder.final_layer_norm")
        self.copy_sides(checkpoint, sides)

    def copy_embedding(self, checkpoint, embedding):
        """Copy the token table; return the root of its width.

        Our embedding multiplies the rows of its table by the root of the width, T5's does not. Tied
        logits then agree too: T5 divides by the root before the product with its table.
        """
        table, root = embedding.table, math.sqrt(embedding.hidden_dim)
        checkpoint.transfer(self.table, Fold([table], tuple(table.shape), scales=(1 / root,)))
        return root

    def copy_sides(self, checkpoint, sides):
        """Copy the blocks of the sides that a model has, and their tables of distances."""
        for side in _names_of_sides(sides):
            self.copy_distances(checkpoint, _tables_of(sides, side), side)
            self._copy_blocks(checkpoint, getattr(sides, side).blocks, side)

    def _copy_outputs(self, checkpoint, model, root):
        """Copy the norm before the logits, whose gain has the root of the width, and the table."""
        tied = model.head is None
        if not tied:
            copy_part(checkpoint, model, "head", "lm_head")
        gain = model.decoder.norm.scale
        is_scaled = self.is_scaled(checkpoint.config)
        scales = None if is_scaled == tied else (root if tied else 1 / root,)
        folded = Fold([gain], tuple(gain.shape), scales=scales)
        checkpoint.transfer("decoder.final_layer_norm.weight", folded)

    def _copy_blocks(self, checkpoint, blocks, side):
        for index, block in enumerate(blocks):
            prefix = f"{side}.block.{index}."
            copy_table(checkpoint, block, self.self_attention, prefix)
            if side == "decoder":
                copy_table(checkpoint, block, self.cross_attention, prefix)
            last = f"{prefix}layer.{2 if side == 'decoder' else 1}."
            self.copy_feed_forward(checkpoint, block, last)
            copy_part(checkpoint, block, "feed_forward_residual.norm", f"{last}layer_norm")

    def copy_feed_forward(self, checkpoint, block, prefix):
        """Copy the feed-forward layer of a block."""
        has_gates = isinstance(block.feed_forward, layers.GatedFeedForward)
        table = self.gated if has_gates else self.plain
        copy_table(checkpoint, block, table, f"{prefix}DenseReluDense.")

    def copy_distances(self, checkpoint, tables, side):
        """Copy the tables of distances of a side's blocks, which have one tensor."""
        checkpoint.transfer(DISTANCES.format(side, 0), SharedTable(tables))

    def options(self, model):
        feed_forward = read_part(sides_of(model), f"{FIRST}.feed_forward")
        has_gates = isinstance(feed_forward, layers.GatedFeedForward)
        activation = activation_name(read_part(feed_forward, "activation"), "gelu_new")
        tied = not isinstance(model, models.EncoderDecoder) or model.head is None
        return {
            **self.shared_options(model),
            "d_ff": feed_forward.intermediate_dim,
            # With gates "gelu" is "gelu_new", and the exact one is in the next option alone.
            "feed_forward_proj": f"gated-{activation.removesuffix('_new')}"
            if has_gates
            else activation,
            "dense_act_fn": activation,
            "is_gated_act": has_gates,
            "tie_word_embeddings": tied,
            "scale_decoder_outputs": tied,
        }

    def shared_options(self, model):
        """Return the options that do not depend on the feed-forward layers and the head."""
        both = sides_of(model)
        if isinstance(model, models.EncoderDecoder):
            options = {"architectures": [f"{self.name}ForConditionalGeneration"]}
        elif self.written_head(model) == FEATURES:
            options = {"architectures": [f"{self.name}EncoderModel"]}
        elif both is model:
            options = head_options(model, self.name)
        else:
            options = side_head_options(model, self.name)
        absent = [LAYERS[side] for side in SIDES if side not in _names_of_sides(both)]
        paths = {option: path for option, path in self.paths.items() if option not in absent}
        return {**read_options(both, paths), "is_encoder_decoder": not absent, **options}


class MT5(T5):
    """mT5: T5 1.1 whose outputs are never scaled, with one token table or two."""

    feed_forward = "gated-gelu"

    def is_scaled(self, config):
        return False


class UMT5(T5):
    """UMT5: T5 1.1 with a table of distances in each block."""

    name = "UMT5"
    feed_forward = "gated-gelu"

    def fits(self, model):
        """Return True if the tables of distances of a side differ, as after training."""
        both = sides_of(model)
        return super().fits(model) and any(
            not np.array_equal(numbers(first), numbers(other))
            for first, *others in (_tables_of(both, side) for side in _names_of_sides(both))
            for other in others
        )

    def copy_distances(self, checkpoint, tables, side):
        for index, table in enumerate(tables):
            fold = Fold([table], tuple(table.shape))
            checkpoint.transfer(DISTANCES.format(side, index), fold)


class SwitchTransformer(T5):
    """Switch Transformer: T5 1.0 in which some blocks have experts."""

    name = "SwitchTransformers"
    head_names = side_head_names = {}
    UNLIMITED = 2**31 - 1  # the capacity of experts that compute all tokens

    def build_sides(self, config, tied, overrides):
        config.require(router_dtype="float32")
        width = config.size("d_ff")
        activation = config.activation("dense_act_fn", "relu")
        capacity = config.size("expert_capacity", 64)

        def build_model(
            pattern="dense",
            dropout=config.number("dropout_rate", 0.1),
            balance_loss=config.number("router_aux_loss_coef", 0.001),
            z_loss=config.number("router_z_loss_coef", 0.001),
            name=config.get("model_type"),
        ):
            def feed_forward(side):
                step = self._sparse_step(config, side)

                def layer(index):
                    dense = layers.FeedForward(width, activation, use_bias=False, dropout=dropout)
                    if step == 0 or index % step != 1 % step:  # 1 % 1 is 0: each block then
                        return dense
                    return layers.MixtureOfExperts(
                        dense,
                        config.size("num_experts", 8),
                        top_k=1,
                        router="probability",
                        balance_loss=balance_loss,
                        z_loss=z_loss,
                        use_router_bias=config.flag("router_bias"),
                        capacity=None if capacity == self.UNLIMITED else capacity,
                    )

                return layer

            arguments = {**self.arguments(config), "dropout": dropout, "name": name}
            size = config.size("vocab_size")
            return text_to_text(
                **arguments,
                feed_forward=feed_forward("encoder"),
                decoder_feed_forward=feed_forward("decoder"),
                head=None if tied else untied_head(size, scaled_normal()),
                pattern=pattern,
            )

        return build(build_model, {}, overrides)

    def arguments(self, config):
        # Null stands for as many layers as the encoder has, an absent key for the default.
        default = {} if "num_decoder_layers" in config.values else {"num_decoder_layers": 12}
        return {**super().arguments(config), **default}

    def _sparse_step(self, config, side):
        """Return the step s of the blocks 1, 1 + s, .. that have experts; 0 for none."""
        num_layers = self.arguments(config)[LAYERS[side]]
        count = int(config.number(f"num_sparse_{side}_layers", 3))
        step = num_layers // count if count else num_layers
        return int(config.number(f"{side}_sparse_step", step))

    def is_scaled(self, config):
        return config.flag("tie_word_embeddings", True)

    def fits(self, model):
        """Return True if a block of a model has experts."""
        if not super().fits(model):
            return False
        both = sides_of(model)
        blocks = [block for side in _names_of_sides(both) for block in getattr(both, side).blocks]
        return any(isinstance(block.feed_forward, layers.MixtureOfExperts) for block in blocks)

    def copy_feed_forward(self, checkpoint, block, prefix):
        experts, prefix = block.feed_forward, f"{prefix}mlp."
        if not isinstance(experts, layers.MixtureOfExperts):
            return copy_table(checkpoint, block, self.plain, prefix)
        router = f"{prefix}router.classifier"
        copy(checkpoint, experts.router_kernel, f"{router}.weight", transpose=True)
        if experts.use_router_bias:
            copy(checkpoint, experts.router_bias, f"{router}.bias")
        for kernels, name in ((experts.intermediate_kernel, "wi"), (experts.output_kernel, "wo")):
            each = range(experts.num_experts)
            names = [f"{prefix}experts.expert_{index}.{name}.weight" for index in each]
            checkpoint.transfer_each(names, kernels)

    def options(self, model):
        sides = {side: getattr(model, side).blocks for side in _names_of_sides(model)}
        experts = next(
            block.feed_forward
            for block in sum(sides.values(), [])
            if isinstance(block.feed_forward, layers.MixtureOfExperts)
        )
        options = {
            **self.shared_options(model),
            "d_ff": experts.expert.intermediate_dim,
            "dense_act_fn": activation_name(experts.expert.activation, "gelu_new"),
            "num_experts": experts.num_experts,
            "expert_capacity": experts.capacity or self.UNLIMITED,
            "router_bias": experts.use_router_bias,
            "router_aux_loss_coef": experts.balance_loss,
            "router_z_loss_coef": experts.z_loss,
            "tie_word_embeddings": True,  # of encoder and decoder; the head is always stored
        }
        for side, blocks in sides.items():
            step = _step_of(blocks)
            options[f"num_sparse_{side}_layers"] = len(blocks) // step if step else 0
            options[f"{side}_sparse_step"] = step
        return options


def _step_of(blocks):
    """Return the distance of the blocks with experts; 0 for none."""
    sparse = [isinstance(block.feed_forward, layers.MixtureOfExperts) for block in blocks]
    indices = [index for index, is_sparse in enumerate(sparse) if is_sparse]
    if not indices:
        return 0
    return indices[1] - indices[0] if len(indices) > 1 else len(blocks)


def _names_of_sides(model):
    """Return the names of the sides that a model has; one without a decoder has an encoder."""
    return [side for side in SIDES if hasattr(model, side)]


def _tables_of(model, side):
    """Return the tables of distances of a side's blocks."""
    path = f"{side}.blocks.{{}}.attention.score.terms.1.table"
    count = read_part(model, f"{side}.num_layers")
    return [read_part(model, path.format(index)) for index in range(count)]
