"""The table of families on the page of `convert`: each cell is what a model does."""

import functools
import re

import checkpoint_folders
import generation_cases
import pages
import pytest

from keras_attn import export, models
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.convert import from_hugging_face
from keras_attn.convert.hugging_face.conversion import FAMILIES

NAMES = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))
PAGE = pages.ROOT / "keras_attn/convert/README.md"
NO, SOME, YES = "no", "some", "yes"
# Families whose models have the parts of another one's: the exports of one are those of all.
LIKE = {
    **dict.fromkeys(["distilbert", "roberta"], "bert"),
    **dict.fromkeys(["gemma", "mistral", "qwen3"], "qwen2"),
}
# Rounding differs between machines and libraries of linear algebra.
ROUNDING = 2


def rows():
    """Return the cells of each family's row by the table's head."""
    text = pages.text(PAGE)
    table = text[text.index("| family |") :].split("\n\n")[0].splitlines()
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {cells[0].strip("`"): dict(zip(head, cells, strict=True)) for cells in lines}


TABLE = rows()


@functools.cache
def family(name):
    return checkpoint_folders.load_golden(name)[0]["model_type"]


def names_of(model_type):
    return [name for name in NAMES if family(name) == model_type]


def converted(name, folder):
    config, weights, arrays = checkpoint_folders.load_golden(name)
    model, _ = from_hugging_face(checkpoint_folders.write_folder(folder, config, weights))
    return model, config, arrays


def ids_of(model, config):
    """Return the ids of the first and the last token, of a model that generates."""
    if not hasattr(model, "reads_prompt"):
        return {}
    start, end = config.get("decoder_start_token_id"), config.get("eos_token_id")
    end = end if isinstance(end, int) and end < config["vocab_size"] else 1
    return {"max_length": 5, "bos_id": start or 0, "eos_id": end}


def test_each_family_has_a_row_and_each_of_its_checkpoints_is_named():
    assert TABLE.keys() == FAMILIES.keys()
    for model_type, row in TABLE.items():
        assert len(row["compared"].split(", ")) == len(names_of(model_type)), model_type


def test_texts_are_compared_for_the_families_of_the_table():
    found = {name for name, row in TABLE.items() if row["texts"] == YES}
    assert found == {*generation_cases.CASES, *generation_cases.CAUSAL}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_outputs_differ_by_at_most_the_number_of_the_table(name, tmp_path):
    model, _, arrays = converted(name, tmp_path)
    figure = float(TABLE[family(name)]["outputs"])
    assert checkpoint_folders.difference(model, arrays) <= ROUNDING * figure


def parts_of(model):
    """Return the classes of the model, its layers and their patterns."""
    layers = flatten_layers(model)
    return {type(x) for layer in layers for x in (layer, getattr(layer, "pattern", None))}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", LIKE)
def test_a_family_has_the_parts_of_one_that_is_exported(model_type, tmp_path):
    one, other = (
        converted(names_of(family)[0], tmp_path / family)[0]
        for family in (model_type, LIKE[model_type])
    )
    assert parts_of(one) <= parts_of(other) and LIKE[model_type] not in LIKE
    assert TABLE[model_type]["ONNX"] == TABLE[LIKE[model_type]]["ONNX"]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TABLE)
def test_files_are_written_where_the_table_says_so(model_type, tmp_path):
    """CTranslate2 takes no, some or all of the checkpoints other than classifiers."""
    written = []
    for name in names_of(model_type):
        model, config, _ = converted(name, tmp_path / name)
        ids = ids_of(model, config)
        is_classifier = isinstance(model, models.Classifier) and model.num_classes is not None
        if name == names_of(model_type)[0] and model_type not in LIKE:
            assert writes_onnx(model, tmp_path / "model.onnx") == TABLE[model_type]["ONNX"]
        if not is_classifier:
            written.append(writes_ctranslate2(model, tmp_path / f"{name}.ct2", ids))
    found = YES if written and all(written) else SOME if any(written) else NO
    assert found == TABLE[model_type]["CTranslate2"]


def writes_onnx(model, path):
    """Return whether the first part of a model that ONNX files have is written."""
    if isinstance(model, models.Classifier):
        return NO
    try:
        export.onnx(model, path, max_length=5, max_source_length=7)
    except ValueError as error:
        assert re.search("cannot be converted to ONNX|`pad_id` must be an id", str(error))
        return NO
    return YES


def writes_ctranslate2(model, path, ids):
    try:
        export.ctranslate2(model, path, **ids)
    except ValueError as error:
        assert re.search("CTranslate2 lacks this part|must be an?", str(error))
        return False
    return True
