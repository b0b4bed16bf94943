"""Models whose weights are divided among devices."""

import contextlib
import math
import re
import warnings

import keras

from keras_attn.backend.replicas import refuse_model_parallel
from keras_attn.compat.name_scopes import open_scopes
from keras_attn.distribution.workers import worker_of_strategy
from keras_attn.ops.checks import check_sizes

# Smaller weights are not worth a gather of their own.
LEAST_SHARDED_SIZE = 1024


class ModelParallel(keras.distribution.ModelParallel):
    """Divide the weights of a model, and its batches, among a mesh of devices, on JAX.

        devices = data x model

    The device at (i, j) of the mesh has the i-th part of the rows of a batch, and of the weights
    the j-th part of the heads of attention, of the hidden units of feed-forward layers and of the
    rows of token tables. After its two products, a sublayer adds up the results of `model` devices.
    With `shards_parameters` the `data` devices that would hold copies of a weight hold a part of it
    each, and every step gathers a weight where it is used (ZeRO, stage 3). The optimizer's
    variables are divided as the weights are.

    Weights after training are those of one device but for rounding. Memory of weights and
    optimizer for each device: about 1 / model of one device's, with `shards_parameters`
    1 / (data model).

    Use it for models that do not fit on one device.

    **Rules.** Each layer of this package declares `weight_axes`, a dict from the name of a weight
    to the mesh axes that divide its own: `{"kernel": (None, "model"), "bias": ("model",)}`; axes
    left out are whole, and so is the weight with `()`. A layer of your own may have the attribute;
    the names of its parts' weights are those within it, such as `"intermediate/kernel"`. Numbers at
    the end of a name do not count. A weight without a rule, and one whose axis `model` does not
    divide, stays whole on each device, which is as exact; `undivided` has them, and the end of the
    scope warns of them.

    Set the distribution before the first variable is made. `fit`, `evaluate`, `predict`,
    `generate` and `save` work as on one device; what is saved are whole weights, which load under
    any mesh or none. Processes whose devices hold one replica together must feed the same rows,
    as the data of `keras_attn.text` do.

    Args:
        data: int. Number of parts of a batch.
        model: int. Number of parts of the weights.
        shards_parameters: bool. True if also the `data` devices divide the weights.

    Raises:
        ValueError: on another backend than JAX; if the mesh does not have one place for each
            device, or neither of `data` and the number of processes divides the other; if
            `weight_axes` name another axis.

    Example:
        >>> import keras_attn
        >>> place = keras_attn.distribution.ModelParallel(data=2, model=4)  # doctest: +SKIP
        >>> with place.scope():                                            # doctest: +SKIP
        ...     model = keras_attn.models.create("gpt_124m")

    Differs from the paper: XLA places the sums and the gathers; on CPUs it sums whole gradients
        where ZeRO scatters them.

    Reference: [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053), section 3;
        [Rajbhandari et al., 2020](https://arxiv.org/abs/1910.02054), section 5.
    """

    def __init__(self, data, model, shards_parameters=False):
        refuse_model_parallel("model_parallel")
        check_sizes(data=data, model=model)
        devices = keras.distribution.list_devices()
        if data * model != len(devices):
            raise ValueError(
                "`data` times `model` must be the number of devices of all processes, "
                f"{len(devices)}. Received: data={data}, model={model}."
            )
        _, processes = worker_of_strategy(None)
        if data % processes and processes % data:
            raise ValueError(
                f"`data` must divide the number of processes, {processes}, or be a multiple of it. "
                f"Received: data={data}."
            )
        self.sizes = {"data": data, "model": model}
        self.shards_parameters = bool(shards_parameters)
        # For the path of each weight that no rule divides or whose rule does not fit, the reason.
        self.undivided, self._num_reported = {}, 0
        mesh = keras.distribution.DeviceMesh(tuple(self.sizes.values()), tuple(self.sizes), devices)
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name="data",
            auto_shard_dataset=False,
        )

    def get_variable_layout(self, variable):
        shape, scopes = tuple(variable.shape), open_scopes()
        is_weight = bool(scopes) and isinstance(scopes[-1][1], keras.layers.Layer)
        axes = [None] * len(shape)
        if is_weight and shape:
            rule = weight_axes(scopes, variable.name)
            if rule is None:
                self._report(variable, "its layer has no `weight_axes` for it")
            axes = self._fitting(variable, rule or ())
            if self.shards_parameters:
                axes = divide_further(shape, axes, self.sizes["data"])
        return keras.distribution.TensorLayout(tuple(axes), self.device_mesh)

    def _fitting(self, variable, rule):
        """Return a mesh axis, or None, for each axis of a variable, where the sizes fit."""
        shape = tuple(variable.shape)
        if len(rule) > len(shape):
            raise ValueError(
                f"`weight_axes` must have at most as many axes as the weight {variable.path} of "
                f"shape {shape}. Received: {rule}."
            )
        axes, unfit = divide(shape, rule, self.sizes)
        for i in unfit:
            size = self.sizes[rule[i]]
            self._report(variable, f"{size} does not divide its axis of {shape[i]}")
        return axes

    def _report(self, variable, reason):
        if self.sizes["model"] > 1:
            self.undivided[variable.path] = reason

    @contextlib.contextmanager
    def scope(self):
        with super().scope():
            yield self
        count = len(self.undivided)
        if count > self._num_reported:
            self._num_reported = count
            warnings.warn(self.undivided_message(), stacklevel=3)

    def undivided_message(self):
        """Name the weights that every device holds whole because no rule divides them.

        The sentence is empty if there are none.
        """
        shown = [f"{path} ({reason})" for path, reason in self.undivided.items()][:3]
        others = len(self.undivided) - len(shown)
        end = f", and {others} more" if others else ""
        return shown and f"Each device holds these weights whole: {', '.join(shown)}{end}."

    @property
    def num_replicas_in_sync(self):
        """Number of parts of a batch, by the name that TensorFlow's strategies have for it."""
        return self.num_model_replicas


def weight_axes(scopes, name):
    """Return the rule of the weight `name` that is made in the open scopes; None without one.

    It is that of the innermost layer that has rules.
    """
    parts = [name]
    for scope, layer in reversed(scopes):
        rules = getattr(layer, "weight_axes", None)
        if rules is not None:
            return rule_of(rules, parts)
        parts.insert(0, scope)
    return None


def rule_of(rules, names):
    """Return the rule among a layer's `weight_axes` for the weight of these names; None without.

    Args:
        rules: dict, as `ModelParallel` describes it.
        names: list of str. Those of the parts of the layer that hold the weight, and its own.
    """
    return rules.get("/".join(re.sub(r"_\d+$", "", name) for name in names))


def divide(shape, rule, sizes):
    """Return the mesh axis, or None, that divides each axis of a weight where the sizes fit.

    Args:
        shape: tuple of ints.
        rule: tuple of mesh axes; axes left out are whole.
        sizes: dict of the number of devices along each mesh axis.

    Returns:
        A list of mesh axes, and the list of the places in it where the rule's axis does not fit.

    Raises:
        ValueError: if the rule names another axis.
    """
    if not {*rule} <= {*sizes, None}:
        raise ValueError(
            f"`weight_axes` must name axes of the mesh, {', '.join(sizes)}, or None. "
            f"Received: {rule}."
        )
    axes = [*rule, *[None] * (len(shape) - len(rule))]
    unfit = [i for i, name in enumerate(axes) if name is not None and shape[i] % sizes[name]]
    return [None if i in unfit else name for i, name in enumerate(axes)], unfit


def divide_further(shape, axes, count):
    """Divide also the largest whole axis among the `count` devices that hold the same part.

    A small weight, and one without an axis that they can divide, stays as it is.
    """
    axes = list(axes)
    free = [i for i, name in enumerate(axes) if not name and not shape[i] % count]
    if "data" not in axes and free and math.prod(shape) >= LEAST_SHARDED_SIZE:
        axes[max(free, key=lambda i: shape[i])] = "data"
    return axes
