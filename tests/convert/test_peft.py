"""LoRA adapters of peft, in and out of converted models."""

import functools
import json

import checkpoint_folders
import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_attn import layers
from keras_attn.convert import from_hugging_face, load_peft, save_peft, to_hugging_face
from keras_attn.convert.hugging_face import kernel_sources, peft

GOLDEN = checkpoint_folders.GOLDEN.with_name("golden_peft")
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
# The projections of both blocks that the golden files adapt; of BERT the head's too.
NUM_ADAPTED = {"bert": 2 * 3 + 1, "gpt2_scales": 2 * 5, "llama_biases": 7}


class Case:
    """A checkpoint and adapters of it, in folders, and the outputs of peft."""

    def __init__(self, name, path, checkpoint):
        self.path, self.base, self.plain = path, checkpoint.folder, checkpoint.model
        config, self.tensors, self.arrays = checkpoint_folders.load_golden(name, GOLDEN)
        self.options = config
        self.folder = checkpoint_folders.write_adapters(path / "adapters", config, self.tensors)

    @functools.cached_property
    def loaded(self):
        """The model with the adapters, and their paths."""
        model, _ = from_hugging_face(self.base)
        return model, load_peft(model, self.folder, self.base)


@pytest.fixture(scope="module")
def case_of(tmp_path_factory, checkpoint):
    """Function from a golden file's name to its case."""
    return functools.cache(lambda name: Case(name, tmp_path_factory.mktemp(name), checkpoint(name)))


@pytest.fixture(scope="module")
def searches():
    return {}


@pytest.fixture(autouse=True)
def _one_search_of_each_folder(monkeypatch, searches):
    """Models of the same folder share the search for its layers."""

    def search(model, folder):
        if folder not in searches:
            searches[folder] = kernel_sources.kernel_sources(model, folder)
        return searches[folder]

    monkeypatch.setattr(peft, "kernel_sources", search)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "llama_biases")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2_scales", *SLOW])
def test_outputs_are_those_of_peft(name, case_of):
    case = case_of(name)
    model, paths = case.loaded
    assert len(paths) == NUM_ADAPTED[name] == len(set(paths))
    assert checkpoint_folders.difference(model, case.arrays) <= checkpoint_folders.TOLERANCE
    assert checkpoint_folders.difference(case.plain, case.arrays) > 0.01
    parts = {id(v) for v in model.trainable_variables}
    assert len(parts) == 2 * len(paths)


def updates(options, tensors):
    """B A times alpha / r for each layer by name, in float64."""
    products = {}
    for name in {key.partition(".lora_")[0] for key in tensors}:
        a, b = (tensors[f"{name}.lora_{x}.weight"].astype("float64") for x in "AB")
        assert len(a) == options["r"]
        products[name] = b @ a * options["lora_alpha"] / len(a)
    return products


@pytest.mark.parametrize("name", ["gpt2_scales", *SLOW])
def test_written_adapters_have_the_products_of_those_read(name, case_of, tmp_path):
    """Of the golden's options those that change the scale of a layer are undone."""
    case = case_of(name)
    folder = save_peft(case.loaded[0], tmp_path / "out", case.base)
    options = json.loads((folder / CONFIG).read_text())
    tensors = safetensors.numpy.load_file(folder / TENSORS)
    assert options["fan_in_fan_out"] == (name == "gpt2_scales")
    products = updates(options, tensors)
    assert {f"base_model.model.{target}" for target in options["target_modules"]} == products.keys()
    for layer, update in products.items():
        a, b = (case.tensors[f"{layer}.lora_{x}.weight"].astype("float64") for x in "AB")
        alpha = case.options["lora_alpha"]
        if name == "llama_biases" and layer.endswith("layers.1.self_attn.q_proj"):
            alpha = 7
        scale = alpha / (len(a) ** 0.5 if case.options["use_rslora"] else len(a))
        np.testing.assert_allclose(update, scale * b @ a, atol=1e-5)
    again = from_hugging_face(case.base)[0]
    load_peft(again, folder, case.base)
    assert checkpoint_folders.difference(again, case.arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_half_precision_does_not_disturb_the_search_for_layers(case_of):
    case = case_of("gpt2_scales")
    expected = peft.kernel_sources(case.plain, case.base)
    keras.config.set_dtype_policy("bfloat16")
    sources = kernel_sources.kernel_sources(case.plain, case.base)
    assert keras.config.dtype_policy().name == "bfloat16"
    assert expected.keys() == sources.keys() and len(sources) == 2 * 6
    for path, source in sources.items():
        assert source.name == expected[path].name
        np.testing.assert_array_equal(source.inputs, expected[path].inputs)


def option(**options):
    def damage(folder):
        config = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**config, **options}))

    return damage


def tensors(change):
    """Change the dict of tensors by a function of it and of the first layer's name."""

    def damage(folder):
        arrays = safetensors.numpy.load_file(folder / TENSORS)
        first = sorted(arrays)[0].partition(".lora_")[0]
        arrays.update(change(arrays, first))
        kept = {k: np.ascontiguousarray(x) for k, x in arrays.items() if x is not None}
        safetensors.numpy.save_file(kept, folder / TENSORS)

    return damage


def half(arrays, first):
    return {f"{first}.lora_B.weight": None}


def renamed(old, new):
    """Move all tensors of layers whose name has `old`."""

    def change(arrays, first):
        names = [name for name in arrays if old in name]
        return {
            **dict.fromkeys(names),
            **{name.replace(old, new): arrays[name] for name in names if new},
        }

    return change


def cut(folder):
    path = folder / TENSORS
    path.write_bytes(path.read_bytes()[:-9])


BAD = {
    "no config": (lambda f: (f / CONFIG).unlink(), "no file 'adapter_config.json'"),
    "no JSON": (lambda f: (f / CONFIG).write_text("{"), "'adapter_config.json' is cut or damaged"),
    "no tensors": (lambda f: (f / TENSORS).unlink(), "no file 'adapter_model.safetensors'"),
    "cut": (cut, "'adapter_model.safetensors' is cut or damaged"),
    "dora": (option(use_dora=True), "use_dora=True of adapter_config.json is not converted"),
    "modules_to_save": (option(modules_to_save=["score"]), r"modules_to_save=\['score'\]"),
    "biases": (option(bias="all"), "bias='all' of adapter_config.json is not converted"),
    "a new option": (option(use_later=1), "use_later=1 of adapter_config.json is not converted"),
    "pissa": (option(init_lora_weights="pissa"), "'pissa' .* changes the base weights"),
    "another kind": (option(peft_type="IA3"), "peft_type 'IA3' is not converted, only LORA"),
    "wrong r": (option(r=4), r"shapes \(3, 12\) and \(36, 3\), where .* the rank is 4"),
    "no number": (option(lora_alpha="5"), "`lora_alpha` .* must be a number above 0, not '5'"),
    "a pattern": (option(rank_pattern={"(": 3}), r"The pattern '\(' of rank_pattern"),
    "unknown target": (option(target_modules=["c_attn", "c_proj", "q"]), "of the target 'q'"),
    "half a pair": (tensors(half), "lacks the tensor 'base_model.*c_attn.lora_B.weight'"),
    "nothing": (
        tensors(lambda arrays, first: dict.fromkeys(arrays)),
        "lora_A and lora_B, not 'none'",
    ),
    "embedding": (
        tensors(lambda arrays, first: {"base_model.model.lora_embedding_A": np.ones((3, 4))}),
        "must hold pairs lora_A and lora_B, not 'base_model.model.lora_embedding_A'",
    ),
    "NaN": (
        tensors(lambda arrays, first: {f"{first}.lora_A.weight": np.full((3, 12), np.nan)}),
        "holds numbers that are not finite",
    ),
    "another layer": (tensors(renamed("h.1.", "h.2.")), "h.2.attn.c_attn' is of no projection"),
    "a layer less": (tensors(renamed("h.1.attn", "")), "lack one of '.*h.1.attn.c_attn'"),
    "another base": (
        tensors(lambda arrays, first: {f"{first}.lora_A.weight": np.ones((3, 16), "float32")}),
        "from 16 inputs to 36 outputs, where the layer is from 12 to 36",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_damaged_folder_is_refused_in_one_sentence(kind, case_of, tmp_path):
    case, (damage, message) = case_of("gpt2_scales"), BAD[kind]
    folder = checkpoint_folders.write_adapters(tmp_path / "adapters", case.options, case.tensors)
    damage(folder)
    with pytest.raises(ValueError, match=message) as raised:
        load_peft(case.plain, folder, case.base)
    assert str(raised.value).count(". ") <= 1 and f"folder={str(folder)!r}" in str(raised.value)
    assert not any("lora" in weight.name for weight in case.plain.weights)


@pytest.mark.slow
def test_a_model_of_another_folder_is_refused(case_of, tmp_path):
    case = case_of("gpt2_scales")
    config, weights, _ = checkpoint_folders.load_golden("llama")
    other = checkpoint_folders.write_folder(tmp_path / "llama", config, weights)
    for call in (load_peft, save_peft):
        with pytest.raises(ValueError, match="must be converted from the folder.*other"):
            call(case.loaded[0], case.folder, other)


@pytest.mark.slow
def test_a_model_with_other_adapters_is_refused(case_of):
    case = case_of("gpt2_scales")
    model, _ = from_hugging_face(case.base)
    with pytest.raises(ValueError, match="`model` must have adapters"):
        save_peft(model, case.path / "none", case.base)
    layers.add_lora(model, 2)
    with pytest.raises(ValueError, match="no adapters but those to be loaded"):
        load_peft(model, case.folder, case.base)
    with pytest.raises(ValueError, match="merge_lora.*Received: 4 adapters"):
        to_hugging_face(model, case.path / "none")
