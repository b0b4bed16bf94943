"""Load folders by transformers, which TensorFlow cannot share a process with.

    python load_checkpoints.py FOLDER ...

Each folder gets the golden outputs of `golden_writer.py`, and `report.json`: the names of tensors
that transformers missed, did not expect or found in another shape. Its folder `step` gets the
checkpoint after a step of gradient descent for the outputs' sum, weighted by random numbers.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "keras_attn/convert"))

import golden_writer  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    text = json.dumps({name: sorted(map(str, entries)) for name, entries in report.items()})
    pathlib.Path(folder, "report.json").write_text(text)
    golden_writer.main(folder, f"{folder}/keras_attn_golden.npz")
    if config.model_type != "reformer":  # whose backward pass refuses a model without dropout
        descend(model.eval(), config, folder)


def descend(model, config, folder):
    """Save the model after a step of length 1."""
    with np.load(f"{folder}/keras_attn_golden.npz") as file:
        inputs = {k.removeprefix("input_"): x for k, x in file.items() if k.startswith("input_")}
        mask = file["mask"]
    tensors = {k: torch.tensor(x) for k, x in golden_writer.their_inputs(inputs, config).items()}
    outputs = golden_writer.main_output(model(**tensors), golden_writer.last_tokens(inputs, config))
    factors = np.random.RandomState(1).standard_normal(outputs.shape).astype("float32")
    (outputs * torch.tensor(factors * mask[..., None])).sum().backward()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight -= weight.grad
    model.save_pretrained(f"{folder}/step")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        load(path)
