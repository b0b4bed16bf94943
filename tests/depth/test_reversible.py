"""`Reversible` against a twin that keeps all activations."""

from pathlib import Path

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from depth.twins import in_turn, training_gradients
from scripts import result_of

from keras_attn import residuals
from keras_attn.depth import ACT, Reversible, Stack
from keras_attn.depth import reversible as module
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.layers.block import CallContext
from keras_attn.patterns import LSH

HERE = Path(__file__).resolve().parent
B, T, D = 2, 7, 6


def stack(num_layers=3, dropout=0.3, join="mean", cross_attention=False, **attention):
    """Return a stack with the same weights and seeds at each call."""
    keras.utils.set_random_seed(0)

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 3, dropout=dropout, **attention),
            FeedForward(11, dropout=dropout),
            cross_attention=MultiHeadAttention(2, 3) if cross_attention else None,
            residual="pre_norm",
            dropout=dropout,
        )

    layer = Reversible(block, num_layers, join=join)
    shape = (None, None, D)
    layer.build(*([shape, shape] if cross_attention else [shape]))
    return layer


def assert_gradients_are_those_of_stored_activations(monkeypatch, in_graph=False, **arguments):
    x = oracles.random(B, T, D)
    gradients = training_gradients(stack(**arguments), x, in_graph)
    monkeypatch.setattr(module, "reversible", in_turn)
    oracles.check_each(gradients, training_gradients(stack(**arguments), x), atol=1e-4, scaled=True)


def test_gradients_equal_those_of_stored_activations(monkeypatch):
    assert_gradients_are_those_of_stored_activations(monkeypatch, num_layers=2, pattern="causal")


@pytest.mark.slow
def test_lsh_sorts_alike_when_a_graph_recovers_its_inputs(monkeypatch):
    assert_gradients_are_those_of_stored_activations(
        monkeypatch,
        in_graph=True,
        num_layers=1,
        join="concatenate",
        pattern=LSH(2, num_rounds=2),
        score="shared_qk",
        implementation="blockwise",
    )


def test_streams_equal_the_formula():
    layer = stack(num_layers=2, dropout=0.0)
    x = oracles.random(B, T, D)
    first = second = x
    for block in layer.blocks:
        for residual, sublayer in block.sublayers(x, CallContext())[0]:
            first, second = second, first + np.asarray(sublayer(residual.before(second), None))
    expected = layer.norm((first + second) / 2)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


@pytest.mark.slow
def test_gradients_reach_a_context(monkeypatch):
    """Through each block's cross-attention, with a padded context and dropout."""
    x, context = oracles.random(B, T, D), tf.constant(oracles.random(B, 5, D, seed=1))
    real = np.arange(5) < np.array([[5], [3]])

    def gradients():
        layer = stack(2, cross_attention=True)
        with tf.GradientTape() as tape:
            tape.watch(context)
            loss = tf.reduce_sum(layer(x, context, context_padding_mask=real, training=True) ** 3)
        return tape.gradient(loss, [context, *(w.value for w in layer.trainable_variables)])

    own_gradients = gradients()
    monkeypatch.setattr(module, "reversible", in_turn)
    oracles.check_each(own_gradients, gradients(), atol=1e-4, scaled=True)
    assert np.abs(own_gradients[0][0]).min() > 0 and not np.asarray(own_gradients[0])[1, 3:].any()


def test_cached_equals_whole():
    layer, x = stack(2, dropout=0.0, pattern="causal"), oracles.random(B, T, D)
    cache, outputs, start = layer.initial_cache(B, T), [], 0
    for length in (3, 1, 3):
        positions = np.arange(start, start + length)
        part = x[:, start : start + length]
        output, cache = layer(part, cache=cache, query_positions=positions)
        outputs.append(output)
        start += length
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), layer(x), atol=1e-5)


def test_streams_stay_in_float32_in_mixed_precision(monkeypatch):
    """And the output is close to that of float32."""
    streams, x = [], oracles.random(B, T, D)

    def noted(functions, first, second, *operands, run=module.reversible, **options):
        outputs = run(functions, first, second, *operands, **options)
        streams.extend(keras.backend.standardize_dtype(s.dtype) for s in (first, second, *outputs))
        return outputs

    wanted = stack(2, dropout=0.0)(x)
    monkeypatch.setattr(module, "reversible", noted)
    keras.config.set_dtype_policy("mixed_bfloat16")
    output = stack(2, dropout=0.0)(x, training=True)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert streams and set(streams) == {"float32"}
    np.testing.assert_allclose(keras.ops.cast(output, "float32"), wanted, atol=0.05)


@pytest.mark.slow
def test_reversible_blocks_inside_remat_work_inside_act():
    """The gradient in a graph is that of eager calls, with dropout."""

    def block(index):
        attention = MultiHeadAttention(2, 3, pattern="causal")
        return TransformerBlock(attention, FeedForward(7), residual="pre_norm", dropout=0.3)

    inner = Stack([Reversible(block, 1)], remat=True)
    layer = ACT(inner, 2, halting_bias=-1.0, ponder_loss=0.1)
    layer.build((B, T, D))
    generators = [v for v in layer.variables if "seed" in v.path]
    states = [v.numpy() for v in generators]

    x = tf.constant(oracles.random(B, T, D))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(layer(x, training=True) ** 3) + sum(layer.losses)
        return [y, *tape.gradient(y, [x, *(w.value for w in layer.trainable_weights)])]

    results = tf.function(run, autograph=False)(x)
    for variable, value in zip(generators, states, strict=True):
        variable.assign(value)
    oracles.check_each(results, run(x), atol=2e-5, scaled=True)


@pytest.mark.slow
def test_two_replicas_train_as_one():
    """Reversible and rematerialised stacks, in a process with two devices."""
    for difference, moved in result_of(HERE / "distributed.py").values():
        assert difference < 1e-5 < 1e-2 < moved


class Half(residuals.PreNorm):
    """Adds half of the sublayer's output."""

    def call(self, x, y):
        return x + y / 2


class Damped(TransformerBlock):
    """A block with an `apply` of its own."""

    def apply(self, x, call):
        y, extras = super().apply(x, call)
        return (x + y) / 2, extras


def test_invalid_arguments_raise():
    def post(index):
        return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(5))

    with pytest.raises(ValueError, match="`block`.*'pre_norm'.*PostNorm"):
        Reversible(post, 2)
    for residual, block in ((Half(), TransformerBlock), ("pre_norm", Damped)):
        with pytest.raises(
            ValueError, match="neither may override how outputs are added. Received: .* at 0"
        ):
            Reversible([block(MultiHeadAttention(2, 3), FeedForward(5), residual=residual)])
    with pytest.raises(ValueError, match="`join` must be one of 'mean', 'concatenate'.*'sum'"):
        stack(join="sum")
    config = stack(2).get_config()
    assert Reversible.from_config(config).num_layers == 2
    with pytest.raises(ValueError, match="`remat`.*remat=True"):
        Reversible(**{**config, "remat": True})
    with pytest.raises(ValueError, match="`memory`.*`return_hidden_states`"):
        stack()(oracles.random(B, T, D), return_hidden_states=True)
