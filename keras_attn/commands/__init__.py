"""Programs of `keras-attn` that belong to the library; they import Keras when they need it."""
