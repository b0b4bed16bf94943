"""Folders of made-up checkpoints, whose weights are drawn from a seed.

A golden file has a configuration, the names and shapes of the tensors, and the outputs that
transformers computed with the weights of `draw`; `tests/convert/make_goldens.py` writes it.
"""

import json
import pathlib

import numpy as np
import safetensors.numpy

# Of the largest output, in float32; processors round differently.
TOLERANCE = 4e-6
GOLDEN = pathlib.Path(__file__).parents[1] / "convert/golden"


def draw(shapes, seed):
    """Return random tensors by name; gains of norms are around 1."""
    random = np.random.RandomState(seed)  # whose numbers stay the same in all versions of numpy
    weights = {}
    for name, shape in sorted(shapes.items()):
        is_gain = len(shape) == 1 and name.endswith(("weight", "running_var"))
        value = 0.25 * random.standard_normal(shape) + is_gain
        if name.endswith("inv_freq"):  # no parameter: the frequencies of sinusoids
            value = 1e4 ** (-np.arange(*shape) / shape[0])
        if name.endswith("num_batches_tracked"):
            value = 0  # no parameter: a number of steps
        weights[name] = np.asarray(value, "float32")
    return weights


def write_folder(folder, config, weights):
    """Write a folder as `save_pretrained` does."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def write_adapters(folder, config, tensors):
    """Write a folder as peft does."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    return folder


def with_vocabulary(config, weights, size):
    """Return a configuration and random tensors of another size of the vocabulary."""
    old = config["vocab_size"]
    shapes = {k: tuple(size if n == old else n for n in x.shape) for k, x in weights.items()}
    sizes = {k: size for k in ("vocab_size", "decoder_vocab_size") if k in config}
    return {**config, **sizes}, draw(shapes, 0)


def load_golden(name, folder=GOLDEN):
    """Return the configuration, the tensors, and the inputs and expected outputs."""
    with np.load(pathlib.Path(folder, f"{name}.npz")) as file:
        arrays = dict(file)
    config, shapes = (json.loads(str(arrays.pop(key))) for key in ("config", "shapes"))
    return config, draw(shapes, int(arrays.pop("seed"))), arrays


def difference(model, arrays):
    """The largest difference of the outputs at real tokens, of the largest output."""
    inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if k.startswith("input_")}
    outputs = model(inputs)
    outputs = np.array(outputs["logits"] if isinstance(outputs, dict) else outputs)
    outputs = outputs[..., arrays["columns"]][arrays["mask"]]
    expected = arrays["outputs"][arrays["mask"]]
    return np.abs(outputs - expected).max() / np.abs(expected).max()
