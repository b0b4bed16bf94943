"""OPT: plain decoders with learned positions, which may be wider than their token table."""

from keras_attn import norms, positions
from keras_attn.convert.hugging_face.families.causal_family import CLASSIFIER, FIRST
from keras_attn.convert.hugging_face.families.family import read_part
from keras_attn.convert.hugging_face.families.parallel_decoders import WIDTH, PlainDecoder
from keras_attn.convert.hugging_face.families.rotary_decoders import PROJECTIONS, RotaryDecoder
from keras_attn.convert.hugging_face.heads import ANSWERS, CLASSES, FEATURES, TOKENS
from keras_attn.convert.hugging_face.weights import LastRows

_TABLE, _POSITIONS = "embed_tokens.weight", "embed_positions.weight"


class OPT(PlainDecoder):
    """OPT, with norms before the sublayers, or after them as in the model of 350 million weights.

    Projections from and to a narrower token table become part of the table and of the head.
    """

    name, prefix, tied = "OPT", "model.decoder.", True
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, ANSWERS)}
    default_pad_id = 1
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "hidden_size": "embedding.hidden_dim",
        "word_embed_proj_dim": "embedding.hidden_dim",
        "num_hidden_layers": "depth.num_layers",
        "num_attention_heads": f"{FIRST}.attention.num_heads",
        "ffn_dim": WIDTH,
    }
    projections = {**PROJECTIONS, "output": "out_proj"}
    norms = {
        "attention_residual.norm": "self_attn_layer_norm",
        "feed_forward_residual.norm": "final_layer_norm",
    }
    feed_forward = {"intermediate": "fc1", "output_dense": "fc2"}
    closing_norm = "final_layer_norm"
    activation_option, default_activation = "activation_function", "relu"
    first_row = 2  # of the table of positions

    def fits(self, model):
        """Return True for a model that GPT-2 has no place for: of later norms or without biases."""
        if not isinstance(model.position, positions.Learned) or not super().fits(model):
            return False
        return model.depth.norm is None or not read_part(model, FIRST).attention.use_bias

    def biases(self, config):
        return super().biases(config) if config.flag("enable_bias", True) else ()

    def norm(self, config):
        return norms.LayerNorm(self.epsilon)

    def choices(self, config):
        config.require(_remove_final_layer_norm=False, layer_norm_elementwise_affine=True)
        is_before = config.flag("do_layer_norm_before", True)
        length = config.max_length or config.size("max_position_embeddings", 2048)
        return {
            "position": lambda index: None,
            "added_position": positions.Learned(length),
            "residual": "pre_norm" if is_before else "post_norm",
        }

    def convert_language_model(self, checkpoint, overrides):
        config, head = checkpoint.config, self.read_head(checkpoint)
        if checkpoint.has(f"decoder.{_TABLE}"):  # the model without a head
            checkpoint.strip("decoder.")
        trained = config.size("max_position_embeddings", 2048)
        checkpoint.repeat_positions(_POSITIONS, trained, overrides, self.first_row)
        if config.size("word_embed_proj_dim", width := config.size("hidden_size")) != width:
            self._fold_projections(checkpoint, head, width)
        return super().convert_language_model(checkpoint, overrides)

    def _fold_projections(self, checkpoint, head, width):
        if head == FEATURES:
            checkpoint.refuse("The option word_embed_proj_dim is not converted without a head.")
        name = {TOKENS: "lm_head", CLASSES: CLASSIFIER, ANSWERS: "qa_outputs"}[head] + ".weight"
        is_tied = head == TOKENS and not checkpoint.has(name)
        for tensor, table, projection, function in (
            (name, _TABLE if is_tied else name, "project_out.weight", _product),
            (_TABLE, _TABLE, "project_in.weight", lambda table, kernel: _product(table, kernel.T)),
        ):
            shape = checkpoint.shape(table)[0], width
            checkpoint.derive(tensor, (table, projection), function, shape)

    def copy_language_model(self, checkpoint, model):
        super().copy_language_model(checkpoint, model)
        checkpoint.transfer(_POSITIONS, LastRows(model.position.table, self.first_row))

    def prefix_of(self, model):
        return super().prefix_of(model) or "decoder."

    def position_options(self, model):
        return {"max_position_embeddings": model.position.max_length}

    def more_options(self, model):
        return {
            "do_layer_norm_before": model.depth.norm is not None,
            "enable_bias": read_part(model, f"{FIRST}.attention.use_bias"),
        }


def _product(table, kernel):
    """Return the float32 product of two matrices, rounded once."""
    return (table.astype("float64") @ kernel.astype("float64")).astype("float32")
