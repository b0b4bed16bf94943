"""Fine-tuning of a trained or a new model on the user's texts with labels."""
