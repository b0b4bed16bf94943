"""Write tests/convert/golden_peft: outputs of made-up checkpoints with adapters of peft.

    python tests/convert/make_peft_goldens.py [--seed SEED] [--out FOLDER] [NAME ...]
    python tests/convert/make_peft_goldens.py --read BASE ADAPTERS FILE

It needs torch, transformers 5 and peft, and no Keras. The second form writes the outputs of one
checkpoint with the adapters of a folder.
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

# Of each golden file of a checkpoint: the arguments of `peft.LoraConfig`.
CASES = {
    "bert": {"target_modules": ["value", "output.dense", "transform.dense"], "r": 3},
    "gpt2_scales": {
        **{"target_modules": ["c_attn", "c_proj"], "r": 3, "lora_alpha": 5, "use_rslora": True},
        **{"fan_in_fan_out": True, "lora_dropout": 0.5},
    },
    "llama_biases": {
        "target_modules": [f"{name}_proj" for name in "q k v o gate up down".split()],
        **{"r": 2, "lora_alpha": 3, "layers_to_transform": [1]},
        **{"rank_pattern": {"down_proj": 5}, "alpha_pattern": {r"1\.self_attn\.q_proj": 7}},
    },
}


def write(name, seed, out):
    """Write the configuration and the shapes of adapters, and the outputs with them."""
    import peft
    import torch
    from peft.utils import get_peft_model_state_dict

    config, weights, _ = checkpoint_folders.load_golden(name)
    with tempfile.TemporaryDirectory() as folder:
        base, options = golden_writer.load(checkpoint_folders.write_folder(folder, config, weights))
        model = peft.get_peft_model(base, peft.LoraConfig(**CASES[name]))
        model.save_pretrained(f"{folder}/adapters")
        written = json.loads(pathlib.Path(folder, "adapters/adapter_config.json").read_text())
        shapes = {k: tuple(x.shape) for k, x in get_peft_model_state_dict(model).items()}
        tensors = checkpoint_folders.draw(shapes, seed)
        state = {k: torch.tensor(x) for k, x in tensors.items()}
        assert not peft.set_peft_model_state_dict(model, state).unexpected_keys
        golden_writer.write(model, options, f"{folder}/golden.npz")
        with np.load(f"{folder}/golden.npz") as file:
            arrays = dict(file)
    written["base_model_name_or_path"] = name
    texts = {"config": json.dumps(written), "shapes": json.dumps(shapes)}
    target = pathlib.Path(out, f"{name}.npz")
    np.savez_compressed(target, seed=seed, **texts, **arrays)
    print(f"{name}: {target.stat().st_size} bytes, largest {np.abs(arrays['outputs']).max():.3g}")


def read(base, adapters, file):
    """Write the outputs of a checkpoint with the adapters of a folder."""
    import peft

    model, options = golden_writer.load(base)
    model = peft.PeftModel.from_pretrained(model, adapters)
    golden_writer.write(model, options, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--read", nargs=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=checkpoint_folders.GOLDEN.with_name("golden_peft"))
    arguments = parser.parse_args()
    if arguments.read:
        read(*arguments.read)
    else:
        for case in arguments.names:
            write(case, arguments.seed, arguments.out)
