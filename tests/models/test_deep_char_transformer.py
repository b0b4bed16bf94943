import numpy as np
import oracles
from models import formulas
from models.builders import built, whole_pass


def test_output_equals_the_formula():
    """Each layer adds its own positions, then computes a plain block."""
    model = built("deep_char_transformer")
    x, table = formulas.embedded(model, formulas.IDS)
    formula = formulas.scaled_dot(oracles.causal(formulas.T, formulas.T))
    for layer in model.depth.blocks:
        x = x + oracles.numpy_of(layer.position.table)[: formulas.T]
        x = formulas.post_norm(x, formulas.sublayers(layer.block, formula))
    expected = (x @ table.T)[0]  # of the row without padding
    np.testing.assert_allclose(whole_pass("deep_char_transformer")[0], expected, atol=1e-4)
