"""Translation with an encoder-decoder Transformer: dates to ISO 8601, or a parallel text."""
