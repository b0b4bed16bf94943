"""Bytes that each device of a mesh holds of a model, and exchanges in a training step."""

import collections
import math

import keras

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.costs.explanation import DeviceCost
from keras_attn.costs.memory import (
    cast_bytes,
    optimizer_bytes,
    peak_of_activations,
    size_of,
    variable_bytes,
)
from keras_attn.distribution.model_parallel import divide, divide_further, rule_of
from keras_attn.feed_forward import FeedForward, GatedFeedForward, MixtureOfExperts
from keras_attn.layers import MultiHeadAttention, TokenEmbedding, TokenHead

# Their outputs, logits of tokens or hidden units, stay divided.
_HEADS = TokenEmbedding, TokenHead, keras.layers.Dense
_SPLIT_LAYERS = FeedForward, MixtureOfExperts, *_HEADS


def device_cost(model, rules, calls, loss, mesh, shards_parameters, optimizer):
    """Return the `DeviceCost` of a model.

    Args:
        model: a built `keras.Model`.
        rules: dict, the result of `rules_of_weights(model)`.
        calls: list of the `Call`s of a batch of the rows of one device.
        loss: int. The `loss_bytes` of these rows.
        mesh: dict of the number of devices along "data" and along "model".
        shards_parameters: bool.
        optimizer: as for `explain`.
    """
    shards_parameters = shards_parameters and mesh["data"] > 1
    axes = axes_of_weights(model, rules, mesh, shards_parameters)
    divided = {key for key, names in axes.items() if "model" in names and mesh["model"] > 1}

    def held(variable):
        """Return the bytes of a variable on a device."""
        return size_of(variable) // math.prod(mesh[name] for name in axes[id(variable)] if name)

    def used(variable):
        """Return the bytes of a variable on a device that computes with it."""
        return size_of(variable) // (mesh["model"] if id(variable) in divided else 1)

    def parts(call):
        return mesh["model"] if _is_divided(call, divided) else 1

    tables = _Tables(calls, [w for w in model.weights if "data" in axes[id(w)]])
    return DeviceCost(
        **mesh,
        shards_parameters=shards_parameters,
        weights=variable_bytes(model.weights, held),
        gradients=variable_bytes(model.trainable_variables, held),
        optimizer=optimizer_bytes(model, optimizer, held),
        activations=cast_bytes(model, used) + peak_of_activations(calls, loss, parts),
        summed_gradients=0 if mesh["data"] == 1 else tables.gradient_bytes(model, used),
        gathered_weights=variable_bytes(tables.gathered(), used),
        exchanged_rows=tables.exchanged_bytes(),
        summed_activations=sum(_summed(call, divided) for call in calls),
    )


class _Tables:
    """The tables of tokens of a model, which lookups and heads may share.

    XLA makes a gradient of a table for each use and adds each up over the devices. Of a sharded
    table devices exchange the rows that they look up, and gather it for a head only.
    """

    def __init__(self, calls, sharded):
        calls = [call for call in calls if isinstance(call.layer, TokenEmbedding)]
        self.lookups = [call for call in calls if not _float_inputs(call)]
        self.uses = collections.Counter(id(call.layer.table) for call in calls)
        self.head_tables = {id(call.layer.table) for call in calls if _float_inputs(call)}
        self.sharded = {id(w): w for w in sharded}

    def gradient_bytes(self, model, of):
        return sum(self._num_sums(w) * of(w) for w in model.trainable_variables)

    def gathered(self):
        """Return the sharded weights that are gathered: all but the tables of lookups alone."""
        looked_up = self.uses.keys() - self.head_tables
        return [w for key, w in self.sharded.items() if key not in looked_up]

    def exchanged_bytes(self):
        rows = [size_of(c.output) for c in self.lookups if id(c.layer.table) in self.sharded]
        return 2 * sum(rows)  # the rows, and their gradients

    def _num_sums(self, weight):
        if id(weight) not in self.uses:
            return 1
        if id(weight) in self.sharded:
            return int(id(weight) in self.head_tables)
        return self.uses[id(weight)]


def axes_of_weights(model, rules, mesh, shards_parameters):
    """Return the mesh axis, or None, that divides each axis of each weight, by the weight's id."""
    axes_by_weight = {}
    for weight in model.weights:
        shape = tuple(weight.shape)
        axes, _ = divide(shape, rules[id(weight)], mesh)
        axes_by_weight[id(weight)] = (
            divide_further(shape, axes, mesh["data"]) if shards_parameters else axes
        )
    return axes_by_weight


def misfits(model, rules, mesh, batch_size):
    """Return sentences on rows and weights that the devices of a mesh do not divide evenly."""
    sentences = []
    if batch_size % mesh["data"]:
        sentences.append(
            f"{batch_size} rows do not divide by data={mesh['data']}: padding fills them."
        )
    unfit = [w for w in model.weights if divide(tuple(w.shape), rules[id(w)], mesh)[1]]
    if unfit:
        size = sum(map(size_of, unfit)) / sum(map(size_of, model.weights))
        sentences.append(
            f"Weights whose sizes do not divide by model={mesh['model']}: {len(unfit)}, "
            f"{size:.0%} of the bytes."
        )
    return sentences


def rules_of_weights(model):
    """Return the rule among its layer's `weight_axes` of each weight, by the weight's id.

    `ModelParallel` needs a rule while a layer is built, by the names of the layers around it. Here
    the model is built, and its layers hold their weights.
    """
    rules = {id(w): () for w in model.weights}
    # Layers come after those that hold them, so that the innermost with rules decides.
    for layer in sorted(flatten_layers(model), key=lambda layer: -len(flatten_layers(layer))):
        declared = getattr(layer, "weight_axes", None)
        for weight in layer.weights if declared is not None else ():
            names = weight.path.removeprefix(f"{layer.path}/").split("/")
            rules[id(weight)] = rule_of(declared, names) or ()
    return rules


def _is_divided(call, divided):
    """Return True if each of the `model` devices computes its part of a call."""
    is_divided = any(id(weight) in divided for weight in call.layer.weights)
    return (
        is_divided
        and isinstance(call.layer, (MultiHeadAttention, *_SPLIT_LAYERS))
        and _float_inputs(call)
    )


def _float_inputs(call):
    """Return the inputs of a call that are no ids, positions or masks, each once."""
    tensors = [x for x in call.arguments.values() if isinstance(x, keras.KerasTensor)]
    return list({id(x): x for x in tensors if "float" in x.dtype}.values())


def _summed(call, divided):
    """Return the bytes of a call that the `model` devices add up, forward and backward."""
    layer, output = call.layer, size_of(call.output)
    if isinstance(layer, TokenHead):
        return 0  # the call of its embedding counts
    if isinstance(layer, TokenEmbedding) and not _float_inputs(call):
        return output if id(layer.table) in divided else 0  # each has some rows of the table
    if not _is_divided(call, divided):
        return 0
    forward = 0 if isinstance(layer, _HEADS) else (1 + call.recomputations) * output
    # The gradient of the input comes from two products.
    products = 2 if isinstance(layer, GatedFeedForward) else 1
    return call.repeats * (forward + products * sum(map(size_of, _float_inputs(call))))
