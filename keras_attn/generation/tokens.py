"""Special tokens and vocabularies of a model and its tokenizer."""

import numpy as np

from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text.tokenizers.tokenizer import Tokenizer


def end_tokens(eos_id):
    """Return a tuple of one or more end tokens, from one or from a list or array."""
    if isinstance(eos_id, np.ndarray):
        eos_id = eos_id.tolist()
    if not isinstance(eos_id, (list, tuple, set, frozenset)):
        eos_id = (eos_id,)
    check_that(eos_id, "a token, or a list of at least one", eos_id=eos_id)
    for token in eos_id:
        check_sizes(least=-1, eos_id=token)
    return tuple(sorted(set(eos_id)))


def vocabulary_size(model):
    """Return the number of tokens that a model generates from; None if it does not tell."""
    embedding = getattr(model, "target_embedding", None) or getattr(model, "embedding", None)
    return getattr(embedding, "vocabulary_size", None)


def ends_of(eos_id, tokenizer=None):
    """Return a tuple of the tokens that end a sequence: for None the tokenizer's, or -1 for none.

    Without a tokenizer it is 3.
    """
    if eos_id is None:
        eos_id = getattr(tokenizer, "eos_id", Tokenizer.eos_id)
    return end_tokens(-1 if eos_id is None else eos_id)


def start_of(model, tokenizer=None):
    """Return the token before the first target token: the model's own, the tokenizer's, or 2."""
    start_id = getattr(model, "start_id", None)
    if start_id is None:
        start_id = getattr(tokenizer, "bos_id", None)
    return Tokenizer.bos_id if start_id is None else start_id


def check_vocabularies(model, tokenizer):
    """Raise a `ValueError` if the vocabularies of model and tokenizer differ in size."""
    for embedding, texts in embeddings_and_tokenizers(model, tokenizer):
        # A model of the user's own need not tell its size.
        size = getattr(embedding, "vocabulary_size", texts.vocabulary_size)
        if size != texts.vocabulary_size:
            raise ValueError(
                "`model` and `tokenizer` must have vocabularies of the same size. "
                f"Received: {size} and {texts.vocabulary_size}."
            )


def check_is_tokenizer(tokenizer):
    """Raise a `ValueError` if the argument is something else, such as a path."""
    wanted = "one of `keras_attn.text`, as `SentencePiece.load(path)` reads it"
    check_that(hasattr(tokenizer, "vocabulary_size"), wanted, tokenizer=tokenizer)


def embeddings_and_tokenizers(model, tokenizer):
    """Return the embeddings of targets and of sources, each with the tokenizer of its ids."""
    check_is_tokenizer(tokenizer)
    source = getattr(model, "embedding", None)
    target = getattr(model, "target_embedding", source)
    return [(target, tokenizer), (source, tokenizer.for_sources())]
