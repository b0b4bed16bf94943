"""Write the `.bin` files in `golden_pickles`, by PyTorch: one of each format.

    python make_pickles.py

It needs torch, and no Keras. The tensors are those of `test_pickled_tensors.py`.
"""

import pathlib

import torch

FOLDER = pathlib.Path(__file__).with_name("golden_pickles")
DTYPES = ("float64", "float32", "float16", "bfloat16")
OTHERS = ("int64", "int32", "int16", "int8", "uint8", "bool")


def main():
    numbers = torch.arange(35.0).reshape(5, 7) / 8 - 2
    tensors = {}
    for dtype in DTYPES:
        value = numbers.to(getattr(torch, dtype))
        tensors[f"{dtype}.whole"] = value
        tensors[f"{dtype}.transposed"] = value.t()
        tensors[f"{dtype}.part"] = value[1:4, 1::2]
        tensors[f"{dtype}.expanded"] = value[:1].expand(3, 7)
        tensors[f"{dtype}.empty"] = value[:0]
        tensors[f"{dtype}.scalar"] = value[3, 2]
    tensors["parameter"] = torch.nn.Parameter(numbers + 1)
    tensors["buffer"] = torch.nn.Buffer(numbers + 2)
    for dtype in OTHERS:
        tensors[dtype] = numbers.to(getattr(torch, dtype))
    FOLDER.mkdir(exist_ok=True)
    content = {"state_dict": tensors, "epoch": 3, "losses": [1.5, None]}
    torch.save(content, FOLDER / "zip.bin")
    torch.save(content, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
