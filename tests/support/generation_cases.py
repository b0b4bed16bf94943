"""Checkpoints with tokenizers, and options of their generation, for two processes.

Nothing of Keras is imported: a program for another Python writes the same folders.
"""

import json
import pathlib
import shutil

import checkpoint_folders
import numpy as np

IDS = pathlib.Path(__file__).parents[1] / "convert/golden_ids"
MAX_SOURCE = 27  # fewer than the positions of a made-up model
WORDS = "a the cat dog sat ran on in house river with blue small under bread tree over".split()
# Of each model: its tokenizer, the end token, and the content of its generation_config.json.
CASES = {
    "marian": (
        "marian",
        0,
        {
            **{"num_beams": 4, "max_length": 20, "forced_eos_token_id": 0},
            "renormalize_logits": True,
        },
    ),
    "t5": ("t5", 1, {"num_beams": 3, "max_length": 17, "length_penalty": 0.6, "min_length": 4}),
    "bart": (
        "roberta",
        2,
        {
            **{"num_beams": 4, "max_length": 19, "length_penalty": 2.0, "early_stopping": True},
            **{"forced_bos_token_id": 0, "forced_eos_token_id": 2, "no_repeat_ngram_size": 3},
        },
    ),
    # The first token of a target is its language; targets of mBART begin with bos.
    "mbart": (
        "roberta",
        2,
        {
            **{"num_beams": 3, "max_length": 18, "bos_token_id": 0, "bad_words_ids": [[1], [9]]},
            **{"forced_bos_token_id": 11, "forced_eos_token_id": 2},
        },
    ),
    "mt5": ("t5", 1, {"num_beams": 4, "max_length": 18, "no_repeat_ngram_size": 3}),
    "umt5": ("t5", 1, {"num_beams": 2, "max_length": 18, "bad_words_ids": [[5]], "min_length": 3}),
}
PADS = {"t5": 0, "bart": 1, "mbart": 1, "mt5": 0, "umt5": 0}
STARTS = {"bart": 2, "mbart": None}  # others begin with padding
END_BIASES = {"marian": 1.0, "bart": 2.0, "mbart": 4.0}
END_FACTORS = {"umt5": 5.0}
# Tokenizers of causal models, and the token that ends their texts.
CAUSAL = {"gpt2": "gpt2", "llama": "llama3"}
END, NEW, PROMPTS, MAX_PROMPT = 7, 9, 30, 20
# Options that act on each other, or on the first token; of BART the first token is its end, too.
OPTIONS = {
    "gpt2": (
        {"bad_words_ids": [[END], [5]], "forced_bos_token_id": 11},
        {"min_length": 40, "min_new_tokens": 3, "no_repeat_ngram_size": 1},
        {"min_new_tokens": 2 * NEW, "forced_eos_token_id": END, "num_beams": 2},
    ),
    "bart": (
        {"min_length": NEW, "min_new_tokens": 2, "no_repeat_ngram_size": 1},
        {"bad_words_ids": [[2], [9]], "no_repeat_ngram_size": 2, "num_beams": 2},
    ),
}
OPTION_PROMPTS = ([21], [21, 30, 22])
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 11, "top_p": 0.8}


def texts(count=200):
    """Return texts of one to seven words."""
    random = np.random.RandomState(3)
    return [" ".join(random.choice(WORDS, random.randint(1, 8))) for _ in range(count)]


def write(name, folder):
    """Write a checkpoint with its tokenizer and its options; return the options."""
    tokenizer, end, options = CASES[name]
    folder = pathlib.Path(folder)
    config, weights, size = _resized(name, tokenizer, folder)
    pad = PADS.get(name, size - 1)
    start = STARTS.get(name, pad)
    ids = {"pad_token_id": pad, "decoder_start_token_id": start, "eos_token_id": end}
    options = {**options, **ids}
    if name == "marian":
        options["bad_words_ids"] = [[pad]]
    # So that texts end, at various lengths.
    if name in END_BIASES:
        weights["final_logits_bias"][0, end] = END_BIASES[name]
    else:
        table = weights.get("lm_head.weight", weights["shared.weight"])
        table[end] *= END_FACTORS.get(name, 1.5)
    checkpoint_folders.write_folder(folder, {**config, **ids}, weights)
    (folder / "generation_config.json").write_text(json.dumps(options))
    return options


def write_for_options(name, folder):
    """Write a checkpoint whose own options are its tokens and length alone; return these."""
    if name in CAUSAL:
        write_causal(name, folder)
        return {"eos_token_id": END, "max_new_tokens": NEW}
    options = write(name, folder)
    kept = {k: options[k] for k in ("pad_token_id", "decoder_start_token_id", "eos_token_id")}
    (pathlib.Path(folder) / "generation_config.json").write_text(json.dumps(kept))
    return {**kept, "max_new_tokens": NEW}


def write_causal(name, folder):
    """Write a checkpoint of a causal model with its tokenizer and its options."""
    folder = pathlib.Path(folder)
    config, weights, _ = _resized(name, CAUSAL[name], folder)
    checkpoint_folders.write_folder(folder, config, weights)
    options = {"eos_token_id": END, "pad_token_id": END, "max_new_tokens": NEW}
    (folder / "generation_config.json").write_text(json.dumps(options))


def _resized(name, tokenizer, folder):
    """Copy a tokenizer; return a configuration, weights and the size of its vocabulary."""
    shutil.copytree(IDS / tokenizer, folder, ignore=shutil.ignore_patterns("ids.npz"))
    config, weights, _ = checkpoint_folders.load_golden(name)
    size = _size(folder)
    return *checkpoint_folders.with_vocabulary(config, weights, size), size


def _size(folder):
    """Return the number of a tokenizer's ids."""
    if (folder / "vocab.json").is_file():
        return 1 + max(json.loads((folder / "vocab.json").read_text(encoding="utf-8")).values())
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    ids = range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
    return 1 + max([*ids, *(token["id"] for token in content["added_tokens"])])
