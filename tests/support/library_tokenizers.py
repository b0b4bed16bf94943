"""Tokenizers of Hugging Face's library, trained on tricky lines, and ours of the same rules."""

import functools
import io
import json
import re

import sentencepiece
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tricky_lines import tricky_lines

from keras_attn.text import ByteLevelBPE, Metaspace
from keras_attn.text.tokenizers.byte_level_bpe import PATTERNS, as_letters_in_python
from keras_attn.text.tokenizers.sentencepiece_model import read_model
from recipes.benchmarks.tokenizer_rules import MERGES, UNIGRAMS, precompiled

ALL_LINES = tricky_lines(450)
# Runs of one letter have segmentations of equal scores, of which the library takes one by the
# rounding of its sums.
LINES = [line for line in ALL_LINES if not re.search(rb"(.{1,4})\1{19}", line, re.DOTALL)]


def _text(line):
    return line.decode(errors="replace")


@functools.cache
def trained(model_type="unigram", normalization="nmt_nfkc", **options):
    """Return the bytes of a SentencePiece model of the lines."""
    model = io.BytesIO()
    corpus = [text.replace("\0", "") for text in map(_text, LINES) if text.strip()] * 2
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        vocab_size=1300,
        hard_vocab_limit=False,
        minloglevel=2,
        model_type=model_type,
        character_coverage=0.99,
        normalization_rule_name=normalization,
        **options,
    )
    return model.getvalue()


def pieces_of(model):
    return read_model(model)[1]


def of_unigrams(name):
    pieces = [[piece, score] for piece, score, _ in pieces_of(trained())]
    model = {"type": "Unigram", "vocab": pieces, "unk_id": 0, "byte_fallback": False}
    rules = UNIGRAMS[name](precompiled(trained()))
    return model, rules, Metaspace(pieces, None, *rules, {"<s>": 1, "</s>": 2}, unk_id=0)


def of_merges(name):
    options = {"byte_fallback": True, "remove_extra_whitespaces": False}
    pieces = pieces_of(trained("bpe", "identity", **options))
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    scores = {piece: score for piece, score, _ in pieces}
    pairs = [(p[:i], p[i:]) for p in ids if "<" not in p for i in range(1, len(p))]
    pairs = [pair for pair in pairs if {*pair} <= {*ids}]
    pairs.sort(key=lambda pair: -scores["".join(pair)])
    merges = [[*pair] for pair in pairs]
    model = {"type": "BPE", "vocab": ids, "merges": merges, "unk_token": "<unk>"}
    model |= {"fuse_unk": True, "byte_fallback": True}
    rules, joined = MERGES[name], [" ".join(pair) for pair in merges]
    special = {"<s>": 1, "</s>": 2}
    return model, rules, Metaspace(ids, joined, *rules, special, byte_fallback=True, unk_id=0)


def library(model, normalizer, pre_tokenizer, added=()):
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added)}
    content |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None}
    content |= {"decoder": None, "model": model}
    return tokenizers.Tokenizer.from_str(json.dumps(content))


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
def of_bytes(name):
    """Return Hugging Face's tokenizer, trained on the lines themselves, and ours."""
    pattern, options = OPTIONS[name]
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = splitter(pattern)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(map(_text, ALL_LINES), trainer)
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
    return as_letters_in_python(word.replace("Ġ", " "))
