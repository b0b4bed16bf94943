"""GPT-2, and the Decision Transformer, whose blocks are GPT-2's."""

from keras_attn import models, positions
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.causal_family import CLASSIFIER, FIRST, CausalFamily
from keras_attn.convert.hugging_face.families.family import Family, build, read_options, read_part
from keras_attn.convert.hugging_face.heads import TAGS, TOKENS
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table
from keras_attn.models.papers.decoder import untied_head
from keras_attn.ops.activations import get_activation

GPT2_NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}


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

    def fits(self, model):
        return isinstance(model.position, positions.Learned)

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

    model_classes = (models.TrajectoryModel,)
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
        checkpoint.derive(parts[0], parts, lambda bias, table: bias + table[0])
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
