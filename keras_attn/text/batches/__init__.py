"""Batches of token ids: by length, packed, or as segments of long texts."""
