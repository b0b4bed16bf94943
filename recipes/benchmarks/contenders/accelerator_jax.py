"""keras_attn on JAX, on the fastest device that JAX finds."""

from ..workload import SHAPES, Task, translation_batch
from .attention_inputs import heads
from .fit import LEARNING_RATE


def training(size, batch, length, steps, policy, smoothing, dropout):
    """Optimizer steps under `model.fit`, compiled; attention weights are not dropped."""
    import jax
    import keras
    import numpy as np

    import keras_attn

    keras.config.set_dtype_policy(policy)
    shape = SHAPES[size]
    model = keras_attn.models.create(
        shape.preset, vocabulary_size=shape.vocabulary_size, dropout=dropout
    )
    loss = keras_attn.losses.LabelSmoothedCrossentropy(smoothing)
    model.compile(optimizer=keras_attn.optimizers.Adam(LEARNING_RATE), loss=loss, jit_compile=True)
    source, target, labels = (
        np.tile(array, (steps, 1))
        for array in translation_batch(batch, length, shape.vocabulary_size)
    )
    inputs = {"source_ids": source, "target_ids": target}
    facts = {"parameters": model.count_params(), "policy": policy, **device()}

    def train():
        model.fit(inputs, labels, batch_size=batch, shuffle=False, epochs=1, verbose=0)
        jax.block_until_ready([weight.value for weight in model.trainable_variables])
        facts["device_mb"] = device_mb()

    return Task(call=train, units=steps * batch * 2 * length, facts=facts)


def attention(pattern, arguments, length, batch, dtype, gflop):
    """Time attention between the projections of a layer, with its gradient, compiled.

    The pattern is the name of a class of `keras_attn.patterns`, with arguments of its constructor;
    `gflop` are the least operations of one call.
    """
    import jax

    from keras_attn import patterns, scores
    from keras_attn.attention.fused import attend_fused, can_fuse
    from keras_attn.attention.inputs import AttentionInputs, PositionRange

    pattern, score = getattr(patterns, pattern)(*arguments), scores.get("scaled_dot")
    positions = PositionRange(0, length)
    facts = {"gflop": gflop, **device()}

    def attend(query, key, value):
        inputs = AttentionInputs(query, key, value, positions, positions, score)
        if can_fuse(inputs, pattern, pattern.plan.is_faster(length, length)):
            facts["by"] = "kernel"
            return attend_fused(inputs, pattern)[0]
        facts["by"] = "blockwise"
        return pattern.plan.attend(inputs)[0]

    @jax.jit
    def with_gradients(*inputs):
        output, pull = jax.vjp(attend, *inputs)
        return output, pull(output)

    inputs = [jax.numpy.asarray(array, dtype) for array in heads(length, batch=batch)]

    def call():
        jax.block_until_ready(with_gradients(*inputs))
        facts["device_mb"] = device_mb()

    return Task(call=call, units=batch * length, facts=facts)


def device():
    """Return the device and its platform, for the card."""
    import jax

    return {"device": jax.devices()[0].device_kind, "platform": jax.default_backend()}


def device_mb():
    """Return the peak memory of this process on the device; None where JAX does not report it."""
    import jax

    held = jax.devices()[0].memory_stats()
    return held and held["peak_bytes_in_use"] / 1e6
