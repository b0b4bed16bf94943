"""Encoders of texts whose scores depend on distances: MPNet."""

from keras_attn import scores
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.encoders import BLOCK, OPTIONS, Roberta
from keras_attn.convert.hugging_face.family import FIRST, read_options, read_part
from keras_attn.convert.hugging_face.weights import SharedTable


class MPNet(Roberta):
    """MPNet: RoBERTa without segments, with one table of T5's distances for all blocks."""

    name, prefix = "MPNet", "mpnet."
    embeddings = {part: name for part, name in Roberta.embeddings.items() if part != "segment"}
    block = {
        **BLOCK,
        "attention.query": "attention.attn.q",
        "attention.key": "attention.attn.k",
        "attention.value": "attention.attn.v",
        "attention.output": "attention.attn.o",
        "attention_residual.norm": "attention.LayerNorm",
    }
    num_buckets, max_distance = 32, 128

    def arguments(self, config):
        config.require(pad_token_id=1, relative_attention_num_buckets=self.num_buckets)
        distances = scores.T5Bias(self.num_buckets, self.max_distance, bidirectional=True)
        return {**super().arguments(config), "score": scores.DotProduct() + distances}

    def num_segments(self, config):
        return 0

    def copy_embeddings(self, checkpoint, model):
        super().copy_embeddings(checkpoint, model)
        tables = [block.attention.score.terms[-1].table for block in model.encoder.blocks]
        checkpoint.transfer("encoder.relative_attention_bias.weight", SharedTable(tables))

    def fits(self, model):
        """Return True for an encoder with a bias of distances and without segments."""
        score = read_part(model, f"{FIRST}.attention.score")
        has_bias = isinstance(getattr(score, "terms", [None])[-1], scores.T5Bias)
        return has_bias and model.segment is None

    def language_options(self, model):
        paths = {option: path for option, path in OPTIONS.items() if option != "type_vocab_size"}
        options = read_options(model, paths)
        options["max_position_embeddings"] += 2  # rows of padding, and of the id before it
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {**options, "hidden_act": activation_name(activation)}
