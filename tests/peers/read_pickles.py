"""Read `.bin` files by torch, which the tests' Python need not have.

    python read_pickles.py RESULTS.npz

Results are the tensors of a whole file, and by kind the sentence for a file that is refused.
"""

import importlib.util
import pathlib
import pickle
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location(
    "tensor_files", ROOT / "keras_attn/convert/hugging_face/tensor_files.py"
)
tensor_files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tensor_files)


class Code:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.write_text, (pathlib.Path(self.path), "ran")


def main(results):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path, ran = folder / tensor_files.PICKLE, folder / "ran"
        tensors = {
            **{"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.5, 2.5]).half()},
            "c": torch.tensor([0.5]).bfloat16(),
        }
        torch.save(tensors, path)
        arrays = {k: read() for k, (_, read) in tensor_files.list_tensors(folder).items()}
        damages = {
            "code": lambda: path.write_bytes(pickle.dumps(Code(ran))),
            "code beside tensors": lambda: torch.save({**tensors, "d": Code(ran)}, path),
            "cut": lambda: path.write_bytes(path.read_bytes()[:-40]),
            "empty": lambda: path.write_bytes(b""),
            "a list": lambda: torch.save([tensors["a"]], path),
        }
        for kind, damage in damages.items():
            damage()
            try:
                tensor_files.list_tensors(folder)
                sentence = ""
            except ValueError as error:
                sentence = str(error)
            arrays[f"refused {kind}"] = np.array(sentence)
        arrays["has_run"] = np.array(ran.exists())
    np.savez(results, **{f"pickles/{k}": x for k, x in arrays.items()})


if __name__ == "__main__":
    main(sys.argv[1])
