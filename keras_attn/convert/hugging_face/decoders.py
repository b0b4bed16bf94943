"""Causal decoders, which predict tokens or have another head; GPT-2, and what is made of it."""

from keras_attn import models
from keras_attn.convert.hugging_face.classifiers import (
    ANSWERS,
    CLASSES,
    FEATURES,
    TAGS,
    TOKENS,
    has_several_labels,
    head_of,
    head_options,
    read_head,
    with_head,
)
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import Family, build, read_options, read_part
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table
from keras_attn.models.papers.decoder import untied_head
from keras_attn.ops.activations import get_activation

FIRST = "depth.blocks.0"
CLASSIFIER = "score"
GPT2_NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}


class CausalFamily(Family):
    """Causal decoders, which predict tokens, classify by the last token, or have another head.

    A family defines how a `CausalLanguageModel` is read and written. A model with another head is
    made of the same parts.

    Attributes:
        name: str. Beginning of the names of the classes of transformers.
        classifier_name: str. As `name`, of the classes with other heads; by default `name`.
        head_names: dict by head, but that for tokens, of the names of its parts by their paths.
        answers_prefix: str. In place of `prefix` in the class with answers; None for `prefix`.
        default_pad_id: the id of padding where `config.json` has none; None for none.
    """

    name = None
    classifier_name = None
    head_names = {
        CLASSES: {"head": CLASSIFIER},
        TAGS: {"head": CLASSIFIER},
        ANSWERS: {"head": "qa_outputs"},
    }
    answers_prefix = None
    default_pad_id = None
    free = ("pad_id",)  # padding is at the end, where no token sees it

    def convert_language_model(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint, without the prefix."""
        raise NotImplementedError

    def language_options(self, model):
        """Return the options of `config.json` for a `CausalLanguageModel`."""
        raise NotImplementedError

    def build_language_model(self, config, model):
        """Return a `CausalLanguageModel` of the family, for `build`."""
        raise NotImplementedError

    def copy_language_model(self, checkpoint, model):
        """Copy the tensors of a `CausalLanguageModel`, in either direction."""
        raise NotImplementedError

    def convert(self, checkpoint, overrides):
        """Return the model of a checkpoint.

        Features are those of the last token, as a classifier reads them.
        """
        config, head = checkpoint.config, self.read_head(checkpoint)
        checkpoint.strip((head == ANSWERS and self.answers_prefix) or self.prefix)
        if head in (CLASSES, FEATURES):
            pad_id = config.optional(config.index, "pad_token_id", self.default_pad_id)
            overrides = {"pad_id": pad_id, **overrides}
        names, size = self.head_names.get(head, {}), None
        if head in (CLASSES, TAGS):
            size = checkpoint.shape(f"{names['head']}.weight")[0]
        model = self.convert_language_model(checkpoint, overrides)
        multi_label = head == CLASSES and has_several_labels(config)
        model = with_head(model, head, size, "last", multi_label=multi_label)
        copy_table(checkpoint, model, names)
        return model

    def read_head(self, checkpoint):
        """Return the head of a checkpoint; refuse one that the family lacks."""
        return read_head(checkpoint, self.name, self.head_names, TOKENS)

    def options(self, model):
        head = head_of(model)
        if head not in (TOKENS, FEATURES, *self.head_names):
            raise ValueError(
                f"`model` fits no family of checkpoints: a {self.name} has no class with {head}. "
                f"Received: model={model!r}."
            )
        options = self.language_options(language_model(model))
        if head == TOKENS:
            return options
        options.pop("tie_word_embeddings", None)  # there is no second table
        return {**options, **head_options(model, self.classifier_name or self.name)}

    def build(self, config, model):
        reference = self.build_language_model(config, language_model(model))
        size = model.head.units if (head := head_of(model)) in (CLASSES, TAGS) else None
        return with_head(
            reference, head, size, "last", multi_label=getattr(model, "multi_label", False)
        )

    def copy_weights(self, checkpoint, model):
        self.copy_language_model(checkpoint, language_model(model))
        copy_table(checkpoint, model, self.head_names.get(head_of(model), {}))

    def prefix_of(self, model):
        is_other = self.answers_prefix is not None and head_of(model) == ANSWERS
        return self.answers_prefix if is_other else super().prefix_of(model)


def language_model(model):
    """Return the `CausalLanguageModel` of a model's parts, tied; one that is one as it is."""
    if isinstance(model, models.CausalLanguageModel):
        return model
    return models.CausalLanguageModel(
        embedding=model.embedding,
        depth=model.encoder,
        position=model.position,
        dropout=model.dropout,
        name=model.name,
    )


class GPT2(CausalFamily):
    """GPT-2."""

    name = "GPT2"
    prefix = "transformer."
    heads = ("lm_head", CLASSIFIER, "classifier", "qa_outputs")
    head_names = {**CausalFamily.head_names, TAGS: {"head": "classifier"}}
    embeddings = {"embedding": "wte", "position": "wpe", "depth.norm": "ln_f"}
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "n_layer": "depth.num_layers",
        "n_head": f"{FIRST}.attention.num_heads",
        "n_embd": "embedding.hidden_dim",
        "n_inner": f"{FIRST}.feed_forward.intermediate_dim",
        "n_positions": "position.max_length",
        "embd_pdrop": "dropout",
        "attn_pdrop": f"{FIRST}.attention.dropout",
        "resid_pdrop": f"{FIRST}.dropout",
        "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def convert_language_model(self, checkpoint, overrides):
        checkpoint.ignore("h.*.attn.bias", "h.*.attn.masked_bias")
        model = build(models.gpt, self.arguments(checkpoint.config), overrides)
        is_tied = checkpoint.config.flag("tie_word_embeddings", True)
        is_tied = is_tied or self.read_head(checkpoint) != TOKENS
        if not (is_tied and checkpoint.drop_if_equal("lm_head.weight", "wte.weight")):
            model = _untied(model)
        checkpoint.repeat_positions("wpe.weight", checkpoint.config.size("n_positions"), overrides)
        self.copy_language_model(checkpoint, model)
        return model

    def arguments(self, config):
        """Return the arguments of `models.gpt` for a configuration."""
        width = config.size("n_embd")
        return {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": config.size("n_layer"),
            "num_heads": config.size("n_head"),
            "hidden_dim": width,
            "intermediate_dim": config.size("n_inner", 4 * width),
            "dropout": config.number("resid_pdrop", 0.1),
            "max_length": config.size("n_positions"),
            "activation": config.activation("activation_function", "gelu_new"),
            "epsilon": config.number("layer_norm_epsilon", 1e-5),
            "pad_id": None,  # id 0 is a token
        }

    def build_language_model(self, config, model):
        reference = models.gpt(**self.arguments(config))
        return reference if model.head is None else _untied(reference)

    def copy_language_model(self, checkpoint, model):
        copy_table(checkpoint, model, self.embeddings)
        if model.head is not None:
            copy_part(checkpoint, model, "head", "lm_head")
        _copy_gpt2_blocks(checkpoint, model.depth.blocks)

    def language_options(self, model):
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **read_options(model, self.paths),
            "activation_function": activation_name(activation, tanh="gelu_new"),
            "tie_word_embeddings": model.head is None,
            "architectures": ["GPT2LMHeadModel"],
        }


def _untied(model):
    """Return a `CausalLanguageModel` of the same parts with a table of logits of its own."""
    return models.CausalLanguageModel(
        embedding=model.embedding,
        depth=model.depth,
        position=model.position,
        dropout=model.dropout,
        head=untied_head(model.embedding.vocabulary_size, "glorot_uniform"),
        name=model.name,
    )


def _copy_gpt2_blocks(checkpoint, blocks, prefix=""):
    """Copy the blocks of GPT-2, in either direction."""
    config = checkpoint.config
    copy_blocks(checkpoint, blocks, GPT2_NORMS, f"{prefix}h.{{}}.")
    for index, block in enumerate(blocks):
        scale = 1.0
        if not config.flag("scale_attn_weights", True):
            scale = block.attention.key_dim**0.5
        if config.flag("scale_attn_by_inverse_layer_idx"):
            scale /= index + 1
        _copy_gpt2_attention(checkpoint, block.attention, f"{prefix}h.{index}.attn.", scale)
        for name, dense in (
            ("c_fc", block.feed_forward.intermediate),
            ("c_proj", block.feed_forward.output_dense),
        ):
            # Stored (in, out).
            copy(checkpoint, dense.kernel, f"{prefix}h.{index}.mlp.{name}.weight")
            copy(checkpoint, dense.bias, f"{prefix}h.{index}.mlp.{name}.bias")


def _copy_gpt2_attention(checkpoint, attention, prefix, scale):
    """Copy the joined projections of queries, keys and values, and that of the output."""
    kernels = [attention.query_kernel, attention.key_kernel, attention.value_kernel]
    biases = [attention.query_bias, attention.key_bias, attention.value_bias]
    width, scales = kernels[0].shape[0], (scale, 1.0, 1.0)
    joined = Fold(kernels, (width, 3 * width), scales=scales)
    checkpoint.transfer(f"{prefix}c_attn.weight", joined)
    checkpoint.transfer(f"{prefix}c_attn.bias", Fold(biases, (3 * width,), scales=scales))
    output = Fold([attention.output_kernel], (width, width))
    checkpoint.transfer(f"{prefix}c_proj.weight", output)
    copy(checkpoint, attention.output_bias, f"{prefix}c_proj.bias")


class DecisionTransformer(Family):
    """The Decision Transformer, whose blocks are those of GPT-2."""

    embeddings = {
        "embedding.table": "embed_timestep.weight",
        "embedding.norm": "embed_ln",
        "depth.norm": "encoder.ln_f",
        "head": "predict_action.0",
    }
    # The path in the model of each option of `config.json`.
    paths = {
        "state_dim": "state_size",
        "act_dim": "embedding.action_size",
        "max_ep_len": "embedding.max_steps",
        "hidden_size": "embedding.hidden_dim",
        "n_layer": "depth.num_layers",
        "n_head": f"{FIRST}.attention.num_heads",
        "n_inner": f"{FIRST}.feed_forward.intermediate_dim",
        "embd_pdrop": "dropout",
        "attn_pdrop": f"{FIRST}.attention.dropout",
        "resid_pdrop": f"{FIRST}.dropout",
        "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def convert(self, checkpoint, overrides):
        """Return a `TrajectoryModel` with the weights of a checkpoint."""
        config, parts = checkpoint.config, ["embed_ln.bias", "encoder.wpe.weight"]
        shape = (config.size("hidden_size"),)
        for name in parts:
            if checkpoint.shape(name)[-1:] != shape:
                config.refuse(f"The last axis of the tensor {name!r} is no `hidden_size`.")
        # transformers adds the position 0 of its GPT-2 to each vector, after their norm.
        checkpoint.derive(parts[0], parts, shape, lambda bias, table: bias + table[0])
        model = build(models.decision_transformer, self.arguments(config), overrides)
        self.copy_weights(checkpoint, model)
        return model

    def arguments(self, config):
        """Return the arguments of `models.decision_transformer` for a configuration."""
        width = config.size("hidden_size")
        return {
            "state_size": config.size("state_dim"),
            "action_size": config.size("act_dim"),
            "num_layers": config.size("n_layer"),
            "num_heads": config.size("n_head"),
            "hidden_dim": width,
            "intermediate_dim": config.size("n_inner", 4 * width),
            "dropout": config.number("resid_pdrop", 0.1),
            "max_steps": config.size("max_ep_len", 4096),
            "activation": config.activation("activation_function", "relu"),
            "epsilon": config.number("layer_norm_epsilon", 1e-5),
            "action_activation": "tanh" if config.flag("action_tanh", True) else "linear",
        }

    def build(self, config, model):
        return models.decision_transformer(**self.arguments(config))

    def copy_weights(self, checkpoint, model):
        embedding = model.embedding
        copy_table(checkpoint, model, self.embeddings)
        names = ("embed_return", "embed_state", "embed_action")
        for name, kernel, bias in zip(names, embedding.kernels, embedding.biases, strict=True):
            copy(checkpoint, kernel, f"{name}.weight", transpose=True)
            copy(checkpoint, bias, f"{name}.bias")
        _copy_gpt2_blocks(checkpoint, model.depth.blocks, "encoder.")
        width = embedding.hidden_dim
        for name in ("encoder.wte", "encoder.wpe"):
            checkpoint.transfer_constant(f"{name}.weight", (1, width))
        for name, size in (("predict_state", model.state_size), ("predict_return", 1)):
            checkpoint.transfer_constant(f"{name}.weight", (size, width))
            checkpoint.transfer_constant(f"{name}.bias", (size,))

    def options(self, model):
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **read_options(model, self.paths),
            "activation_function": activation_name(activation, tanh="gelu_new"),
            "action_tanh": get_activation(model.head.activation) is get_activation("tanh"),
            "n_positions": 1,
            "vocab_size": 1,
            "architectures": ["DecisionTransformerModel"],
        }
