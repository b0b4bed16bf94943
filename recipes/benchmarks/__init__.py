"""Side-by-side timings of keras_attn and what else its users could pick."""
