"""LiteRT files, which were TensorFlow Lite's: one module a step."""
