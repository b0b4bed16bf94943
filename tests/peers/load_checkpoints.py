"""Load folders by transformers, which TensorFlow cannot share a process with.

    python load_checkpoints.py FOLDER ...

Each folder gets the golden outputs of `golden_writer.py`, and `report.json`: the names of tensors
that transformers missed, did not expect or found in another shape.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "keras_attn/convert"))

import golden_writer  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    _, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    text = json.dumps({name: sorted(map(str, found)) for name, found in report.items()})
    pathlib.Path(folder, "report.json").write_text(text)
    golden_writer.main(folder, f"{folder}/keras_attn_golden.npz")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        load(path)
