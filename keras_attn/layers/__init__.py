"""Layers: attention, feed-forward, the blocks that join them, embeddings and heads; adapters."""

from keras_attn.feed_forward import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    SeparableConvTransition,
)
from keras_attn.layers.adaptive_embedding import AdaptiveEmbedding
from keras_attn.layers.adaptive_softmax import AdaptiveSoftmax
from keras_attn.layers.block import Block
from keras_attn.layers.convolution_block import ConvolutionBlock
from keras_attn.layers.cross_attention_block import CrossAttentionBlock
from keras_attn.layers.differential_attention import DifferentialAttention
from keras_attn.layers.embedding_projection import EmbeddingProjection
from keras_attn.layers.global_attention import GlobalAttention
from keras_attn.layers.kernel_quantization import quantize_kernels
from keras_attn.layers.knn_attention import KNNAttention
from keras_attn.layers.lora import add_lora, load_lora, merge_lora, save_lora
from keras_attn.layers.multi_head_attention import MultiHeadAttention
from keras_attn.layers.patch_embedding import PatchEmbedding
from keras_attn.layers.pixel_embedding import PixelEmbedding
from keras_attn.layers.pooling import Pool, Projection, Truncate
from keras_attn.layers.positioned_block import PositionedBlock
from keras_attn.layers.residual_projection import ResidualProjection
from keras_attn.layers.series import SeriesEmbedding, SeriesPatches, SeriesPool, SeriesScaler
from keras_attn.layers.series_bins import SeriesBins
from keras_attn.layers.series_block import SeriesBlock
from keras_attn.layers.series_heads import (
    ForecastHead,
    MaskedPatchHead,
    PatchMasking,
    RegressionHead,
)
from keras_attn.layers.token_embedding import SegmentEmbedding, TokenEmbedding
from keras_attn.layers.token_head import AnswerHead, MaskedTokenHead, TokenHead
from keras_attn.layers.trajectory_embedding import TrajectoryEmbedding
from keras_attn.layers.transformed_head import HeadTransform, TransformedHead
from keras_attn.layers.transformer_block import ParallelBlock, TransformerBlock

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "AnswerHead",
    "Block",
    "ConvolutionBlock",
    "CrossAttentionBlock",
    "DifferentialAttention",
    "EmbeddingProjection",
    "FeedForward",
    "ForecastHead",
    "GatedFeedForward",
    "GlobalAttention",
    "HeadTransform",
    "PatchMasking",
    "KNNAttention",
    "MaskedTokenHead",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "ParallelBlock",
    "PatchEmbedding",
    "MaskedPatchHead",
    "PixelEmbedding",
    "Pool",
    "PositionedBlock",
    "Projection",
    "ResidualProjection",
    "SegmentEmbedding",
    "SeparableConvTransition",
    "SeriesBins",
    "SeriesBlock",
    "SeriesEmbedding",
    "SeriesPatches",
    "SeriesPool",
    "SeriesScaler",
    "TokenEmbedding",
    "TokenHead",
    "TrajectoryEmbedding",
    "TransformedHead",
    "TransformerBlock",
    "Truncate",
    "RegressionHead",
    "add_lora",
    "load_lora",
    "merge_lora",
    "quantize_kernels",
    "save_lora",
]
