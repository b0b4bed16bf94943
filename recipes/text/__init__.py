"""A text to learn: read, as token ids, in batches, and the options for it."""
