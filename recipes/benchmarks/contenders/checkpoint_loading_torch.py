"""Folders of random checkpoints, and their loading by transformers, for `checkpoint_loading`:

    python -m recipes.benchmarks.contenders.checkpoint_loading_torch make|load FOLDER

`make` writes the folders of all classes and dtypes into one folder, and `load` loads one of them
and computes a first answer. It needs torch and transformers, and imports nothing of Keras.
"""

import json
import pathlib
import sys
import time

import torch
import transformers

from ...common.machine import peak_memory

SIZES = {"vocab_size": 32128, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
CLASSES = {
    "BertForMaskedLM": {},
    "GPT2LMHeadModel": {},
    "T5ForConditionalGeneration": {**SIZES, "decoder_start_token_id": 0},
}
DTYPES = ("float32", "bfloat16")


def make(folder):
    """Write random checkpoints; by default a configuration has the sizes of the base model."""
    for name, options in CLASSES.items():
        kind = getattr(transformers, name)
        model = kind(kind.config_class(**options))
        for dtype in DTYPES:
            model.to(getattr(torch, dtype)).save_pretrained(pathlib.Path(folder, name, dtype))


def load(folder):
    """Return the seconds, also of the first answer, and the growth of the peak memory."""
    kind = getattr(transformers, pathlib.Path(folder).parent.name)
    base, wall, processor = peak_memory(), time.perf_counter(), time.process_time()
    model = kind.from_pretrained(folder, dtype=torch.float32)
    measured = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - processor,
        "megabytes": peak_memory() - base,
    }
    wall, processor = time.perf_counter(), time.process_time()
    answer(model)
    return {
        **measured,
        "answer": {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - processor,
        },
        "weight_megabytes": sum(weight.nbytes for weight in model.parameters()) / 1e6,
    }


def answer(model):
    """Compute the outputs of a row of eight tokens."""
    ids = torch.arange(5, 13)[None]
    targets = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.inference_mode():
        return model(ids, **targets).logits.numpy()


if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        print(json.dumps(load(sys.argv[2])))
