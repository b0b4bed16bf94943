"""Outputs of transformers and sentence-transformers for real checkpoints, for
`real_checkpoints`:

    python -m recipes.benchmarks.contenders.real_checkpoints_torch TASK.json

It needs torch, transformers and sentence-transformers, and imports nothing of Keras.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

NEW, PROMPTS, ROWS = 12, 8, 40
EAGER = {"dtype": torch.float32, "attn_implementation": "eager"}


def tokenize(folder, lines, length):
    """Return the rows of ids of lines, each at most `length` long."""
    kind = transformers.AutoTokenizer
    if not pathlib.Path(folder, "tokenizer.json").is_file():
        kind = transformers.BertTokenizer
    tokenizer = kind.from_pretrained(folder)
    return [tokenizer(line, truncation=True, max_length=length).input_ids for line in lines]


def compute(folder, class_name, ids, mask):
    """Return the outputs for padded rows, and the model."""
    model = getattr(transformers, class_name).from_pretrained(folder, **EAGER).eval()
    return main_output(model, ids, mask), model


def main_output(model, ids, mask):
    with torch.no_grad():
        outputs = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))
    names = ("logits", "prediction_logits", "pooler_output")
    return next(outputs[name] for name in names if name in outputs).numpy()


def padded(rows, pad_id=0):
    """Return rows of one length, and the mask of their ids."""
    longest = max(map(len, rows))
    ids = np.array([row + [pad_id] * (longest - len(row)) for row in rows])
    return ids, np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def encode(folder, lines):
    """Return the vectors of lines of a sentence encoder."""
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(lines)


def main(path):
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    task = json.loads(pathlib.Path(path).read_text())
    folder, lines, out = task["folder"], task["lines"], pathlib.Path(task["out"])
    arrays = {}
    rows = tokenize(folder, lines, task["length"])
    arrays["ids"], arrays["mask"] = padded(rows)
    if task["class_name"] is None:
        arrays["outputs"] = encode(folder, lines)
    else:
        ids, mask = padded(rows[:ROWS])
        arrays["outputs"], model = compute(folder, task["class_name"], ids, mask)
        if task.get("has_rounding"):
            arrays["wide"] = main_output(model.double(), ids, mask)
            model.float()
        if task["class_name"].endswith("LMHeadModel"):
            options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": task["end"]}
            options |= {"pad_token_id": 0, "bos_token_id": None}
            prompts = [torch.tensor([row[:5]]) for row in rows[:PROMPTS]]
            new = [model.generate(x, **options)[0, x.shape[1] :].tolist() for x in prompts]
            arrays["generated"] = np.array([x + [-1] * (NEW - len(x)) for x in new])
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
