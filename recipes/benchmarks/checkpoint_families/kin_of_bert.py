"""Encoders of the families that followed BERT."""

from ..checkpoint_cases import Family

ENDINGS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "Model",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
LAYERS, HEADS = "num_hidden_layers", "num_attention_heads"
SIZES = (
    {
        **{"vocab_size": 61, "hidden_size": 12, "intermediate_size": 29, LAYERS: 1, HEADS: 2},
        "max_position_embeddings": 40,
    },
    {
        **{"vocab_size": 97, "hidden_size": 24, "intermediate_size": 23, LAYERS: 3, HEADS: 4},
        "max_position_embeddings": 37,
    },
    {
        **{"vocab_size": 131, "hidden_size": 48, "intermediate_size": 89, LAYERS: 4, HEADS: 6},
        "max_position_embeddings": 64,
    },
)
OPTIONS = {
    "hidden_act": ("gelu", "gelu_new", "relu", "silu"),
    "layer_norm_eps": (1e-12, 1e-5, 1e-2),
}
OF_ROBERTA = {**OPTIONS, "type_vocab_size": (1, 2), "pad_token_id": (1, 3)}


def classes(name):
    return tuple(f"{name}{ending}" for ending in ENDINGS)


FAMILIES = {
    "camembert": Family(classes("Camembert"), SIZES, OF_ROBERTA),
    "mpnet": Family(
        classes("MPNet"),
        SIZES,
        OPTIONS,
        refused=(
            ("pad_token_id", {"pad_token_id": 3}),
            ("relative_attention_num_buckets", {"relative_attention_num_buckets": 64}),
        ),
    ),
    "xlm-roberta": Family(classes("XLMRoberta"), SIZES, OF_ROBERTA),
}
