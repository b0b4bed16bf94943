"""The families of checkpoints, by `model_type`."""

from keras_attn.convert.hugging_face import (
    bart,
    bert,
    distilbert,
    gemma,
    gpt2,
    llama,
    marian,
    mistral,
    qwen,
    reformer,
    roberta,
    t5,
    transformer_xl,
    vit,
)

FAMILIES = {
    "bart": bart.FAMILY,
    "bert": bert.FAMILY,
    "distilbert": distilbert.FAMILY,
    "gemma": gemma.FAMILY_1,
    "gemma2": gemma.FAMILY_2,
    "gemma3_text": gemma.FAMILY_3,
    "gpt2": gpt2.FAMILY,
    "llama": llama.FAMILY,
    "marian": marian.FAMILY,
    "mistral": mistral.FAMILY,
    "qwen2": qwen.FAMILY_2,
    "qwen3": qwen.FAMILY_3,
    "reformer": reformer.FAMILY,
    "roberta": roberta.FAMILY,
    "t5": t5.FAMILY,
    "transfo-xl": transformer_xl.FAMILY,
    "vit": vit.FAMILY,
}
