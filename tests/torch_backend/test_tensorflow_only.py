"""Calls that need TensorFlow raise one sentence on torch."""

import os
import subprocess
import sys

import numpy as np
import pytest
from catalogue_models import make

from keras_attn import distribution, generation, text


def short_exports(name):
    from keras_attn import export

    return {
        "saved_model": lambda path: export.saved_model(make(name), path, max_length=3),
        "onnx": lambda path: export.onnx(make(name), f"{path}.onnx", max_length=3),
        "signatures": lambda path: export.TokenGenerator(make(name), max_length=3),
        "steps": lambda path: export.SegmentSteps(make("models.transformer_xl")),
    }


@pytest.mark.parametrize("form", ["saved_model", "onnx", "signatures", "steps"])
def test_exports_name_the_backend(form, tmp_path):
    pytest.importorskip("tensorflow")
    with pytest.raises(
        ValueError, match="with KERAS_BACKEND=tensorflow. Received: backend='torch'"
    ):
        short_exports("models.gpt")[form](tmp_path / "export")


def test_compiled_decoding_and_strategies_name_the_backend():
    ids = np.array([[4, 5]])
    with pytest.raises(ValueError, match="needs the TensorFlow backend"):
        generation.generate(make("models.gpt"), ids, "greedy", 3, jit_compile=True)
    for name in ("mirrored", "multi_worker", "tpu"):
        with pytest.raises(ValueError, match="with KERAS_BACKEND=tensorflow there are"):
            distribution.strategy(name)


def test_tokenizers_name_the_backend_where_they_are_called_in_a_graph():
    tf = pytest.importorskip("tensorflow")
    tokenizer = text.Characters.train(["abc"])
    sentence = "Tokenizers run in TensorFlow's graphs and datasets with KERAS_BACKEND=tensorflow"
    with pytest.raises(ValueError, match=sentence):
        tokenizer.encode(tf.constant(["abc"]))
    with pytest.raises(ValueError, match=sentence):
        tf.data.Dataset.from_tensors(["abc"]).map(lambda x: tokenizer.encode(x)[0])


WITHOUT_TENSORFLOW = """
import sys

sys.modules["tensorflow"] = None  # as if it were not installed
from keras_attn import models, text

models.gpt(13, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=11)
batches = text.TokenBatches([[5, 6, 7]], [[8, 9]])
for call in (batches.as_dataset, lambda: __import__("keras_attn.export")):
    try:
        call()
    except ImportError as error:
        print(error)
"""


def test_without_tensorflow_the_sentence_says_what_to_install():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    dataset, export = done.stdout.splitlines()
    assert dataset.startswith("`as_dataset` makes a dataset of TensorFlow: pip install tensorflow")
    assert export.startswith("Exports need TensorFlow: pip install")
