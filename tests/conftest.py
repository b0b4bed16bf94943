"""What every test starts from: the TensorFlow backend, one seed, float32."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import pytest  # noqa: E402


def _start_afresh():
    keras.config.set_dtype_policy("float32")
    keras.utils.set_random_seed(20170612)


# Fixtures of a whole module run before its first test, so the module is seeded too: no result
# may depend on which tests ran before, or on which worker.
@pytest.fixture(autouse=True, scope="module")
def _fresh_module():
    _start_afresh()


@pytest.fixture(autouse=True)
def _fresh_test():
    _start_afresh()
    yield
    keras.config.set_dtype_policy("float32")
