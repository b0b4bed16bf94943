"""Causal decoders, which predict tokens or classify a text by its last token; and GPT-2."""

from keras_attn import models
from keras_attn.convert.hugging_face.classifiers import class_options
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import Family, build, read_options, read_part
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table
from keras_attn.ops.checks import check_that

FIRST = "depth.blocks.0"
CLASSIFIER, _CLASSIFIER_ENDING = "score", "ForSequenceClassification"


class CausalFamily(Family):
    """Causal decoders, which predict tokens or classify a text by its last token.

    A family defines how a `CausalLanguageModel` is read and written. A `Classifier` is made of the
    same parts.

    Attributes:
        name: str. Beginning of the names of the classes of transformers.
        classifier_name: str. Beginning of the name of the classifier; by default `name`.
        default_pad_id: the id of padding where `config.json` has none; None for none.
    """

    name = None
    classifier_name = None
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
        checkpoint.strip(self.prefix)
        if not checkpoint.has(f"{CLASSIFIER}.weight"):
            _check_no_classes(checkpoint)
            return self.convert_language_model(checkpoint, overrides)
        num_classes = checkpoint.shape(f"{CLASSIFIER}.weight")[0]
        pad_id = _read_pad_id(checkpoint.config, self.default_pad_id)
        model = self.convert_language_model(checkpoint, {"pad_id": pad_id, **overrides})
        model = _classifier(model, num_classes)
        copy_part(checkpoint, model, "head", CLASSIFIER)
        return model

    def options(self, model):
        if not isinstance(model, models.Classifier):
            return self.language_options(model)
        check_that(model.num_classes is not None, "a number to be written", num_classes=None)
        options = self.language_options(language_model(model))
        options.pop("tie_word_embeddings", None)  # there is no second table
        name = f"{self.classifier_name or self.name}{_CLASSIFIER_ENDING}"
        return {**options, "architectures": [name], **class_options(model)}

    def build(self, config, model):
        reference = self.build_language_model(config, language_model(model))
        is_classifier = isinstance(model, models.Classifier)
        return _classifier(reference, model.num_classes) if is_classifier else reference

    def copy_weights(self, checkpoint, model):
        self.copy_language_model(checkpoint, language_model(model))
        if isinstance(model, models.Classifier):
            copy_part(checkpoint, model, "head", CLASSIFIER)


def language_model(model):
    """Return the `CausalLanguageModel` of the parts of a `Classifier`; another model as it is."""
    if not isinstance(model, models.Classifier):
        return model
    return models.CausalLanguageModel(
        embedding=model.embedding,
        depth=model.encoder,
        position=model.position,
        dropout=model.dropout,
        name=model.name,
    )


def _classifier(model, num_classes):
    return models.Classifier(
        embedding=model.embedding,
        encoder=model.depth,
        num_classes=num_classes,
        position=model.position,
        pooling="last",
        dropout=model.dropout,
        use_bias=False,
        name=model.name,
    )


def _check_no_classes(checkpoint):
    """Refuse a folder of a classifier: it would be read as a language model."""
    names = checkpoint.config.get("architectures", [])
    if any(name.endswith(_CLASSIFIER_ENDING) for name in names):
        checkpoint.shape(f"{CLASSIFIER}.weight")


def _read_pad_id(config, default):
    """Return the id of padding: null in the file stands for none, an absent key for the default."""
    if config.values.get("pad_token_id", default) is None:
        return None
    return config.index("pad_token_id", default)


class GPT2(CausalFamily):
    """GPT-2."""

    name = "GPT2"
    prefix = "transformer."
    heads = (CLASSIFIER,)
    embeddings = {"embedding": "wte", "position": "wpe", "depth.norm": "ln_f"}
    block = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
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
        checkpoint.drop_copy("lm_head.weight", "wte.weight")
        model = build(models.gpt, self.arguments(checkpoint.config), overrides)
        checkpoint.repeat_positions("wpe.weight", checkpoint.config.size("n_positions"), overrides)
        self.copy_weights(checkpoint, model)
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
        return models.gpt(**self.arguments(config))

    def copy_language_model(self, checkpoint, model):
        config, blocks = checkpoint.config, model.depth.blocks
        copy_table(checkpoint, model, self.embeddings)
        copy_blocks(checkpoint, blocks, self.block, "h.{}.")
        for index, block in enumerate(blocks):
            scale = 1.0
            if not config.flag("scale_attn_weights", True):
                scale = block.attention.key_dim**0.5
            if config.flag("scale_attn_by_inverse_layer_idx"):
                scale /= index + 1
            self._copy_attention(checkpoint, block.attention, f"h.{index}.attn.", scale)
            for name, dense in (
                ("c_fc", block.feed_forward.intermediate),
                ("c_proj", block.feed_forward.output_dense),
            ):
                copy(checkpoint, dense.kernel, f"h.{index}.mlp.{name}.weight")  # stored (in, out)
                copy(checkpoint, dense.bias, f"h.{index}.mlp.{name}.bias")

    def _copy_attention(self, checkpoint, attention, prefix, scale):
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

    def language_options(self, model):
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **read_options(model, self.paths),
            "activation_function": activation_name(activation, tanh="gelu_new"),
            "architectures": ["GPT2LMHeadModel"],
        }
