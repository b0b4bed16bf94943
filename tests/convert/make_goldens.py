"""Write tests/convert/golden: outputs of transformers for made-up checkpoints.

    python tests/convert/make_goldens.py [--seed SEED] [--out FOLDER] [NAME ...]
    python tests/convert/make_goldens.py --new LlamaForCausalLM '{"vocab_size": 29}' NAME

The first form computes the outputs of files that are there anew, from the configuration and the
shapes in each. The second one adds a file: a class, and the options of its configuration. It needs
torch and transformers 5, or 4 for the classes of Transformer-XL, chronos-forecasting for that of
Chronos-Bolt, and no Keras.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "keras_attn/convert"), str(ROOT / "tests/support")]

import checkpoint_folders  # noqa: E402
import golden_writer  # noqa: E402


def describe_golden(name):
    """Return the configuration of a golden file, and the shapes of its tensors."""
    with np.load(checkpoint_folders.GOLDEN / f"{name}.npz") as file:
        return [json.loads(str(file[key])) for key in ("config", "shapes")]


def describe_class(kind, options):
    """Return the configuration and the shapes of tensors that a class saves."""
    from safetensors import safe_open  # not installed where the tests run

    cls = golden_writer.class_of(kind)
    with tempfile.TemporaryDirectory() as folder:
        cls(cls.config_class(**options)).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}
        return json.loads(pathlib.Path(folder, "config.json").read_text()), shapes


def write(name, config, shapes, seed, out):
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_folders.write_folder(folder, config, checkpoint_folders.draw(shapes, seed))
        golden_writer.main(folder, f"{folder}/golden.npz")
        with np.load(f"{folder}/golden.npz") as file:
            arrays = dict(file)
    target = pathlib.Path(out, f"{name}.npz")
    texts = {"config": json.dumps(config), "shapes": json.dumps(shapes)}
    np.savez_compressed(target, seed=seed, **texts, **arrays)
    print(f"{name}: {target.stat().st_size} bytes, largest {np.abs(arrays['outputs']).max():.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--new", nargs=2, metavar=("CLASS", "OPTIONS"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=checkpoint_folders.GOLDEN)
    arguments = parser.parse_args()
    stored = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))
    for case in arguments.names or stored:
        if arguments.new:
            kind, options = arguments.new
            made = describe_class(kind, json.loads(options))
        else:
            made = describe_golden(case)
        write(case, *made, arguments.seed, arguments.out)
