"""Each test starts on TensorFlow, with the same seed and float32."""

import gc
import os
import pathlib
import random
import shutil

import pytest
from fork_server import run_python

# Before the fixtures import Keras: the process that deals tests out to others needs none.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).parents[1]

# Programs for another Python, with torch and transformers.
collect_ignore_glob = ["convert/make_*.py"]


# Examples of docstrings that export, train or generate for seconds: they are slow tests.
SLOW_EXAMPLES = [
    ROOT / "keras_attn" / name
    for name in """
    export generation/constrained.py generation/decoding.py generation/sampling.py
    generation/text_to_text.py losses/auxiliary_losses.py losses/contrastive_loss.py
    memory/stateful_segments.py models/encoder_decoder.py models/paper_sizes.py
    models/papers/image_transformer.py
    testing/conformance.py viz/patterns.py
    """.split()
]


def pytest_configure(config):
    """Read no docstrings whose examples would be deselected: that takes longer than the tests."""
    if missing := [str(path) for path in SLOW_EXAMPLES if not path.exists()]:
        raise pytest.UsageError(f"SLOW_EXAMPLES of tests/conftest.py names no file: {missing}.")
    if config.option.markexpr == "not slow":
        config.option.ignore = [*(config.option.ignore or []), *map(str, SLOW_EXAMPLES)]
    if config.option.markexpr == "slow" and "keras_attn" in config.args:
        config.args.remove("keras_attn")
        config.args.extend(map(str, SLOW_EXAMPLES))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Collect tests alone from `tests`: no docstring there has an example."""
    return [each for each in (yield) if type(each) is pytest.Module]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark slow examples before tests are deselected by their marks."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in SLOW_EXAMPLES):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Exclude what the imports made, 440,000 objects, from each later garbage collection."""
    gc.collect()
    gc.freeze()
    # Tracing makes many objects, few of them garbage in cycles.
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def _conformance_checks_fork():
    """The check `fresh_process` forks a process that has imported Keras instead of a new one."""
    from keras_attn.testing import serialization

    serialization.run_python = run_python


SEED = 20170612


def _reset():
    """Reset the dtype policy and the seeds from which layers and initializers take their own.

    TensorFlow's seed is set for each module only: setting it frees all kernels and functions that
    eager mode has prepared, those of a module's models too.
    """
    import keras
    import numpy as np

    keras.config.set_dtype_policy("float32")
    random.seed(SEED)
    np.random.seed(SEED)


# Fixtures of a whole module run before its first test, so the module is seeded too: no result
# may depend on which tests ran before, or on which worker.
@pytest.fixture(autouse=True, scope="module")
def _fresh_module():
    import keras

    keras.utils.set_random_seed(SEED)
    _reset()
    yield
    # The models and graphs of this module. Cached functions and imports stay until the process
    # ends; later collections, a second each in the end, do not visit them.
    keras.backend.clear_session()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fresh_test():
    import keras

    _reset()
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def browser(_chromium):
    """A headless Chromium with an empty log; without it and its driver a test is skipped."""
    _chromium.get("about:blank")  # the page of an earlier test writes no more
    _chromium.get_log("browser")  # reading a log empties it
    return _chromium


@pytest.fixture(scope="session")
def _chromium():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    programs = [
        next(filter(None, map(shutil.which, names)), None)
        for names in (["chromium", "chromium-browser", "google-chrome"], ["chromedriver"])
    ]
    if None in programs:
        pytest.skip("needs the browser Chromium and its chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for switch in (
        "headless no-sandbox disable-gpu disable-quic no-first-run disable-dev-shm-usage "
        "disable-background-networking disable-component-update disable-sync"
    ).split():
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[1])
    with webdriver.Chrome(options, service) as driver:
        yield driver
