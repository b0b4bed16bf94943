"""Write `golden_sentences/*.zip`: small sentence encoders, each with its vectors.

    python tests/convert/make_sentence_goldens.py

It needs torch, transformers and sentence-transformers, and imports nothing of Keras.
"""

import json
import pathlib
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "recipes/benchmarks/contenders"))

import sentence_vectors_torch as oracle  # noqa: E402

TEXTS = ["the cat", "a", "A that thing then", "cat " * 30, "tact heath"]
ENCODERS = {
    "encoder": {
        "base": "BertModel",
        "pooling": ["weightedmean", "cls", "max", "mean_sqrt_len_tokens"],
        "include_prompt": False,
        "modules": [
            {"units": 7, "activation": "GELU", "use_residual": True},
            "Normalize",
            {"units": 7, "activation": "Tanh", "use_residual": True},
        ],
        "prompts": {"query": "the ", "passage": "eat the cat "},
        "default_prompt_name": "passage",
        "truncate_dim": 5,
    },
    "decoder": {
        "base": "Qwen3Model",
        "pooling": ["lasttoken", "mean"],
        "modules": ["Normalize"],
        "prompts": {"query": "the "},
        "length_file": {"max_seq_length": 23},
    },
}
SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "intermediate_size": 10}


def main():
    oracle.SIZES.update(SIZES)
    with tempfile.TemporaryDirectory() as folder:
        oracle.make(folder, TEXTS, ENCODERS)
        for name in ENCODERS:
            written = pathlib.Path(folder, name)
            oracle.encode(str(written), TEXTS, len(TEXTS), written / "vectors.npz")
            (written / "texts.json").write_text(json.dumps(TEXTS))
            target = ROOT / f"tests/convert/golden_sentences/{name}.zip"
            target.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
                for path in sorted(written.rglob("*")):
                    if path.is_file() and path.name != "README.md":
                        file.write(path, path.relative_to(written))


if __name__ == "__main__":
    main()
