"""Tokenizers as layers of Keras models."""

import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from fork_server import run_python
from small_tokenizers import HARD_TEXTS, MAKERS, tokenizer_of

import keras_attn
from keras_attn import text
from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.text.tokenizers import layer

MAX_LENGTH = 11
pytestmark = pytest.mark.filterwarnings("ignore:.*pads with the id")


@pytest.fixture(scope="module")
def tokenizers():
    """One of each kind; that of characters has a template of its own."""
    made = {name.replace(" ", "_"): tokenizer_of(name) for name in MAKERS}
    changed = text.Characters("the casZw")
    changed.template = text.Template(start=(2,), end=(3,))
    return {**made, "changed": changed}


@pytest.fixture(scope="module")
def model(tokenizers):
    """A model of one text with the ids of all tokenizers, and with the sums of their masks."""
    strings = keras.Input((), dtype="string", name="text")
    outputs = {}
    for name, tokenizer in tokenizers.items():
        outputs[name] = tokenizer(strings, max_length=MAX_LENGTH)
        outputs[f"{name}_count"] = CountTokens()(outputs[name])
    return keras.Model(strings, outputs)


@keras.saving.register_keras_serializable("tests")
class CountTokens(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, ids, mask=None):
        return keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1)

    def compute_output_spec(self, ids, mask=None):
        return keras.KerasTensor(ids.shape[:1], "int32")


def assert_are_ids(outputs, tokenizers):
    for name, tokenizer in tokenizers.items():
        ids, lengths = tokenizer.encode(HARD_TEXTS, MAX_LENGTH)
        np.testing.assert_array_equal(outputs[name], ids)
        np.testing.assert_array_equal(outputs[f"{name}_count"], lengths)


def test_a_model_has_the_ids_of_each_tokenizer_and_their_masks(model, tokenizers):
    assert_are_ids(model(tf.constant(HARD_TEXTS)), tokenizers)
    assert model.output["marian"].shape == (None, None)


def test_a_copy_has_the_ids_of_each_tokenizer(model, tokenizers):
    assert_are_ids(keras.models.clone_model(model)(tf.constant(HARD_TEXTS)), tokenizers)


def test_a_call_takes_lists_tensors_and_columns_of_strings(tokenizers):
    tokenizer = tokenizers["characters"]
    expected, lengths = tokenizer.encode(HARD_TEXTS)
    for strings in (HARD_TEXTS, tf.constant(HARD_TEXTS), tf.constant(HARD_TEXTS)[:, None]):
        ids = tokenizer(strings)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(np.sum(get_keras_mask(ids), axis=1), lengths)
    column = keras.Input((1,), dtype="string")
    model = keras.Model(column, tokenizer(column))
    assert model.output.shape == (None, None)
    # XLA has no strings: on a GPU Keras would compile the model.
    assert not model.layers[-1].supports_jit


def test_an_empty_text_has_a_column(tokenizers):
    """Byte-level BPE adds no special tokens, and a layer reads no rows without columns."""
    ids = tokenizers["byte-level_bpe"]([""])
    assert ids.shape == (1, 1) and not np.any(get_keras_mask(ids))


def test_a_model_is_warned_of_padding_that_is_not_0(tokenizers):
    strings = keras.Input((), dtype="string")
    marian = tokenizers["marian"]
    with pytest.warns(UserWarning, match=f"Marian pads with the id {marian.fill_id}.*`mask="):
        ids = marian(strings)
    embedding = keras_attn.layers.TokenEmbedding(marian.vocabulary_size, 3, pad_id=marian.fill_id)
    model = keras.Model(strings, keras.layers.GlobalAveragePooling1D()(embedding(ids)))
    texts = tf.constant(["the cat sat", "a"])
    np.testing.assert_allclose(model(texts)[1:], model(texts[1:]), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizers["characters"](strings)


def test_wrong_inputs_are_refused(tokenizers):
    tokenizer = tokenizers["characters"]
    strings = keras.Input((), dtype="string")
    with pytest.raises(ValueError, match=r"strings of shape .*Received: shape=\(None, 3\), dtype="):
        tokenizer(keras.Input((3,)))
    with pytest.raises(ValueError, match=r"strings of shape .*Received: shape=\(None, 2\)"):
        tokenizer(keras.Input((2,), dtype="string"))
    with pytest.raises(ValueError, match="`text` must be a list of strings.*Received: text='abc'"):
        tokenizer("abc")
    with pytest.raises(ValueError, match="`text` must be a list of strings"):
        tokenizer([1, 2])
    with pytest.raises(ValueError, match="`max_length` must be an integer of at least 1"):
        tokenizer(strings, max_length=0)
    with pytest.raises(ValueError, match="`max_length` must be an integer of at least 2"):
        tokenizers["changed"](["a"], max_length=1)


def test_on_another_backend_the_error_names_encode(monkeypatch, tokenizers):
    monkeypatch.setattr(layer, "tf", None)  # as on JAX and torch
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow, or give .* from `encode`"):
        tokenizers["characters"](keras.Input((), dtype="string"))


LOAD = """
import json, sys
import keras, keras_attn
import numpy as np
model = keras.models.load_model(sys.argv[1])
texts = keras.ops.convert_to_tensor(json.loads(sys.argv[2]))
np.savez(sys.argv[3], **model(texts))
"""


@pytest.mark.slow
def test_a_file_holds_the_tokenizers(model, tokenizers, tmp_path):
    """It loads with Keras and this package alone. Exports are tested with those of models."""
    ids = keras.Model(model.input, {name: model.output[name] for name in tokenizers})
    ids.save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), json.dumps(HARD_TEXTS), str(tmp_path / "ids.npz")]
    loaded = run_python("-c", LOAD, *arguments)
    assert loaded.returncode == 0, loaded.stderr
    with np.load(tmp_path / "ids.npz") as outputs:
        for name, tokenizer in tokenizers.items():
            expected, _ = tokenizer.encode(HARD_TEXTS, MAX_LENGTH)
            np.testing.assert_array_equal(outputs[name], expected)
