"""Encoders of the families that followed BERT."""

from . import Family

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


# Of a DeBERTa, and its names of directions.
DISTANCES = {
    "relative_attention": (True,),
    "pos_att_type": (["p2c", "c2p"], ["c2p"], ["p2c"], "p2c|c2p", []),
    "position_buckets": (-1, 4, 8),
    "max_relative_positions": (-1, 12, 19),
    "share_att_key": (False, True),
    "norm_rel_ebd": ("none", "layer_norm"),
}
CONVOLUTION = {
    "conv_kernel_size": (0, 3, 5),
    "conv_groups": (1, 2),
    "conv_act": ("tanh", "gelu"),
}
# Ids of tokens have defaults beyond these vocabularies.
OF_MODERN_BERT = {
    **{"pad_token_id": (3,), "bos_token_id": (1,), "eos_token_id": (2,), "cls_token_id": (1,)},
    "sep_token_id": (2,),
    "hidden_activation": OPTIONS["hidden_act"],
    "classifier_activation": OPTIONS["hidden_act"],
    "norm_eps": (1e-5, 1e-3),
    **{
        f"{part}_bias": (False, True)
        for part in ("norm", "attention", "mlp", "classifier", "decoder")
    },
    "classifier_pooling": ("cls", "mean"),
    "local_attention": (4, 9, 128),
    "global_attn_every_n_layers": (3, 2, 1),
    "rope_parameters": (
        {kind: {"rope_type": "default"} for kind in ("full_attention", "sliding_attention")},
        {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
}


def classes(name, *more):
    return tuple(f"{name}{ending}" for ending in (*ENDINGS, *more))


FAMILIES = {
    "albert": Family(
        classes("Albert"),
        SIZES,
        {
            **OPTIONS,
            "embedding_size": (7, 16),
            "type_vocab_size": (1, 2),
            "num_hidden_groups": (1, lambda size: (size[LAYERS] + 1) // 2),
            "inner_group_num": (1, 2),
        },
        refused=(("num_hidden_groups", {"num_hidden_groups": 9}),),
    ),
    "deberta-v2": Family(
        classes("DebertaV2"),
        SIZES,
        {
            **OPTIONS,
            **DISTANCES,
            **CONVOLUTION,
            "type_vocab_size": (0, 2),
            "position_biased_input": (True, False),
            "pooler_hidden_act": ("gelu", "tanh"),
            "legacy": (True, False),
        },
        refused=(
            ("embedding_size", {"embedding_size": 16}),
            ("pos_att_type", {"relative_attention": False}),
            ("position_buckets", {"position_buckets": 7}),
            ("position_buckets", {"position_buckets": 8, "max_relative_positions": 5}),
        ),
    ),
    "electra": Family(
        classes("Electra", "ForPreTraining"),
        SIZES,
        {
            **OPTIONS,
            "embedding_size": (7, lambda size: size["hidden_size"]),
            "type_vocab_size": (1, 2),
        },
    ),
    "modernbert": Family(
        classes("ModernBert"),
        SIZES,
        OF_MODERN_BERT,
        needed={"vocab_size": 50285, "local_attention": 6},  # a vocabulary beyond the id of padding
        refused=(
            (
                "rope_type",
                {
                    "rope_parameters": {
                        "full_attention": {"rope_type": "linear", "factor": 2.0},
                        "sliding_attention": {"rope_type": "default"},
                    }
                },
            ),
        ),
    ),
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
