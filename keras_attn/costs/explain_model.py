"""The cost of a model before it runs."""

import contextlib

import keras

from keras_attn import models
from keras_attn.compat.unallocated import without_values
from keras_attn.layers import MultiHeadAttention
from keras_attn.ops.checks import check_numbers, check_sizes, check_that
from keras_attn.preset_sizes import check_preset, check_preset_length


def explain(
    model,
    length,
    batch_size=1,
    *,
    precision=None,
    optimizer="adam",
    memory=None,
    mesh=None,
    shards_parameters=False,
):
    """Count what a model costs, before it runs.

        FLOPs of a product (M, K) (K, N) = 2 M K N,   backward: by each factor that learns

    Nothing is computed and no memory is taken for weights: the largest preset takes seconds. The
    model is called once on symbolic tensors. FLOPs are those of products of matrices, as the plan
    of each attention layer computes them, padding and recomputed tiles included; sums, softmax,
    norms and activations are not counted. Bytes of activations are an estimate for a TensorFlow
    graph without XLA, at the fullest moment of the backward pass: what the layers keep for their
    gradients, what the gradient that runs then holds beside it, and of a crossentropy the logits,
    their probabilities and their gradient. Measured tensors took 0.93 to 1.04 times as much
    (`recipes.benchmarks.memory`); the process also holds the graph and its kernels.

    The receptive field is followed position by position. That takes long for narrow patterns of
    long inputs: seconds, or a minute from some 65,000 positions on; `Local` takes less.

    With a mesh, `devices` is the cost of each device, which computes its rows of the batch and its
    part of the weights. Bytes moved are those that collectives return to it in a step: activations
    in their dtype, weights and gradients in that of the weights. They were compared with programs
    of float32 on CPUs; XLA may move fewer or, with `shards_parameters` and a model axis, more.

    Args:
        model: name of a preset, of `keras_attn.models.presets()`, or a built functional
            `keras.Model` with at least one attention layer, ours or Keras's.
        length: int. Length of each input that may have any.
        batch_size: int.
        precision: name of a dtype policy for the preset, such as "mixed_bfloat16"; by default the
            global one. A model has policies of its own.
        optimizer: name or object of a Keras optimizer; None for none.
        memory: number of bytes, of a device if there is a mesh. Notes say what needs more.
        mesh: dict of the sizes "data" and "model" of a `distribution.ModelParallel`, for the cost
            of each of its devices: `{"data": 8, "model": 4}`. A size left out is 1.
        shards_parameters: bool. As for `distribution.ModelParallel`.

    Returns:
        An `Explanation`, which prints as a table; `to_dict()` gives its numbers.

    Raises:
        ValueError: if there is no such preset, or it has fewer positions, a size is below 1, the
            mesh has other sizes, or the model is not functional or has no attention layer.

    Example:
        >>> import keras_attn
        >>> costs = keras_attn.explain("transformer_tiny", length=32)
        >>> costs.total.parameters
        2349056

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), table 1; paths of factors:
        [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2; devices:
        [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053), section 3.
    """
    # Imported here, so that importing keras_attn takes no longer.
    from keras_attn.costs.calls import record_calls
    from keras_attn.costs.devices import device_cost, misfits, rules_of_weights
    from keras_attn.costs.explanation import Explanation
    from keras_attn.costs.layer_costs import (
        KERAS_ATTENTION,
        layer_costs,
        memory_cost,
        notes,
        reach,
        shortages,
    )
    from keras_attn.costs.memory import loss_bytes

    check_sizes(length=length, batch_size=batch_size)
    if memory is not None:
        check_numbers(0, memory=memory)
    is_alone = mesh is None and shards_parameters
    check_that(not is_alone, "False without a mesh", shards_parameters=shards_parameters)
    if mesh is not None:
        is_mesh = isinstance(mesh, dict) and set(mesh) <= {"data", "model"}
        check_that(is_mesh, 'a dict of "data" and "model"', mesh=mesh)
        mesh = {"data": 1, "model": 1, **mesh}
        check_sizes(**mesh)
    name = model if isinstance(model, str) else getattr(model, "name", None)
    if isinstance(model, str):
        check_preset(model=model)
        check_preset_length(model, length)
    model = _built(model, precision)
    calls = record_calls(model, symbolic_inputs(model, length, batch_size))
    if not any(isinstance(c.layer, (MultiHeadAttention, *KERAS_ATTENTION)) for c in calls):
        raise ValueError(
            "`model` must have an attention layer, such as `keras_attn.layers.MultiHeadAttention`, "
            "that it calls. "
            f"Received: a model {name!r} without one."
        )
    cost = memory_cost(model, calls, length, batch_size, optimizer)
    devices = None
    if mesh is not None:
        rows = -(-batch_size // mesh["data"])
        own_calls = record_calls(model, symbolic_inputs(model, length, rows))
        rules = rules_of_weights(model)
        loss = loss_bytes(model, length, rows)
        devices = device_cost(model, rules, own_calls, loss, mesh, shards_parameters, optimizer)
    sentences = [*notes(calls), *shortages(cost, devices, memory)]
    if mesh is not None:
        sentences += misfits(model, rules, mesh, batch_size)
    layers = layer_costs(model, calls)
    return Explanation(name, length, batch_size, layers, cost, reach(calls), sentences, devices)


def _built(model, precision):
    if isinstance(model, str):
        with without_values(), _policy(precision):
            return models.create(model)
    is_functional = isinstance(model, keras.Model) and bool(getattr(model, "inputs", None))
    wanted = (
        "the name of a preset, or a functional `keras.Model`; make one of another model by "
        "`keras.Model(inputs, model(inputs))`"
    )
    check_that(is_functional, wanted, model=model)
    check_that(precision is None, "None for a model, whose layers have theirs", precision=precision)
    return model


@contextlib.contextmanager
def _policy(precision):
    before = keras.config.dtype_policy()
    if precision is not None:
        keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def symbolic_inputs(model, length, batch_size):
    """Return `keras.KerasTensor`s in the structure of the inputs of a functional model.

    A memory has all its slots; optional inputs are None.
    """
    memory = getattr(model, "memory", None)
    slots = length if memory is None else getattr(memory, "num_slots", None) or memory.memory_length

    def fill(x):
        if _is_optional(model, x):
            return None
        free = slots if x.name == "memory" else length
        batch, *sizes = x.shape
        if batch not in (None, batch_size):
            raise ValueError(
                f"`batch_size` must be that of the model's inputs, {batch}. "
                f"Received: batch_size={batch_size}."
            )
        shape = batch_size, *(free if size is None else size for size in sizes)
        return keras.KerasTensor(shape, dtype=x.dtype)

    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(fill, inputs)


def _is_optional(model, x):
    return any(layer.name == x.name and getattr(layer, "optional", False) for layer in model.layers)
