"""Attention maps of models, and plots of axes, patterns and sinusoids.

Pictures need Matplotlib: pip install 'keras_attn[viz]'.
"""

from keras_attn.viz.attention import plot_attention
from keras_attn.viz.attention_page import write_attention_page
from keras_attn.viz.axes import plot_axes
from keras_attn.viz.capture import capture_attention
from keras_attn.viz.heads import plot_heads, summarize_heads
from keras_attn.viz.patterns import plot_pattern, plot_patterns
from keras_attn.viz.sinusoids import plot_sinusoids

__all__ = [
    "capture_attention",
    "plot_attention",
    "plot_axes",
    "plot_heads",
    "plot_pattern",
    "plot_patterns",
    "plot_sinusoids",
    "summarize_heads",
    "write_attention_page",
]
