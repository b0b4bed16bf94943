"""RoBERTa: BERT with other ids, whose positions begin after that of padding."""

from keras_attn import models
from keras_attn.convert.hugging_face import bert
from keras_attn.convert.hugging_face.family import Family
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.text_classifier import convert_classifier
from keras_attn.convert.hugging_face.weights import LastRows, copy_blocks, copy_table

PARTS = {
    "embedding": "embeddings.word_embeddings",
    "segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
HEAD = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "head.bias": "lm_head.bias",
}


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

    It counts positions of real tokens; in rows with padding at the end these are ours.
    """
    config = checkpoint.config
    config.require(hidden_act="gelu")  # the head's, whatever the option says
    checkpoint.strip("roberta.")
    checkpoint.drop_copy("lm_head.decoder.weight", "embeddings.word_embeddings.weight")
    checkpoint.drop_copy("lm_head.decoder.bias", "lm_head.bias")
    arguments = {**bert.arguments(config), "pad_id": config.index("pad_token_id", 1)}
    first = arguments["pad_id"] + 1
    arguments["max_length"] -= first
    model = build(models.bert, arguments, overrides)
    checkpoint.repeat_positions(bert.POSITIONS, arguments["max_length"], overrides, first)
    copy_table(checkpoint, model, PARTS)
    copy_blocks(checkpoint, model.encoder.blocks, bert.BLOCK, "encoder.layer.{}.")
    checkpoint.transfer(bert.POSITIONS, LastRows(model.position.table, first))
    if checkpoint.has("lm_head.bias"):
        checkpoint.ignore("pooler.*")
        copy_table(checkpoint, model, HEAD)
        return model
    if checkpoint.has("classifier.out_proj.weight"):
        return convert_classifier(checkpoint, model, "classifier.dense", "classifier.out_proj")
    return convert_classifier(checkpoint, model, "pooler.dense", "classifier")


FAMILY = Family(convert)
