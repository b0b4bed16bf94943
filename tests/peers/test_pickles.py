"""`.bin` files of older checkpoints, which torch reads without running code of them."""

from pathlib import Path

import numpy as np
import peers
import pytest

pytestmark = pytest.mark.slow


def test_tensors_are_read_and_code_is_not_run():
    arrays = peers.results_of(Path(__file__).with_name("read_pickles.py"), "pickles")
    np.testing.assert_array_equal(arrays["a"], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(arrays["b"], [1.5, 2.5])
    np.testing.assert_array_equal(arrays["c"], [0.5])
    assert {arrays[name].dtype for name in "abc"} == {np.dtype("float32")}
    assert not arrays["has_run"]
    for kind in ("code", "code beside tensors", "cut", "empty", "a list"):
        sentence = str(arrays[f"refused {kind}"])
        assert sentence.startswith("The file 'pytorch_model.bin' "), kind
        assert " Received: folder=" in sentence and "\n" not in sentence, kind
