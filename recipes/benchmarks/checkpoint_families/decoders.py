"""GPT-2 and Reformer."""

from . import Family

GPT2_CLASSES = ("GPT2LMHeadModel", "GPT2ForSequenceClassification")
GPT2_CLASSES += ("GPT2ForTokenClassification", "GPT2ForQuestionAnswering")
GPT2_SIZES = (
    {"vocab_size": 61, "n_embd": 12, "n_layer": 1, "n_head": 2, "n_positions": 40},
    {"vocab_size": 97, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 48},
    {"vocab_size": 131, "n_embd": 48, "n_layer": 4, "n_head": 6, "n_positions": 64},
)


def reformer_size(vocabulary_size, heads, head_size, dims, shape):
    return {
        **{"vocab_size": vocabulary_size, "hidden_size": sum(dims), "num_attention_heads": heads},
        **{"attention_head_size": head_size, "axial_pos_embds_dim": dims},
        **{"axial_pos_shape": shape, "max_position_embeddings": shape[0] * shape[1]},
        **{"is_decoder": True, "hash_seed": 0},
    }


FAMILIES = {
    "gpt2": Family(
        classes=(*GPT2_CLASSES, "GPT2Model"),
        excluded=tuple({"class": name, "pad_token_id": None} for name in GPT2_CLASSES[2:]),
        sizes=GPT2_SIZES,
        options={
            "n_inner": (None, 17),
            "activation_function": ("gelu_new", "gelu", "relu", "silu", "tanh"),
            "layer_norm_epsilon": (1e-5, 1e-2),
            "scale_attn_weights": (True, False),
            "scale_attn_by_inverse_layer_idx": (False, True),
            "reorder_and_upcast_attn": (False, True),
            "pad_token_id": (None, 0, 3),
            "num_labels": (2, 1, 5),
            "problem_type": (None, "multi_label_classification", "regression"),
            "tie_word_embeddings": (True, False),
        },
        refused=(("add_cross_attention", {"add_cross_attention": True}),),
    ),
    # LSH layers draw their buckets at random: the golden files compare one.
    "reformer": Family(
        classes=("ReformerModelWithLMHead",),
        sizes=(
            reformer_size(61, 2, 5, [4, 8], [4, 6]),
            reformer_size(97, 3, 7, [8, 16], [4, 8]),
            reformer_size(131, 5, 11, [16, 32], [6, 8]),
        ),
        options={
            "attn_layers": (["local"], ["local"] * 3),
            "local_attn_chunk_length": (4, 3),
            "local_num_chunks_before": (1, 0, 2),
            "feed_forward_size": (29, 17),
            "hidden_act": ("relu", "gelu", "silu"),
            "layer_norm_eps": (1e-12, 1e-2),
            "axial_pos_embds": (True, False),
            "chunk_size_feed_forward": (0, 1),
        },
        needed={
            "attn_layers": ["local"] * 2,
            "feed_forward_size": 17,
            "local_attn_chunk_length": 4,
        },
        refused=(("is_decoder", {"class": "ReformerForMaskedLM", "is_decoder": False}),),
    ),
}
