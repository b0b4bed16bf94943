"""Tokenizers as layers of Keras models."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from fork_server import ROOT, run_python
from other_backend import needs_jax, start_on

from keras_attn import text
from keras_attn.compat.keras_masks import get_keras_mask
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS

TEXTS = ["the cat sat", "", "Zwei 猫 😀", "cat\n"]
PIECES = "[PAD] [UNK] [CLS] [SEP] the cat sat ##s z ##wei".split()
MAX_LENGTH = 7


def make_tokenizers():
    model = text.SentencePiece.train(["the cat sat", "the cats", "Zwei"] * 2, 40)
    pieces = ["</s>", "<unk>", *model.vocabulary()[4:], "<pad>"]
    letters = {letter: i for i, letter in enumerate([*LETTERS, "ca", "cat"])}
    characters = text.Characters("the casZw")
    characters.template = text.Template(start=(2,), end=(3,))
    return {
        "characters": characters,
        "word_piece": text.WordPiece(PIECES),
        "sentence_piece": model,
        "byte_level": text.ByteLevelBPE(letters, ["c a", "ca t"], pad_id=0, ignore_merges=True),
        "marian": text.Marian(*[model.to_bytes()] * 2, {x: i for i, x in enumerate(pieces)}),
    }


@pytest.fixture(scope="module")
def tokenizers():
    return make_tokenizers()


@pytest.fixture(scope="module")
def model(tokenizers):
    """A model of one text with the ids of five tokenizers, and with the sums of their masks."""
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
        ids, lengths = tokenizer.encode(TEXTS, MAX_LENGTH)
        np.testing.assert_array_equal(outputs[name], ids)
        np.testing.assert_array_equal(outputs[f"{name}_count"], lengths)


def test_a_model_has_the_ids_of_each_tokenizer_and_their_masks(model, tokenizers):
    assert_are_ids(model(tf.constant(TEXTS)), tokenizers)
    assert model.output["marian"].shape == (None, None)


def test_a_copy_has_the_ids_of_each_tokenizer(model, tokenizers):
    assert_are_ids(keras.models.clone_model(model)(tf.constant(TEXTS)), tokenizers)


def test_a_call_takes_lists_tensors_and_columns_of_strings(tokenizers):
    tokenizer = tokenizers["characters"]
    expected, lengths = tokenizer.encode(TEXTS)
    for strings in (TEXTS, tf.constant(TEXTS), tf.constant(TEXTS)[:, None]):
        ids = tokenizer(strings)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(np.sum(get_keras_mask(ids), axis=1), lengths)
    column = keras.Input((1,), dtype="string")
    assert tokenizer(column).shape == (None, None)


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
        tokenizer(["a"], max_length=1)


@needs_jax
@pytest.mark.slow
def test_on_another_backend_the_error_names_encode():
    code = """
import keras
from keras_attn.text import Characters
try:
    Characters("abc")(keras.Input((), dtype="string"))
except ValueError as error:
    print(error)
"""
    done = start_on("jax", code)
    wanted = "KERAS_BACKEND=tensorflow, or give the model ids from `encode`"
    assert wanted in done.stdout, done.stderr


LOAD = """
import sys
import keras, keras_attn
import numpy as np
model = keras.models.load_model(sys.argv[1])
texts = keras.ops.convert_to_tensor(eval(sys.argv[2]))
np.savez(sys.argv[3], **model(texts))
"""
SERVE = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1])
assert "keras_attn" not in sys.modules
np.savez(sys.argv[3], **served.serve(tf.constant(eval(sys.argv[2]))))
"""


@pytest.mark.slow
def test_files_and_exports_of_keras_hold_the_tokenizers(model, tokenizers, tmp_path):
    """The file loads with Keras and this package alone; the export runs without both."""
    ids = keras.Model(model.input, {name: model.output[name] for name in tokenizers})
    ids.save(tmp_path / "model.keras")
    ids.export(tmp_path / "export", verbose=False)
    loaded = run_python("-c", LOAD, str(tmp_path / "model.keras"), repr(TEXTS), str(tmp_path / "a"))
    assert loaded.returncode == 0, loaded.stderr
    served = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "export"), repr(TEXTS), str(tmp_path / "b")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert served.returncode == 0, served.stderr
    for file in ("a.npz", "b.npz"):
        with np.load(tmp_path / file) as outputs:
            for name, tokenizer in tokenizers.items():
                np.testing.assert_array_equal(outputs[name], tokenizer.encode(TEXTS, 7)[0])
