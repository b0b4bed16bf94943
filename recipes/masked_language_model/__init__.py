"""BERT's task on any text: tokens are hidden, and guessed from both sides."""
