"""The model sizes that every contender is built to."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """Size of an encoder-decoder with as many decoder as encoder layers."""

    preset: str
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    vocabulary_size: int = 8000


SHAPES = {
    "tiny": Shape("transformer_tiny", 4, 128, 4, 256),
    "base": Shape("transformer_base", 6, 512, 8, 2048),
}
