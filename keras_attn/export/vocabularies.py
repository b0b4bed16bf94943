"""Whether model and tokenizer belong together."""


def check_vocabularies(model, tokenizer):
    """Raises a `ValueError` where the vocabularies are not of the same size."""
    sizes = (model.embedding.vocabulary_size, tokenizer.vocabulary_size)
    if sizes[0] != sizes[1]:
        raise ValueError(
            "`model` and `tokenizer` must have vocabularies of the same size. "
            f"Received: {sizes[0]} and {sizes[1]}."
        )
