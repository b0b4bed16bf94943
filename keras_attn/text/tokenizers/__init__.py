"""Tokenizers: text to token ids and back, in a TensorFlow graph or in Python."""
