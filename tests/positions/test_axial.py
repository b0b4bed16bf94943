import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.positions import Axial

B, T, D = 2, 11, 7
X = oracles.random(B, T, D)
GRIDS = {
    "two axes": ((3, 5), (2, 5)),
    "three axes": ((2, 3, 5), (1, 2, 4)),
    "one axis": ((13,), (7,)),
}


def built(shape=(3, 5), dims=(2, 5), **arguments):
    layer = Axial(shape, dims, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def rows_of(layer):
    """The definition, position after position."""
    tables = [oracles.numpy_of(w) for w in layer.weights]
    return np.array(
        [
            np.concatenate([table[place] for table, place in zip(tables, places, strict=True)])
            for places in np.ndindex(*layer.shape)
        ]
    )


@pytest.mark.parametrize("shape, dims", GRIDS.values(), ids=GRIDS)
def test_oracle(shape, dims):
    layer = built(shape, dims)
    assert [tuple(w.shape) for w in layer.weights] == list(zip(shape, dims, strict=True))
    assert layer.count_params() == sum(n * d for n, d in zip(shape, dims, strict=True))
    rows = rows_of(layer)
    np.testing.assert_allclose(layer(X), X + rows[:T], atol=1e-6)
    places = np.random.default_rng(0).integers(0, len(rows), (B, T))
    np.testing.assert_allclose(layer(X, places), X + rows[places], atol=1e-6)
    np.testing.assert_allclose(layer(X, places[0]), X + rows[places[0]], atol=1e-6)


def test_too_long_is_refused():
    with pytest.raises(ValueError, match="longer than the table.*length 11, a table of 2 x 5"):
        built((2, 5))(X)


def test_too_long_fails_in_a_graph_of_unknown_length_too():
    """Rather than start again at the first row."""
    layer = built((2, 5))
    run = tf.function(layer, input_signature=[tf.TensorSpec((None, None, D))])
    np.testing.assert_array_equal(run(X[:, :10]), layer(X[:, :10]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(X)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Axial((3, 0), (2, 4)), r"`shape\[1\]`.*shape\[1\]=0"),
        (lambda: Axial((3, 5), (2.5, 4)), r"`dims\[0\]`.*dims\[0\]=2.5"),
        (lambda: Axial(15, (2, 4)), "`shape` must be a tuple.*shape=15"),
        (lambda: Axial((), ()), r"`shape` must be a tuple.*shape=\(\)"),
        (lambda: Axial((3, 5), (2, 4, 1)), r"shape=\(3, 5\), dims=\(2, 4, 1\)"),
        (lambda: Axial((3, 5), (2, 4))(X), r"`dims` must sum.*dims=\(2, 4\).*\(2, 11, 7\)"),
        (lambda: built()(X[0]), r"`x` must have shape \(None, None, None\)"),
        (lambda: built()(X, np.zeros(X.shape[1])), "`positions` must be integers.*float"),
        (lambda: built()(X, np.arange(3)), r"`positions`.*\(11,\).*\(3,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
