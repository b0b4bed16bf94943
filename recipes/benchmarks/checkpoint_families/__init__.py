"""What `checkpoints` compares: each module has `FAMILIES`, a `Family` by `model_type`."""
