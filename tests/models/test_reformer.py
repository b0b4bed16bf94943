import numpy as np
import oracles
import pytest
from models import pages

from keras_attn.models import reformer

CHUNK = 3
# One chunk for the whole text, whose keys all meet: dense attention.
DENSE = {"chunk_length": 16, "across_buckets": True}


def built(**arguments):
    arguments = {"axial_shape": (4, 4), "local_length": CHUNK, **arguments}
    return pages.scrambled(reformer(**pages.SIZES, **arguments))


def shared(layer, x):
    """Keys are queries of length 1; a query meets all before it, itself only without another."""
    query = pages.heads(layer, x, "query")
    key = query / np.linalg.norm(query, axis=-1, keepdims=True)
    logits = np.einsum("bnth,bnsh->bnts", query, key) / np.sqrt(query.shape[-1])
    return pages.weigh(layer, x, logits, pages.allowed(lambda i: range(i) if i else [0]))


def local(layer, x):
    """All keys of the query's block and of the one before."""
    mask = pages.allowed(lambda i: range(i - i % CHUNK - CHUNK, i + 1))
    return pages.scaled_dot(mask)(layer, x)


def full(layer, x):
    """All keys up to the query."""
    return pages.scaled_dot(pages.allowed(lambda i: range(i + 1)))(layer, x)


def oracle(model, formulas):
    x, table = pages.embedded(model, pages.IDS)
    first, second = (oracles.numpy_of(t) for t in model.position.tables)
    for t in range(pages.T):
        x[:, t] += np.concatenate([first[t // 4], second[t % 4]])
    streams = [x, x]
    for layer, formula in zip(model.depth.blocks, formulas, strict=True):
        for norm, function in pages.sublayers(layer, formula, oracles.gelu_tanh):
            streams = [streams[1], streams[0] + function(norm(streams[1]))]
    return pages.closing(model, (streams[0] + streams[1]) / 2) @ table.T


@pytest.mark.parametrize(
    "attention, formulas",
    [
        (("lsh",), [shared, shared]),
        (("lsh", "local"), [shared, local]),
        (("local", "full"), [local, full]),
    ],
)
def test_limit_one_chunk_is_dense_attention(attention, formulas):
    model = built(attention=attention, **DENSE)
    expected = oracle(model, formulas)
    np.testing.assert_allclose(model({"token_ids": pages.IDS}), expected, atol=1e-4)


def test_few_keys_in_short_chunks():
    """Not the dense result: chunks do leave keys out. More rounds come closer to it."""
    model, errors = built(**DENSE), []
    dense = np.asarray(model({"token_ids": pages.IDS}))
    for rounds in (1, 8, 64):
        other = built(chunk_length=2, num_rounds=rounds, across_buckets=True)
        other.set_weights(model.get_weights())
        errors.append(np.abs(other({"token_ids": pages.IDS}) - dense).mean())
    assert errors[0] > 0.05 and errors[0] > errors[1] > errors[2]


def test_chunks_of_the_feed_forward_change_nothing():
    model, chunked = built(), built(feed_forward_chunks=3)
    chunked.set_weights(model.get_weights())
    expected = model({"token_ids": pages.IDS})
    np.testing.assert_allclose(chunked({"token_ids": pages.IDS}), expected, atol=1e-5)


def test_no_leak_where_all_keys_meet():
    """With short chunks, which keys of the past are met depends on the future (see `LSH`)."""
    pages.check_no_leak(built(attention=("lsh", "local"), **DENSE))


def test_steps_and_generation_equal_one_pass_where_all_keys_meet():
    model = built(attention=("lsh", "local"), **DENSE)
    pages.check_steps(model)
    pages.check_generation(model)


def test_axial_dims():
    assert [w.shape[1] for w in built(axial_shape=(2, 2, 4)).position.tables] == [2, 2, 2]
    assert [w.shape[1] for w in built(axial_dims=(1, 5)).position.tables] == [1, 5]


def test_unknown_attention():
    with pytest.raises(ValueError, match=r"attention\[1\]='dense'"):
        built(attention=("lsh", "dense"))
