"""Byte-level BPE, against Hugging Face's library."""

import functools
import json

import pytest
import tensorflow as tf
import tokenizers
from marks import slow
from token_rows import rows_of
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tricky_lines import tricky_lines

from keras_attn.text import ByteLevelBPE
from keras_attn.text.tokenizers import byte_level_bpe as byte_level_words
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS, PATTERNS

LINES = tricky_lines(450)
TEXTS = [line.decode(errors="replace") for line in LINES]


def splitter(pattern, add_space=False):
    if pattern in OF_STEPS:
        return pre_tokenizers.Sequence(OF_STEPS[pattern])
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=add_space)
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[pattern]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def without_words():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


OF_STEPS = {
    ("digits", "gpt2"): [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
    ("bloom",): [
        pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
        without_words(),
    ],
    ("punctuation", "gpt2", "bytes", "runs of digits", "three digits"): [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}
OPTIONS = {
    "o200k": ("o200k", {}),
    "starcoder": (("digits", "gpt2"), {}),
    "bloom": (("bloom",), {}),
    "falcon": (("punctuation", "gpt2", "bytes", "runs of digits", "three digits"), {}),
    "gpt2": ("gpt2", {}),
    "llama3": ("llama3", {"ignore_merges": True}),
    "qwen2": ("qwen2", {"normal_form": "NFC"}),
    "space": ("gpt2", {"add_space": True}),
}


@functools.cache
def trained(name):
    """Return Hugging Face's tokenizer, trained on the lines themselves, and ours."""
    pattern, options = OPTIONS[name]
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = splitter(pattern)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(TEXTS, trainer)
    learned = json.loads(model.to_str())["model"]
    vocabulary, pairs = learned["vocab"], [tuple(pair) for pair in learned["merges"]]
    whole = options.get("ignore_merges", False)
    if whole:
        for word in ("Ġ漢字かな交じり文", "Straße", "ing", "Ġthe"):
            vocabulary.setdefault(word if word.isascii() else letters(word), len(vocabulary))
    model.model = models.BPE(vocabulary, pairs, ignore_merges=whole)
    model.pre_tokenizer = splitter(pattern, options.get("add_space", False))
    if options.get("normal_form"):
        model.normalizer = normalizers.NFC()
    model.decoder = decoders.ByteLevel()
    end = {"<|endoftext|>": len(vocabulary)}
    merges = [" ".join(pair) for pair in pairs]
    return model, ByteLevelBPE(vocabulary, merges, pattern, end, eos_id=len(vocabulary), **options)


def letters(word):
    return byte_level_words.as_letters_in_python(word.replace("Ġ", " "))


@pytest.fixture(scope="module", params=["gpt2", *map(slow, [o for o in OPTIONS if o != "gpt2"])])
def both(request):
    return trained(request.param)


def test_ids_and_texts_are_those_of_hugging_face(both):
    """In a graph and in Python."""
    model, tokenizer = both
    ids, lengths = tokenizer.encode(tf.constant(LINES))
    rows = rows_of(ids, lengths)
    assert rows == [encoding.ids for encoding in model.encode_batch(TEXTS)]
    assert [row.tolist() for row in tokenizer.encode_as_lists(LINES)] == rows
    decoded = [text.decode() for text in tokenizer.decode(ids).numpy()]
    assert decoded == [model.decode(row) for row in rows]
    assert decoded == tokenizer.decode_as_strings(ids.numpy())
    if not tokenizer.get_config()["add_space"] and model.normalizer is None:
        assert decoded == TEXTS


def test_the_last_code_points_are_text(both):
    model, tokenizer = both
    lines = ["a\U0010ffffb c", "x  \U0010fffe\U0010ffff  y", "\U0010ffff", "a \U0010ffff\0"]
    expected = [encoding.ids for encoding in model.encode_batch(lines)]
    assert rows_of(*tokenizer.encode(lines)) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(lines)] == expected


def test_ids_without_a_token_are_unknown():
    tokenizer = ByteLevelBPE(ALPHABET, [], special_tokens={"<s>": 300}, eos_id=300)
    ids = [[ALPHABET["a"], 299, 400, -1, 300, 5]]
    assert tokenizer.decode(ids).numpy()[0].decode() == "a<no token 299>\ufffd\ufffd"
    assert tokenizer.vocabulary_size == 301


ALPHABET = {letter: i for i, letter in enumerate(LETTERS)}


def test_special_tokens_are_no_text_and_their_names_are():
    tokenizer = ByteLevelBPE(ALPHABET, [], special_tokens={"<s>": 256}, eos_id=256)
    assert tokenizer.encode(["<s>"])[0].numpy().tolist() == [[60, 115, 62]]
    tokenizer = ByteLevelBPE({**ALPHABET, "<|endoftext|>": 256}, [], eos_id=256)
    assert tokenizer.tokens([97, 256]).numpy().tolist() == [b"a", b""]


def test_an_invalid_vocabulary_is_refused():
    with pytest.raises(ValueError, match="`eos_id` must be one of the 256 ids, or None"):
        ByteLevelBPE(ALPHABET, [], eos_id=256)
    with pytest.raises(ValueError, match="`vocabulary` must be a dict that holds the letter"):
        ByteLevelBPE({"a": 0}, [])
    with pytest.raises(
        ValueError, match="`pattern` must be one of 'gpt2', 'llama3', 'qwen2', 'o200k'"
    ):
        ByteLevelBPE(ALPHABET, [], "gpt4")
    with pytest.raises(ValueError, match=r"one id a token. Received: vocabulary='\[5\] repeated'"):
        ByteLevelBPE({**ALPHABET, "ab": 5}, ["a b"])
