"""Names of the ids of a model, which CTranslate2 reads and writes."""

import dataclasses

from keras_attn.ops.checks import check_that
from keras_attn.text import Tokenizer

NUM_SPECIAL = len(Tokenizer.default_special_tokens)


@dataclasses.dataclass
class Tokens:
    """The names of all ids and of unknown text, and the ids of the first and the last token.

    The source's ids have names of their own if its embedding is another one than the target's.
    """

    names: list
    source_names: list
    unknown: str
    bos_id: int
    eos_id: int

    @classmethod
    def of(cls, model, tokenizer, bos_id, eos_id):
        names = _names(getattr(model, "target_embedding", model.embedding), tokenizer)
        source = tokenizer if tokenizer is None else tokenizer.for_sources()
        source_names, size = _names(model.embedding, source), len(names)
        unk_id = (tokenizer or Tokenizer).unk_id
        unknown = "<unk>" if unk_id is None else names[unk_id]
        ids = {}
        for name, given in (("bos_id", bos_id), ("eos_id", eos_id)):
            default = getattr(tokenizer or Tokenizer, name)
            default = getattr(Tokenizer, name) if default is None else default
            ids[name] = default if given is None else given
            check_that(ids[name] in range(size), f"one of the {size} ids", **{name: ids[name]})
        return cls(names, source_names, unknown, **ids)


def _names(embedding, tokenizer):
    """Return the names of an embedding's ids."""
    size = embedding.vocabulary_size
    if tokenizer is None:
        return [*Tokenizer.default_special_tokens, *map(str, range(NUM_SPECIAL, size))][:size]
    names = tokenizer.vocabulary()
    return [*names, *(f"<unused:{i}>" for i in range(len(names), size))]
