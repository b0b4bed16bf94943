"""Card of tokenizers beside the library `tokenizers`: equal ids, and lines a second.

    python -m recipes.benchmarks.tokenizer_ids --data-dir DATA

DATA has multi30k. Both libraries read the same `tokenizer.json`, whose vocabulary is trained on it.
"""

import functools
import gzip
import json
import os
import pathlib
import random
import statistics
import tempfile
import time

import tensorflow as tf
import tokenizers
from tokenizers import pre_tokenizers, trainers

from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.text import SentencePiece
from keras_attn.text.tokenizers.sentencepiece_model import read_model

from ..common import files
from ..common.machine import versions
from .card import card_parser, execute, new_card, positive
from .tokenizer_rules import (
    BERT,
    BYTE_LEVEL,
    MERGES,
    UNIGRAMS,
    metaspace,
    precompiled,
)

METHOD = (
    "A vocabulary of at most {size:,} tokens for each family's rules, trained on {trained:,} lines "
    "of Multi30k in English, German and French, in a `tokenizer.json` that both libraries read. "
    "**tricky** and **plain** count the lines whose ids differ from those of `tokenizers`, among "
    "{tricky:,} lines of odd spaces, controls, marks, scripts, runs and parts of UTF-8 and the "
    "{plain:,} lines of the validation split; in the graph and in Python. Lines a second are "
    "medians of {repetitions} passes over {timed:,} English lines, taken in turn in one process; "
    "all have one thread. **ratio** is the median of the ratios to `encode_batch` of a pass."
)
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u200a\u2028\u202f\u3000"
CONTROLS = "\0\x01\x08\x1c\x7f\x80\xad\u200b\u200d\u200e\u2060\ufeff\ufffd\ue000\u034f\ufe0f\u0600"
WORDS = (
    "the The cat's CAT'S don't I'll ſtraße STRASSE İstanbul ﬁne ﬃ ΟΔΥΣΣΕΥΣ naïve cafe\u0301 Å "
    "Việt q\u0307\u0323 हिन्दी தமிழ் ไทย မြန်မာ አማርኛ العربية ۱۲۳ עברית 中文 漢字かな ｶﾅ か\u3099 "
    "한국어 \u1112\u1161\u11ab 𠀀 ＡＢＣ１ ㎏ ① ⅷ ½ x² 3.14 1,000,000 12345678 0x1F "
    "४५६ 𝟙 ™ € — “q” «q» ¿ 。 "
    "😀 👍🏽 👩‍👩‍👧 🇩🇪 ❤️ "
    "x[::-1] a->b https://a.org/?b=c#d __init__ camelCase ##ing ▁the Ġ << ``q''"
).split()
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80"]


def tricky_lines(count):
    """Return lines of bytes, some of them not UTF-8."""
    draw = random.Random(7)

    def fragment():
        kind = draw.random()
        if kind < 0.55:
            return draw.choice(WORDS).encode() + b" " * draw.choice((0, 1, 1, 2))
        if kind < 0.7:
            return "".join(draw.choices(SPACES, k=draw.randint(1, 4))).encode()
        if kind < 0.78:
            return draw.choice(CONTROLS).encode()
        if kind < 0.81:
            return draw.choice(BROKEN)
        if kind < 0.83:
            return draw.choice("a7ß中- ").encode() * draw.choice((50, 100, 101))
        low = draw.choice((0x20, 0xA0, 0x300, 0x400, 0x900, 0x1E00, 0x2000, 0x4E00, 0x1F300))
        return "".join(chr(low + draw.randrange(96)) for _ in range(draw.randint(1, 6))).encode()

    return [b"".join(fragment() for _ in range(draw.randint(0, 12))) for _ in range(count)]


def read_lines(folder, name):
    """Return the lines of a compressed file of Multi30k."""
    with gzip.open(pathlib.Path(folder) / "multi30k" / name, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def content_of(rules, model, added=()):
    """Return a `tokenizer.json`."""
    normalizer, pre_tokenizer = rules
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "special": True, "normalized": False}
            | {"single_word": False, "lstrip": False, "rstrip": False}
            for i, token in enumerate(added)
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def learned(rules, empty_model, trainer, lines):
    """Return the model that the library learns from lines."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content_of(rules, empty_model)))
    tokenizer.train_from_iterator(lines, trainer)
    return json.loads(tokenizer.to_str())["model"]


def of_words(size, lines):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special)
    empty = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    empty |= {"max_input_chars_per_word": 100, "vocab": {"[UNK]": 0}}
    return content_of(BERT, learned(BERT, empty, trainer, lines), special)


def of_bytes(name, size, lines):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet)
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    return content_of(BYTE_LEVEL[name], learned(BYTE_LEVEL[name], empty, trainer, lines))


def of_merges(name, size, lines):
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=letters)
    empty = {"type": "BPE", "vocab": {"<unk>": 0}, "merges": [], "unk_token": "<unk>"}
    model = learned((None, metaspace()), empty, trainer, lines)
    return content_of(MERGES[name], {**model, "byte_fallback": True, "fuse_unk": True})


@functools.cache
def unigrams(size, lines):
    return SentencePiece.train(lines, size, normalization="nmt_nfkc").to_bytes()


def of_unigrams(name, size, lines):
    proto = unigrams(size, tuple(lines))
    pieces = [[piece, score] for piece, score, _ in read_model(proto)[1]]
    model = {"type": "Unigram", "unk_id": 1, "byte_fallback": False, "vocab": pieces}
    return content_of(UNIGRAMS[name](precompiled(proto)), model)


FAMILIES = {
    "bert": of_words,
    **{name: functools.partial(of_bytes, name) for name in BYTE_LEVEL},
    **{name: functools.partial(of_merges, name) for name in MERGES},
    **{name: functools.partial(of_unigrams, name) for name in UNIGRAMS},
}


def count_unlike(ours, theirs, lines):
    """Return how many lines have other ids in the graph or in Python."""
    texts = [line.decode(errors="replace") for line in lines]
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    ids, lengths = (x.numpy() for x in ours.encode(tf.constant(lines), end=False))
    in_graph = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    in_python = [row.tolist() for row in ours.encode_as_lists(lines)]
    rows = zip(in_graph, in_python, expected, strict=True)
    return sum(not graph == python == row for graph, python, row in rows)


def timed(ours, theirs, lines, repetitions, folder):
    """Return lines a second, and their ratios to those of the library."""
    module = tf.Module()
    module.tokenizer = ours
    signature = [tf.TensorSpec([None], tf.string)]
    module.encode = tf.function(ours.encode, input_signature=signature, autograph=False)
    tf.saved_model.save(module, folder)
    loaded, texts = tf.saved_model.load(folder), tf.constant(lines)
    calls = {
        "graph": lambda: module.encode(texts),
        "SavedModel": lambda: loaded.encode(texts),
        "tokenizers": lambda: theirs.encode_batch(lines),
    }
    seconds = {name: [] for name in calls}
    for _ in range(repetitions + 1):  # the first pass warms up
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    seconds = {name: values[1:] for name, values in seconds.items()}
    row = {name: len(lines) / statistics.median(values) for name, values in seconds.items()}
    for name in ("graph", "SavedModel"):
        pairs = zip(seconds["tokenizers"], seconds[name], strict=True)
        row[f"{name} ratio"] = statistics.median(theirs / ours for theirs, ours in pairs)
    return {**row, "seconds": seconds}


def measure(name, arguments, trained, lines):
    """Return the row of a family."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.json")
        files.write_json(path, FAMILIES[name](arguments.size, trained))
        theirs = tokenizers.Tokenizer.from_file(str(path))
        theirs.encode_special_tokens = True
        ours = read_tokenizer(folder)
        row = {kind: count_unlike(ours, theirs, chosen) for kind, chosen in lines.items()}
        english = trained[: arguments.timed]
        return {**row, **timed(ours, theirs, english, arguments.repetitions, f"{folder}/saved")}


def main():
    parser = card_parser("tokenizer_ids", __doc__.splitlines()[0], repetitions=7)
    parser.add_argument("--data-dir", required=True, help="folder of multi30k")
    parser.add_argument("--size", type=positive, default=8000, help="default: %(default)s")
    parser.add_argument("--timed", type=positive, default=4000, help="default: %(default)s")
    parser.add_argument("--tricky", type=positive, default=1500, help="default: %(default)s")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    arguments = parser.parse_args()
    os.environ.update({"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    for set_threads in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):
        getattr(tf.config.threading, set_threads)(1)
    languages = ("en", "de", "fr")
    trained = read_lines(arguments.data_dir, "train.en.gz")[:20_000]
    for language in languages[1:]:
        trained += read_lines(arguments.data_dir, f"val.{language}.gz")
    plain = [
        line.encode()
        for language in languages
        for line in read_lines(arguments.data_dir, f"val.{language}.gz")
    ]
    lines = {"tricky": tricky_lines(arguments.tricky), "plain": plain}
    title = "Tokenizers beside the library tokenizers"
    card = new_card(arguments, title, METHOD, trained=len(trained), plain=len(plain))
    card.content["versions"] = versions("keras_attn", "tensorflow", "tokenizers", "sentencepiece")
    rows = card.content["rows"] = {}
    for name in arguments.families:
        rows[name] = measure(name, arguments, trained, lines)
        shown = {key: value for key, value in rows[name].items() if key != "seconds"}
        print(name, json.dumps(shown), flush=True)
        card.headline(*table(rows))
        card.write(arguments.out)
    return int(any(row["plain"] for row in rows.values()))


def table(rows):
    """Yield the lines of the card."""
    yield "| family | tricky | plain | graph | SavedModel | `tokenizers` | ratio of both |"
    yield "| --- |" + " --: |" * 6
    for name, row in rows.items():
        rates = " | ".join(f"{row[key]:,.0f}" for key in ("graph", "SavedModel", "tokenizers"))
        ratios = f"{row['graph ratio']:.2f}, {row['SavedModel ratio']:.2f}"
        yield f"| {name} | {row['tricky']} | {row['plain']} | {rates} | {ratios} |"


if __name__ == "__main__":
    execute(main)
