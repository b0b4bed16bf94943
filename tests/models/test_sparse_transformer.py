import keras
import numpy as np
import oracles
import pytest
from marks import all_slow, slow
from models import formulas

from keras_attn.initializers import WaveTable
from keras_attn.models import sparse_transformer

STRIDE = 4
SHAPE = (4, STRIDE, 1)


def built(**arguments):
    arguments = {"image_shape": SHAPE, **arguments}
    return formulas.scrambled(sparse_transformer(**formulas.SIZES, **arguments))


def near(i):
    return range(i - STRIDE + 1, i + 1)


def column(i):
    return [j for j in range(i + 1) if (i - j) % STRIDE == 0]


def block(i):
    return range(i - i % STRIDE, i + 1)


def summary(i):
    return [j for j in range(i + 1) if j % STRIDE >= STRIDE - 2]


def gelu_sigmoid(x):
    return x / (1 + np.exp(-1.702 * x))


def oracle(model, masks):
    """Return the logits of IDS, with one mask (T, T) or (N, T, T) a layer."""
    x, table = formulas.embedded(model, formulas.IDS)
    rows, columns, channels = (oracles.numpy_of(t) for t in model.position.tables)
    width, depth = model.position.width, model.position.channels
    for t in range(formulas.T):
        x[:, t] += rows[t // (width * depth)] + columns[t // depth % width] + channels[t % depth]
    for layer, mask in zip(model.depth.blocks, masks, strict=True):
        steps = formulas.sublayers(layer, formulas.scaled_dot(mask), gelu_sigmoid)
        x = formulas.pre_norm(x, steps)
    return formulas.closing(model, x) @ table.T


@pytest.mark.parametrize(
    "factors, first, second",
    [
        ("merged", near, column),
        ("per_head", block, summary),
        *all_slow((("interleaved", block, summary), ("full", near, column))),
    ],
)
def test_output_equals_the_formula(factors, first, second):
    model = built(factors=factors, summary=2 if second is summary else None)
    one, other = formulas.allowed(first), formulas.allowed(second)
    masks = {
        "merged": [one | other] * 2,
        "interleaved": [one, other],
        "per_head": [np.stack([one, other])] * 2,
        "full": [np.tri(formulas.T, dtype=bool)] * 2,
    }[factors]
    output = model({"token_ids": formulas.IDS})
    np.testing.assert_allclose(output, oracle(model, masks), atol=1e-4)


@pytest.mark.slow
def test_image_with_channels_and_narrow_keys_equals_the_formula():
    """The stride is a row of the image."""
    model = built(image_shape=(3, 2, 2), key_dim=2)
    mask = formulas.allowed(near) | formulas.allowed(column)
    output = model({"token_ids": formulas.IDS})
    np.testing.assert_allclose(output, oracle(model, [mask] * 2), atol=1e-4)
    assert model.depth.blocks[0].attention.value_dim == formulas.D // formulas.N


def test_initial_standard_deviations_are_the_authors():
    """The authors' deviations: sqrt(0.125 / d_in), times 1 / sqrt(2 L) into the residual."""
    sizes = {"vocabulary_size": 100, "num_layers": 2, "num_heads": 2, "hidden_dim": 64}
    model = sparse_transformer(**sizes, intermediate_dim=96, image_shape=SHAPE)
    layer = model.depth.blocks[1]
    for weight, deviation in [
        (layer.attention.query_kernel, np.sqrt(0.125 / 64)),
        (layer.attention.output_kernel, np.sqrt(0.125 / 64) / 2),
        (layer.feed_forward.intermediate.kernel, np.sqrt(0.125 / 64)),
        (layer.feed_forward.output_dense.kernel, np.sqrt(0.125 / 96) / 2),
    ]:
        weight = weight.numpy()
        assert abs(weight.std() / deviation - 1) < 5 / np.sqrt(2 * weight.size)


@pytest.mark.slow
def test_full_attention_begins_near():
    """The keys of its first layer begin as queries, so those nearby are like the query."""
    sizes = {"vocabulary_size": 101, "num_layers": 2, "num_heads": 2, "hidden_dim": 128}
    model = sparse_transformer(
        **sizes, intermediate_dim=8, image_shape=(13, 11, 1), factors="full", key_dim=16
    )
    token_ids = np.random.default_rng(0).integers(1, 101, (3, 143))
    x = keras.layers.LayerNormalization()(model.position(model.embedding(token_ids)))

    def near_to_far(attention):
        _, scores = attention(x, x, return_attention_scores=True)
        last = oracles.numpy_of(scores)[:, :, -1].mean((0, 1))
        return last[-3:-1].mean() / last[:100].mean()

    first, second = (block.attention for block in model.depth.blocks)
    assert near_to_far(first) > 2 * near_to_far(second)
    queries = np.einsum("btd,dnh->btnh", oracles.numpy_of(x), first.query_kernel)
    scores_with_itself = (queries**2).sum(-1) / np.sqrt(16)
    assert abs(scores_with_itself.mean() / 6 - 1) < 0.35


@pytest.mark.parametrize("factors", ["full", slow("interleaved")])
def test_keys_begin_as_queries_in_the_first_layer_of_full_attention_alone(factors):
    first, second = (
        sparse_transformer(**formulas.SIZES, image_shape=SHAPE, factors=factors).depth.blocks
        for _ in range(2)
    )
    for index in range(2):
        attention = first[index].attention
        is_alike = np.array_equal(attention.query_kernel, attention.key_kernel)
        assert is_alike == (factors == "full" and index == 0)
        assert not np.array_equal(attention.query_kernel, second[index].attention.query_kernel)


@pytest.mark.slow
def test_tokens_and_positions_begin_at_the_scale_of_logits():
    sizes = {"vocabulary_size": 101, "num_layers": 2, "num_heads": 2, "hidden_dim": 64}
    model = sparse_transformer(**sizes, intermediate_dim=96, image_shape=(8, 16, 1))
    token_ids = np.random.default_rng(0).integers(1, 101, (2, 128))
    tokens = model.embedding(token_ids)
    places = oracles.numpy_of(model.position(tokens) - tokens)
    logits = oracles.numpy_of(model({"token_ids": token_ids}))
    # Norms have rows of length sqrt(D), and rows of the table length 1.
    assert 0.5 < logits.std() < 2
    assert 0.5 < places.std() / oracles.numpy_of(tokens).std() < 2
    chosen = np.take_along_axis(logits, np.roll(token_ids, -1, axis=1)[..., None], axis=-1)[..., 0]
    loss = np.mean(np.log(np.exp(logits).sum(-1)) - chosen)
    assert abs(loss - np.log(101)) < 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [10, 11])
def test_the_product_of_two_initial_positions_depends_on_their_distance(width):
    initializer = WaveTable(0.3)
    table = oracles.numpy_of(initializer((7, width)))
    products = table @ table.T
    for distance in range(7):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)
    assert products[0, 1] > products[0, 2] > products[0, 3]
    # Half of the squares of sines and cosines are 1; an odd width has a direction without waves.
    np.testing.assert_allclose(np.diagonal(products), 0.3**2 * (width - width % 2), rtol=1e-5)
    other = keras.initializers.get(keras.initializers.serialize(initializer))((7, width))
    assert np.abs(oracles.numpy_of(other) - table).max() > 0.1
    np.testing.assert_allclose(other @ keras.ops.transpose(other), products, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [23, 211])
def test_initial_positions_are_like_their_neighbours_alone(count):
    """In a wide table of any length."""
    table = oracles.numpy_of(WaveTable(1 / np.sqrt(128))((count, 128)))
    products = table @ table[11]
    assert products[10] > 0.7
    assert np.abs(np.delete(products, range(9, 14))).max() < 0.3
