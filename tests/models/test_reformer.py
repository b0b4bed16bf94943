import numpy as np
import oracles
import pytest
from models import formulas

from keras_attn.models import reformer

CHUNK = 3
# One chunk for the whole text, whose keys all meet: dense attention.
DENSE = {"chunk_length": 16, "across_buckets": True}


def built(**arguments):
    arguments = {"axial_shape": (4, 4), "local_length": CHUNK, **arguments}
    return formulas.scrambled(reformer(**{**formulas.SIZES, **arguments}))


def shared(layer, x):
    """Keys are unit queries; a query attends to itself only if there is no other key."""
    query = formulas.heads(layer, x, "query")
    key = query / np.linalg.norm(query, axis=-1, keepdims=True)
    logits = np.einsum("bnth,bnsh->bnts", query, key) / np.sqrt(query.shape[-1])
    return formulas.weigh(layer, x, logits, formulas.allowed(lambda i: range(i) if i else [0]))


def local(layer, x):
    """Return the keys of the query's block and of the block before."""
    mask = formulas.allowed(lambda i: range(i - i % CHUNK - CHUNK, i + 1))
    return formulas.scaled_dot(mask)(layer, x)


def full(layer, x):
    """Return all keys up to the query."""
    return formulas.scaled_dot(formulas.allowed(lambda i: range(i + 1)))(layer, x)


def oracle(model, attentions):
    x, table = formulas.embedded(model, formulas.IDS)
    first, second = (oracles.numpy_of(t) for t in model.position.tables)
    for t in range(formulas.T):
        x[:, t] += np.concatenate([first[t // 4], second[t % 4]])
    streams = [x, x]
    for layer, formula in zip(model.depth.blocks, attentions, strict=True):
        for norm, function in formulas.sublayers(layer, formula, oracles.gelu_tanh):
            streams = [streams[1], streams[0] + function(norm(streams[1]))]
    return formulas.closing(model, (streams[0] + streams[1]) / 2) @ table.T


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention, attentions",
    [
        (("lsh",), [shared, shared]),
        (("lsh", "local"), [shared, local]),
        (("local", "full"), [local, full]),
    ],
)
def test_one_chunk_equals_dense_attention(attention, attentions):
    model = built(attention=attention, **DENSE)
    expected = oracle(model, attentions)
    np.testing.assert_allclose(model({"token_ids": formulas.IDS}), expected, atol=1e-4)


@pytest.mark.slow
def test_short_chunks_limit_the_keys():
    """Short chunks leave keys out, so the output is not the dense one; more rounds come closer."""
    model, errors = built(**DENSE), []
    dense = np.asarray(model({"token_ids": formulas.IDS}))
    for rounds in (1, 8):
        other = built(chunk_length=2, num_rounds=rounds, across_buckets=True)
        other.set_weights(model.get_weights())
        errors.append(np.abs(other({"token_ids": formulas.IDS}) - dense).mean())
    assert errors[0] > 0.05 and errors[0] > errors[1]


@pytest.mark.slow
def test_axial_dims_default_to_equal_parts():
    for arguments, dims in (
        ({"axial_shape": (2, 2, 4)}, [2, 2, 4]),
        ({"axial_dims": (1, 7)}, [1, 7]),
    ):
        tables = built(**arguments, num_layers=1).position.tables
        assert [table.shape[1] for table in tables] == dims
