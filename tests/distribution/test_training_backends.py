"""The same numbers on every backend, and nothing imported that is not needed."""

import numpy as np
import pytest
from other_backend import INSTALLED, run_on

from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.optimizers import Noam

pytestmark = pytest.mark.slow

VALUES = """
import json, sys
import numpy as np
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.optimizers import Noam
from keras_attn.metrics import Perplexity, TokenAccuracy

rng = np.random.default_rng(0)
labels, logits = rng.integers(0, 4, (3, 6)), rng.normal(size=(3, 6, 4)).astype("float32")
values = [LabelSmoothedCrossentropy(0.1)(labels, logits), Noam(64, 10)(3)]
for metric in (Perplexity(), TokenAccuracy()):
    metric.update_state(labels, logits)
    values.append(metric.result())
print(json.dumps([[float(value) for value in values], "sacrebleu" in sys.modules]))
"""


@pytest.mark.parametrize("backend", INSTALLED)
def test_values_equal_tensorflows(backend):
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 4, (3, 6)), rng.normal(size=(3, 6, 4)).astype("float32")
    expected = [LabelSmoothedCrossentropy(0.1)(labels, logits), Noam(64, 10)(3)]
    for metric in (Perplexity(), TokenAccuracy()):
        metric.update_state(labels, logits)
        expected.append(metric.result())
    values, is_loaded = run_on(backend, VALUES)
    np.testing.assert_allclose(values, [float(value) for value in expected], rtol=1e-6)
    assert not is_loaded
