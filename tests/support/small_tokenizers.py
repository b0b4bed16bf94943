"""A small tokenizer of each kind, and texts that are hard to write piece by piece."""

import functools
import io

import sentencepiece

from keras_attn.convert.hugging_face.sentencepiece_models import as_metaspace
from keras_attn.text import (
    AddedTokens,
    ByteLevelBPE,
    Bytes,
    Characters,
    Marian,
    SentencePiece,
    WordPiece,
)
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS

HARD_TEXTS = [
    "the cat sat",
    "a  cat,   two  spaces",
    "smile 😀👩‍👧 and on",
    "漢字かな交じり文",
    "Crème brûlée, naïve — déjà vu!",
    "one line\nand\n\nanother",
    "it's 3.14, isn't it?!",
    "",
]


def _of_bytes(**options):
    """The merges of a few words; every other character is bytes."""
    merges = ["t h", "th e", "Ġ the", "c a", "ca t", "Ġ cat", "a n", "an d", "Ġ and", "Ġ Ġ"]
    tokens = [*LETTERS, *(merge.replace(" ", "") for merge in merges), "<s>", "</s>"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    start, end = (vocabulary[token] for token in ("<s>", "</s>"))
    special = {"<s>": start, "</s>": end}
    return ByteLevelBPE(vocabulary, merges, "gpt2", special, bos_id=start, eos_id=end, **options)


def _with_added():
    """Tokens of which one takes the space beside it, one is white space, and one has bytes."""
    flags = {"😀": {}, "  ": {}, "on": {"lstrip": True}, "naïve": {"normalized": True}}
    first = _of_bytes().vocabulary_size
    ids = {token: first + i for i, token in enumerate(flags)}
    tokens = [{"content": token, "id": ids[token], **flags[token]} for token in flags]
    return AddedTokens(_of_bytes(added_tokens=ids), tokens)


def _of_pieces():
    words = [w.strip(",.!?—'").lower() for text in HARD_TEXTS for w in text.split()]
    characters = sorted({c for word in words for c in word})
    pieces = [*characters, *(f"##{c}" for c in characters), ",", ".", "!", "?", "—", "'", "cat"]
    return WordPiece([*dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *pieces])])


def _with_bytes():
    """Pieces of the first text, and a byte for every other character, as LLaMA has."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(HARD_TEXTS[:2]),
        model_writer=model,
        vocab_size=290,
        hard_vocab_limit=False,
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        pad_id=0, unk_id=1, bos_id=2, eos_id=3,
        minloglevel=2,
    )  # fmt: skip
    return SentencePiece(model.getvalue())


def _of_marian():
    model = SentencePiece.train(HARD_TEXTS, 90)
    pieces = ["</s>", "<unk>", *model.vocabulary()[4:], "<pad>"]
    return Marian(*[model.to_bytes()] * 2, {piece: i for i, piece in enumerate(pieces)})


MAKERS = {
    "characters": lambda: Characters.train(HARD_TEXTS[:2] + HARD_TEXTS[3:]),  # no emoji
    "sentencepiece": lambda: SentencePiece.train(HARD_TEXTS, 90),
    "sentencepiece of bytes": _with_bytes,
    "wordpiece": _of_pieces,
    "byte-level bpe": _of_bytes,
    "metaspace of bytes": lambda: as_metaspace(_with_bytes()),
    "added tokens": _with_added,
    "bytes": lambda: Bytes(bos_id=0),
    "marian": _of_marian,
}


@functools.cache
def tokenizer_of(name):
    """Return the tokenizer of a name in `MAKERS`, made once."""
    return MAKERS[name]()
