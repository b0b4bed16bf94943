"""A folder of a made-up Marian with the tokenizer of a corpus, as OPUS-MT models have it."""

import gzip
import io
import json
import pathlib

import checkpoint_folders
import numpy as np
import sentencepiece

MULTI30K = pathlib.Path(__file__).resolve().parents[3] / "shared/data/multi30k"
# Beginnings and endings of made-up words.
SYLLABLES = {
    "en": ("bcdfhlmrst", "ad at er in ing on out own"),
    "de": ("bdfghkmnrs", "ä ei ten ung"),
}
VOCABULARIES = "vocab.json", "target_vocab.json"
MAX_LENGTH = 23


def corpus(count=3000):
    """Return sentences of Multi30k in English and in German, or where it is not, made-up ones."""
    if MULTI30K.is_dir():
        return [_lines(MULTI30K / f"train.{language}.gz", count) for language in ("en", "de")]
    random, sides = np.random.RandomState(5), []
    for beginnings, endings in SYLLABLES.values():
        words = [f"{x}{y}" for x in beginnings for y in endings.split()]
        rows = (random.choice(words, random.randint(1, 11)) for _ in range(count))
        sides.append([" ".join(row).capitalize() + "." for row in rows])
    return sides


def write(folder, sides, is_shared=True):
    """Write the checkpoint, whose random weights give other texts for other sources.

    Its texts share one vocabulary, or sources and targets have one each.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    pieces = [
        _train(lines, folder / f"{side}.spm")
        for side, lines in zip(("source", "target"), sides, strict=True)
    ]
    if is_shared:
        sets = [["</s>", "<unk>", *pieces[0], *pieces[1], "<pad>"]] * 2
    else:
        sets = [["</s>", "<unk>", "<pad>", *side] for side in pieces]
    ids = [{piece: i for i, piece in enumerate(dict.fromkeys(one))} for one in sets]
    files = {"vocab.json": ids[0]} if is_shared else dict(zip(VOCABULARIES, ids, strict=True))
    files["tokenizer_config.json"] = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not is_shared,
    }
    config, weights = _resized("marian" if is_shared else "marian_separate", map(len, ids))
    for name, weight in weights.items():
        if "bias" in name:
            weight *= 0.2
        elif weight.ndim == 2:
            weight *= 0.5 if "shared" in name or "embed_tokens" in name else 8.0
    # Among fewer tokens the end is more likely.
    weights["final_logits_bias"][0, 0] = min(1.4, np.log(len(ids[-1])) - 4.3)
    pad = ids[0]["<pad>"]
    marks = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    checkpoint_folders.write_folder(
        folder, {**config, **marks, "max_position_embeddings": 512}, weights
    )
    options = {
        **marks,
        "bad_words_ids": [[pad]],
        "forced_eos_token_id": 0,
        "max_length": MAX_LENGTH,
        "num_beams": 6,
        "renormalize_logits": True,
    }
    for name, content in {**files, "generation_config.json": options}.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


def _resized(name, sizes):
    """Return a configuration and random tensors, with other sizes of the vocabularies."""
    config, weights, _ = checkpoint_folders.load_golden(name)
    keys = "vocab_size", "decoder_vocab_size"
    new = dict(zip(keys, sizes, strict=True))
    of_old = {config[key]: new[key] for key in keys}
    shapes = {k: tuple(of_old.get(n, n) for n in x.shape) for k, x in weights.items()}
    return {**config, **new}, checkpoint_folders.draw(shapes, 0)


def _lines(path, count):
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:count]


def _train(lines, path):
    """Write a SentencePiece model of the lines; return its pieces without the special ones."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [trained.id_to_piece(i) for i in range(3, trained.get_piece_size())]
