"""Experts of decoders in each layout of a checkpoint: one by one, joined, and in MXFP4."""

import checkpoint_folders
import numpy as np
import pytest

from keras_attn.convert import from_hugging_face, load_peft, to_hugging_face
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.families.expert_decoders import unpack_mxfp4


def assert_equal_models(ours, theirs):
    for one, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), one.path)


def joined(weights, names, router):
    """Return the tensors with the experts of each block in two, and the router's other name."""
    others, experts = {}, {}
    for name, value in weights.items():
        if ".experts." not in name:
            others[name.replace(router, "mlp.gate")] = value
            continue
        block, expert = name.split(".experts.")
        index, kind, _ = expert.split(".")
        block = block.replace("block_sparse_moe", "mlp")
        experts.setdefault(block, {})[names.index(kind), int(index)] = value
    for block, parts in experts.items():
        gate, up, down = (
            np.stack([parts[kind, index] for index in range(len(parts) // 3)]) for kind in range(3)
        )
        others[f"{block}.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
        others[f"{block}.experts.down_proj"] = down
    return others


@pytest.mark.parametrize(
    "name, count", {"mixtral": 2, "qwen2_moe": 4, "qwen3_moe": 8, "gpt_oss": 4}.items()
)
def test_without_a_number_of_experts_a_token_has_that_of_the_class_in_transformers(name, count):
    options, _, _ = checkpoint_folders.load_golden(name)
    del options["num_experts_per_tok"]
    config = Config("folder", {**options, "num_experts": 11, "num_local_experts": 11})
    assert FAMILIES[name].mixture(config, "zeros").top_k == count


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, names, router",
    [
        ("mixtral", ("w1", "w3", "w2"), "block_sparse_moe.gate"),
        ("qwen3_moe", ("gate_proj", "up_proj", "down_proj"), "mlp.gate"),
    ],
)
def test_joined_experts_are_those_stored_one_by_one(name, names, router, checkpoint, tmp_path):
    case = checkpoint(name)
    weights = joined(case.weights, names, router)
    checkpoint_folders.write_folder(tmp_path, case.config, weights)
    assert_equal_models(from_hugging_face(tmp_path)[0], case.model)


def of_four_bits(bits):
    """The number of a sign, two bits of an exponent and one of a mantissa."""
    exponent, mantissa = bits >> 1 & 3, bits & 1
    size = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
    return -size if bits >> 3 else size


def test_a_byte_of_mxfp4_holds_two_numbers_the_first_in_its_low_bits():
    blocks = np.random.RandomState(0).randint(0, 256, (2, 3, 5, 16))
    blocks[0, 0, 0] = range(0, 256, 16)
    scales = np.random.RandomState(1).randint(100, 140, (2, 3, 5))
    expected = np.zeros((2, 5 * 32, 3), "float32")
    for e, out, group, byte in np.ndindex(blocks.shape):
        for half in (0, 1):
            number = of_four_bits(int(blocks[e, out, group, byte]) >> 4 * half & 15)
            row = 32 * group + 2 * byte + half
            expected[e, row, out] = number * 2.0 ** (scales[e, out, group] - 127.0)
    numbers = unpack_mxfp4(*(x.astype("float32") for x in (blocks, scales)))
    np.testing.assert_array_equal(numbers, expected)


def packed_folder(path, config, shapes):
    """Write a gpt-oss of width 32 whose kernels of experts are in MXFP4; return their numbers."""
    random, numbers = np.random.RandomState(3), {}
    shapes = {
        name: [64 if "gate_up" in name and n == 48 else 32 if n == 24 else n for n in shape]
        for name, shape in shapes.items()
    }
    weights = checkpoint_folders.draw(shapes, 0)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        count, inputs, outputs = weights.pop(name).shape
        blocks = random.randint(0, 256, (count, outputs, inputs // 32, 16)).astype("uint8")
        scales = random.randint(120, 126, blocks.shape[:3]).astype("uint8")
        numbers[name] = unpack_mxfp4(blocks, scales)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    sizes = {"hidden_size": 32, "intermediate_size": 32}
    config = {**config, **sizes, "quantization_config": {"quant_method": "mxfp4"}}
    checkpoint_folders.write_folder(path, config, weights)
    return weights, numbers


@pytest.mark.slow
def test_a_gpt_oss_in_mxfp4_is_read_and_written_in_floats(tmp_path):
    """Kernels are square, so the shapes do not tell that those of MXFP4 are transposed."""
    config, weights, _ = checkpoint_folders.load_golden("gpt_oss")
    shapes = {name: value.shape for name, value in weights.items()}
    _, numbers = packed_folder(tmp_path / "packed", config, shapes)
    model, _ = from_hugging_face(tmp_path / "packed")
    for index, block in enumerate(model.depth.blocks):
        experts, prefix = block.feed_forward, f"model.layers.{index}.mlp.experts."
        gate_up = numbers[f"{prefix}gate_up_proj"]
        np.testing.assert_array_equal(experts.gate_kernel.numpy(), gate_up[..., 0::2])
        np.testing.assert_array_equal(experts.intermediate_kernel.numpy(), gate_up[..., 1::2])
        np.testing.assert_array_equal(experts.output_kernel.numpy(), numbers[f"{prefix}down_proj"])
    assert to_hugging_face(model, tmp_path / "floats") == "gpt_oss"
    assert_equal_models(from_hugging_face(tmp_path / "floats")[0], model)


@pytest.mark.slow
def test_scales_of_another_shape_are_refused(tmp_path):
    config, weights, _ = checkpoint_folders.load_golden("gpt_oss")
    shapes = {name: value.shape for name, value in weights.items()}
    packed, _ = packed_folder(tmp_path / "packed", config, shapes)
    name = next(name for name in packed if name.endswith("_scales"))
    packed[name] = packed[name][:, 1:]
    options = {"hidden_size": 32, "intermediate_size": 32}
    config = {**config, **options, "quantization_config": {"quant_method": "mxfp4"}}
    checkpoint_folders.write_folder(tmp_path / "cut", config, packed)
    with pytest.raises(ValueError, match="must have a number for each of"):
        from_hugging_face(tmp_path / "cut")


@pytest.mark.slow
def test_adapters_of_experts_are_refused_by_name(checkpoint, tmp_path):
    """peft adapts the joined parameters of transformers, which are no linear layers."""
    case = checkpoint("qwen3_moe")
    name = "base_model.model.model.layers.1.mlp.experts.lora_{}.weight"
    tensors = {
        name.format(half): np.ones(shape, "float32")
        for half, shape in (("A", (10, 24)), ("B", (24, 10)))
    }
    config = {"peft_type": "LORA", "r": 10, "lora_alpha": 2, "target_modules": ["experts"]}
    checkpoint_folders.write_adapters(tmp_path / "adapters", config, tensors)
    with pytest.raises(ValueError, match=r"layers.1.mlp.experts' is of no projection"):
        load_peft(case.model, tmp_path / "adapters", case.folder)
