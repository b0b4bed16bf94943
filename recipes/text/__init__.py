"""Text for training: read, tokenised, cut into batches, and the options for it."""
