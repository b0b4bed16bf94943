"""Weights from other libraries, moved with a numeric check."""

from keras_attn.convert.generation_config import generation_options
from keras_attn.convert.hugging_face.conversion import from_hugging_face
from keras_attn.convert.hugging_face.heads import read_labels
from keras_attn.convert.hugging_face.peft import load_peft, save_peft
from keras_attn.convert.hugging_face.writing import to_hugging_face
from keras_attn.convert.keras_hub import (
    from_keras_hub,
    from_keras_hub_decoder,
    from_keras_hub_encoder,
)

__all__ = [
    "from_hugging_face",
    "from_keras_hub",
    "from_keras_hub_decoder",
    "from_keras_hub_encoder",
    "generation_options",
    "load_peft",
    "read_labels",
    "save_peft",
    "to_hugging_face",
]
