"""A folder of a made-up Marian with the tokenizer of a corpus, as OPUS-MT models have it."""

import io
import json
import pathlib

import checkpoint_folders
import numpy as np
import sentencepiece

# Beginnings and endings of made-up words of two languages.
SYLLABLES = (
    ("bcdfhlmrst", "ad at er in ing on out own"),
    ("bdfghkmnrs", "ä ei ten ung"),
)
MAX_LENGTH = 23


def corpus(count):
    """Return made-up sentences of two languages."""
    random, sides = np.random.RandomState(5), []
    for beginnings, endings in SYLLABLES:
        words = [f"{x}{y}" for x in beginnings for y in endings.split()]
        rows = (random.choice(words, random.randint(1, 11)) for _ in range(count))
        sides.append([" ".join(row).capitalize() + "." for row in rows])
    return sides


def write(folder, sides):
    """Write the checkpoint, whose random weights give other texts for other sources."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    pieces = [
        _train(lines, folder / f"{side}.spm")
        for side, lines in zip(("source", "target"), sides, strict=True)
    ]
    vocabulary = dict.fromkeys(["</s>", "<unk>", *pieces[0], *pieces[1], "<pad>"])
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    files = {
        "vocab.json": ids,
        "tokenizer_config.json": {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False},
    }
    config, weights = _resized(len(ids))
    for name, weight in weights.items():
        if "bias" in name:
            weight *= 0.2
        elif weight.ndim == 2:
            weight *= 0.5 if "shared" in name or "embed_tokens" in name else 8.0
    # Among fewer tokens the end is more likely.
    weights["final_logits_bias"][0, 0] = min(1.4, np.log(len(ids)) - 4.3)
    pad = ids["<pad>"]
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


def _resized(size):
    """Return a configuration and random tensors, with another size of the vocabulary."""
    config, weights, _ = checkpoint_folders.load_golden("marian")
    old = config["vocab_size"]
    shapes = {k: tuple(size if n == old else n for n in x.shape) for k, x in weights.items()}
    sizes = {"vocab_size": size, "decoder_vocab_size": size}
    return {**config, **sizes}, checkpoint_folders.draw(shapes, 0)


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
