"""Families of checkpoints, by the `model_type` of their `config.json`.

A new family is a subclass of `RotaryDecoder`, `CausalFamily`, `EncoderFamily`,
`EncoderDecoderFamily` or `Family`, and a line of `FAMILIES`. Tests ask for its golden file
(`tests/convert/make_goldens.py`), its row of the table (`tests/support/checkpoint_table.py`) and
its options in `recipes/benchmarks/checkpoint_families`.
"""

from keras_attn.convert.hugging_face.families import (
    bloom,
    chronos,
    encoder_decoders,
    encoders,
    expert_decoders,
    gemma,
    gpt2,
    images,
    long_decoders,
    modernbert,
    narrow_encoders,
    opt,
    parallel_decoders,
    perceiver,
    relative_encoders,
    rotary_decoders,
    series,
    t5,
)

# By `model_type`, in the order in which `to_hugging_face` tries them: it writes the first one that
# fits a model, so a family comes before others that lack some of its parts.
FAMILIES = {
    # Encoders.
    "vit": images.ViT(),
    # Encoders of series.
    "patchtst": series.PatchTST(),
    "perceiver": perceiver.Perceiver(),
    # Forecasters, whose files are of the type "t5".
    "chronos": chronos.ChronosT5(),
    "chronos_bolt": chronos.ChronosBolt(),
    # T5 and its kin, encoders with decoders or alone.
    "switch_transformers": t5.SwitchTransformer(),
    "umt5": t5.UMT5(),
    "t5": t5.T5(),
    "mt5": t5.MT5(),
    # Encoders with decoders; BART's and mBART's read texts for classes and answers too.
    "mbart": encoder_decoders.MBart(),
    "bart": encoder_decoders.Bart(),
    "m2m_100": encoder_decoders.M2M100(),
    "pegasus": encoder_decoders.Pegasus(),
    "marian": encoder_decoders.Marian(),
    # Encoders of texts.
    "longformer": encoders.Longformer(),
    "albert": narrow_encoders.Albert(),
    "modernbert": modernbert.ModernBert(),
    "mpnet": relative_encoders.MPNet(),
    "deberta-v2": relative_encoders.DebertaV2(),
    "electra": narrow_encoders.Electra(),
    "roberta": encoders.Roberta(),
    "camembert": encoders.Camembert(),
    "xlm-roberta": encoders.XLMRoberta(),
    "distilbert": encoders.DistilBert(),
    "big_bird": encoders.BigBird(),
    "bert": encoders.Bert(),
    # Decoders.
    "decision_transformer": gpt2.DecisionTransformer(),
    "reformer": long_decoders.Reformer(),
    "opt": opt.OPT(),
    "gpt2": gpt2.GPT2(),
    "transfo-xl": long_decoders.TransformerXL(),
    "bloom": bloom.Bloom(),
    # Decoders with rotary positions.
    "gpt_oss": expert_decoders.GptOss(),
    "qwen2_moe": expert_decoders.Qwen2Experts(),
    "qwen3_moe": expert_decoders.Qwen3Experts(),
    "mixtral": expert_decoders.Mixtral(),
    "gptj": parallel_decoders.GPTJ(),
    "gpt_neox": parallel_decoders.GPTNeoX(),
    "phi": parallel_decoders.Phi(),
    "falcon": parallel_decoders.Falcon(),
    "starcoder2": parallel_decoders.Starcoder2(),
    "gemma3_text": gemma.Gemma3(),
    "gemma2": gemma.Gemma2(),
    "gemma": gemma.Gemma(),
    "olmo3": rotary_decoders.Olmo3(),
    "olmo2": rotary_decoders.Olmo2(),
    "smollm3": rotary_decoders.SmolLM3(),
    "phi3": rotary_decoders.Phi3(),
    "qwen3": rotary_decoders.Qwen3(),
    "qwen2": rotary_decoders.Qwen2(),
    "mistral": rotary_decoders.Mistral(),
    "llama": rotary_decoders.Llama(),
    "granite": rotary_decoders.Granite(),
}
