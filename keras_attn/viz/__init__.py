"""Attention maps, halting and spans of models, and plots of axes, patterns and sinusoids.

Pictures need Matplotlib: pip install 'keras_attn[viz]'.
"""

from keras_attn.viz.attention import plot_attention, write_attention_page
from keras_attn.viz.axes import plot_axes
from keras_attn.viz.capture import capture_attention
from keras_attn.viz.halting import capture_halting, plot_halting
from keras_attn.viz.heads import plot_heads, summarize_heads
from keras_attn.viz.patterns import plot_pattern, plot_patterns
from keras_attn.viz.sinusoids import plot_sinusoids
from keras_attn.viz.spans import plot_spans

__all__ = [
    "capture_attention",
    "capture_halting",
    "plot_attention",
    "plot_axes",
    "plot_halting",
    "plot_heads",
    "plot_pattern",
    "plot_patterns",
    "plot_sinusoids",
    "plot_spans",
    "summarize_heads",
    "write_attention_page",
]
