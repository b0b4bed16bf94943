"""DistilBERT: BERT without segments."""

import numpy as np

from keras_attn import models
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.text_classifier import convert_classifier
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_table

PARTS = {
    "embedding": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
}
HEAD = {
    "head.dense": "vocab_transform",
    "head.norm": "vocab_layer_norm",
    "head.bias": "vocab_projector.bias",
}
BLOCK = {
    "attention.query": "attention.q_lin",
    "attention.key": "attention.k_lin",
    "attention.value": "attention.v_lin",
    "attention.output": "attention.out_lin",
    "attention_residual.norm": "sa_layer_norm",
    "feed_forward.intermediate": "ffn.lin1",
    "feed_forward.output_dense": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint."""
    config = checkpoint.config
    config.require(pad_token_id=0)
    checkpoint.strip("distilbert.")
    checkpoint.drop_copy("vocab_projector.weight", "embeddings.word_embeddings.weight")
    arguments = {
        "vocabulary_size": config.size("vocab_size"),
        "num_layers": config.size("n_layers"),
        "num_heads": config.size("n_heads"),
        "hidden_dim": config.size("dim"),
        "intermediate_dim": config.size("hidden_dim"),
        "dropout": config.number("dropout", 0.1),
        "max_length": config.size("max_position_embeddings"),
        "num_segments": 1,
        "activation": config.activation("activation", "gelu"),
    }
    model = build(models.bert, arguments, overrides)
    model.segment.table.assign(np.zeros(model.segment.table.shape))
    copy_table(checkpoint, model, PARTS)
    copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "transformer.layer.{}.")
    if not checkpoint.has("vocab_projector.bias"):
        return convert_classifier(checkpoint, model, "pre_classifier", "classifier", "relu")
    copy_table(checkpoint, model, HEAD)
    return model
