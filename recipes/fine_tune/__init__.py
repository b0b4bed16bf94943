"""A trained model, or a new one, trained on texts of the user's with labels."""
