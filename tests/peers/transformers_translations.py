"""Translations of Hugging Face's transformers 5.23 by a folder, beams as its options say:

    python transformers_translations.py RESULTS.npz FOLDER TEXTS.json

needs torch and transformers, and nothing of this project.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers


def translations(model, tokenizer, texts, **options):
    """Return the texts and, of a beam search, their scores."""
    given = tokenizer(texts, return_tensors="pt", padding=True)
    found = model.generate(**given, **options, return_dict_in_generate=True, output_scores=True)
    decoded = tokenizer.batch_decode(
        found.sequences, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    scores = getattr(found, "sequences_scores", None)
    return decoded, None if scores is None else scores.numpy()


def main(path, folder, texts):
    texts = json.loads(pathlib.Path(texts).read_text(encoding="utf-8"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    arrays = {}
    arrays["beam/texts"], arrays["beam/scores"] = translations(model, tokenizer, texts)
    arrays["greedy/texts"], _ = translations(model, tokenizer, texts, num_beams=1)
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
