"""Checkpoints of Hugging Face: folders that `save_pretrained` wrote."""
