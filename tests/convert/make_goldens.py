"""Write tests/convert/golden: outputs of transformers for made-up checkpoints.

    python tests/convert/make_goldens.py [--seed SEED] [--out FOLDER] [NAME ...]

It needs torch and transformers 5, and no Keras.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "keras_attn/convert"), str(ROOT / "tests/support")]

import checkpoint_folders  # noqa: E402
import golden_writer  # noqa: E402

BERT = {
    "vocab_size": 29,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 31,
}
DISTILBERT = {
    **{"vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 17},
    "max_position_embeddings": 31,
}
LONGFORMER = {
    **{**BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-3, "sep_token_id": 2},
    "attention_window": [4, 6],
}
BIG_BIRD = {**BERT, "attention_type": "original_full", "sep_token_id": 3}
LABELS = {"id2label": {i: str(i) for i in range(7)}}
GPT2 = {"vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 17, "n_positions": 31}
LLAMA = {
    **BERT,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def rope(rope_type, **options):
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": 10000.0, **options}}


LLAMA3 = rope(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
GEMMA = {**LLAMA, "pad_token_id": 0, "sliding_window": 5, "query_pre_attn_scalar": 10}
SIDES = {
    **{"vocab_size": 29, "d_model": 12, "max_position_embeddings": 31, "scale_embedding": True},
    **{"encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 17},
    **{"decoder_layers": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 19},
}
MARIAN = {
    **{**SIDES, "activation_function": "swish", "eos_token_id": 0},
    **{"pad_token_id": 28, "decoder_start_token_id": 28},
}
T5 = {
    **{"vocab_size": 29, "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16},
    "decoder_start_token_id": 0,
}
REFORMER = {
    **{"vocab_size": 29, "hidden_size": 12, "num_attention_heads": 3, "attention_head_size": 5},
    **{"feed_forward_size": 17, "max_position_embeddings": 35, "is_decoder": True},
    **{"axial_pos_shape": [5, 7], "axial_pos_embds_dim": [5, 7], "layer_norm_eps": 1e-3},
    **{"attn_layers": ["local", "local"], "local_attn_chunk_length": 5},
}
TRANSFORMER_XL = {
    **{"vocab_size": 29, "cutoffs": [7, 18], "div_val": 2, "d_model": 12, "d_embed": 12},
    **{"n_layer": 2, "n_head": 3, "d_head": 5, "d_inner": 17, "mem_len": 11, "clamp_len": 5},
}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
# Of each name: the class, and the arguments of its configuration.
CASES = {
    "bert": ("BertForMaskedLM", {**BERT, "layer_norm_eps": 1e-3}),
    "bert_relu": ("BertForPreTraining", {**BERT, "hidden_act": "relu"}),
    "bert_features": ("BertModel", BERT),
    "bert_classifier": ("BertForSequenceClassification", {**BERT, **LABELS}),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT),
    "distilbert_classifier": ("DistilBertForSequenceClassification", {**DISTILBERT, **LABELS}),
    "reformer": ("ReformerModelWithLMHead", REFORMER),
    # All positions are in one chunk of the hashes, so that no number depends on these.
    "reformer_lsh": (
        "ReformerModelWithLMHead",
        {
            **{**REFORMER, "attn_layers": ["lsh", "local", "lsh"], "lsh_attn_chunk_length": 24},
            **{"local_attn_chunk_length": 4, "local_num_chunks_before": 2, "num_hashes": 3},
            **{"axial_pos_embds": False, "hidden_act": "gelu"},
        },
    ),
    "roberta": ("RobertaForMaskedLM", {**BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "roberta_classifier": (
        "RobertaForSequenceClassification",
        {**BERT, "type_vocab_size": 1, **LABELS},
    ),
    "longformer": ("LongformerForMaskedLM", LONGFORMER),
    "longformer_features": ("LongformerModel", LONGFORMER),
    "longformer_classifier": (
        "LongformerForSequenceClassification",
        {**LONGFORMER, "attention_window": 4, **LABELS},
    ),
    "big_bird": (
        "BigBirdForMaskedLM",
        {
            **{**BIG_BIRD, "attention_type": "block_sparse", "rescale_embeddings": True},
            **{"block_size": 3, "num_random_blocks": 3},
        },
    ),
    "big_bird_features": ("BigBirdModel", BIG_BIRD),
    "big_bird_classifier": ("BigBirdForSequenceClassification", {**BIG_BIRD, **LABELS}),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2_scales": (
        "GPT2LMHeadModel",
        {
            **GPT2,
            "scale_attn_weights": False,
            "scale_attn_by_inverse_layer_idx": True,
            "activation_function": "silu",
            "layer_norm_epsilon": 1e-3,
        },
    ),
    "llama": ("LlamaForCausalLM", {**LLAMA, **LLAMA3, "rms_norm_eps": 1e-5}),
    "llama_biases": (
        "LlamaForCausalLM",
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama_linear": ("LlamaForCausalLM", {**LLAMA, **rope("linear", factor=4.0)}),
    "llama_yarn": (
        "LlamaForCausalLM",
        {**LLAMA, **rope("yarn", factor=4.0, original_max_position_embeddings=300)},
    ),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": 5}),
    "qwen2": (
        "Qwen2ForCausalLM",
        {
            **{**LLAMA, "num_hidden_layers": 3},
            **{"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
        },
    ),
    "qwen3": ("Qwen3ForCausalLM", LLAMA),
    "gemma": ("GemmaForCausalLM", {**LLAMA, "pad_token_id": 0}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            **{**GEMMA, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0},
        },
    ),
    "gemma3": ("Gemma3ForCausalLM", {**GEMMA, "num_hidden_layers": 3, "layer_types": TYPES}),
    "gpt2_classifier": ("GPT2ForSequenceClassification", {**GPT2, **LABELS, "pad_token_id": 11}),
    **{
        f"{name.lower()}_classifier": (
            f"{name}ForSequenceClassification",
            {**LLAMA, **LABELS, **more},
        )
        for name, more in (
            ("Llama", {"pad_token_id": 2, "tie_word_embeddings": True}),
            ("Mistral", {"sliding_window": 5}),  # without an id of padding
            ("Qwen2", {"pad_token_id": 11}),
            ("Qwen3", {"pad_token_id": 11}),
            ("Gemma", {"pad_token_id": 0}),
        )
    },
    "gemma3_classifier": (
        "Gemma3TextForSequenceClassification",
        {**GEMMA, **LABELS, "num_hidden_layers": 3, "layer_types": TYPES, "pad_token_id": 7},
    ),
    "marian": ("MarianMTModel", MARIAN),
    "marian_separate": (
        "MarianMTModel",
        {
            **{**MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
            **{"scale_embedding": False, "activation_function": "relu"},
        },
    ),
    "bart": ("BartForConditionalGeneration", SIDES),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"}),
    # These classes are in transformers 4, and not in 5.
    "transformer_xl": ("TransfoXLLMHeadModel", {**TRANSFORMER_XL, "layer_norm_epsilon": 1e-3}),
    "transformer_xl_causal": (
        "TransfoXLLMHeadModel",
        {**TRANSFORMER_XL, "same_length": False, "clamp_len": -1, "div_val": 1},
    ),
    "transformer_xl_untied": (
        "TransfoXLLMHeadModel",
        {**TRANSFORMER_XL, "proj_share_all_but_first": False, "cutoffs": [11], "mem_len": 23},
    ),
    "vit": (
        "ViTForImageClassification",
        {
            **{**BERT, "image_size": 15, "patch_size": 3, "num_channels": 2},
            **LABELS,
        },
    ),
}
# Files as older versions wrote them: options, and tensors that the newest one does not store.
OLD_FILES = {"t5_gated": ({"tie_word_embeddings": False}, {"lm_head.weight": [29, 12]})}


def write(name, seed, out):
    import transformers  # not installed where the tests run
    from safetensors import safe_open

    kind, arguments = CASES[name]
    if not hasattr(transformers, kind):
        return print(
            f"{name}: left out, since transformers {transformers.__version__} lacks {kind}"
        )
    cls = getattr(transformers, kind)
    with tempfile.TemporaryDirectory() as folder:
        cls(cls.config_class(**arguments)).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
        if name in OLD_FILES:
            options, tensors = OLD_FILES[name]
            config.update(options)
            config.pop("scale_decoder_outputs")
            shapes.update(tensors)
        checkpoint_folders.write_folder(folder, config, checkpoint_folders.draw(shapes, seed))
        golden_writer.main(folder, f"{folder}/golden.npz")
        with np.load(f"{folder}/golden.npz") as file:
            arrays = dict(file)
    target = pathlib.Path(out, f"{name}.npz")
    texts = {"config": json.dumps(config), "shapes": json.dumps(shapes)}
    np.savez_compressed(target, seed=seed, **texts, **arrays)
    print(f"{name}: {target.stat().st_size} bytes, largest {np.abs(arrays['outputs']).max():.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=checkpoint_folders.GOLDEN)
    given = parser.parse_args()
    for case in given.names:
        write(case, given.seed, given.out)
