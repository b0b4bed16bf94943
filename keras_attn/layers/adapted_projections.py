"""Layers of a model by their paths, and its projections that an adapter can be added to."""

from fnmatch import fnmatchcase

import keras
from keras import ops

from keras_attn.compat.layer_weights import remove_weight
from keras_attn.low_rank_kernels import LowRankKernels
from keras_attn.part_names import name_weights
from keras_attn.sublayers import attributes


def layers_by_path(model):
    """Yield the path, a tuple of names, and the layer of all parts of a model, each part once.

    A path has the names of attributes, the indices of lists, and in a model made by Keras's
    functional API the names of layers.
    """
    seen = set()

    def visit(path, layer):
        if id(layer) in seen:
            return
        seen.add(id(layer))
        yield path, layer
        for name, part in _parts(layer):
            yield from visit((*path, name), part)

    yield from visit((), model)


def _parts(layer):
    """Yield the names and the layers of the public attributes, then those of a model's graph."""
    for name, value in attributes(layer).items():
        if isinstance(value, keras.layers.Layer):
            yield name, value
        elif isinstance(value, (list, tuple)):
            yield from (
                (f"{name}/{index}", part)
                for index, part in enumerate(value)
                if isinstance(part, keras.layers.Layer)
            )
    if isinstance(layer, keras.Model):
        yield from ((part.name, part) for part in layer.layers)


class KernelProjection:
    """A projection whose kernel is a weight of a layer with several, such as attention.

    That of a `MixtureOfExperts` holds a matrix for each expert. An adapter's `parts` are its
    weights A and B; `kernel` is the weight W that it updates.
    """

    def __init__(self, path, layer, name):
        self.path, self.layer, self.name = path, layer, name

    @property
    def kernel(self):
        return getattr(self.layer, f"{self.name}_kernel")

    @property
    def axes(self):
        """The input axes and the output axes of the kernel."""
        return self.layer.kernel_axes(self.name)

    @property
    def scale(self):
        """The factor of the product A B; None without an adapter."""
        return self.layer.updates.get(self.name)

    @property
    def parts(self):
        return self.layer.update_weights(self.name)

    @property
    def is_one(self):
        """True if the kernel is one matrix."""
        return self.layer.num_matrices is None

    def rank_of(self, b):
        """Return the rank of an adapter from its part B."""
        return b.shape[self.layer.first_axis]

    def updated(self):
        """Return the kernel with its adapter."""
        return self.layer.updated(self.name, self.kernel)

    def add(self, rank, alpha):
        self.layer.add_update(self.name, rank, alpha / rank)

    def merge(self):
        self.layer.merge_update(self.name)


class DenseProjection:
    """A `keras.layers.Dense`, whose adapter is that of Keras's `enable_lora`."""

    is_one = True

    def __init__(self, path, layer):
        self.path, self.layer = path, layer

    @property
    def kernel(self):
        is_enabled, self.layer.lora_enabled = self.layer.lora_enabled, False
        kernel = self.layer.kernel  # the weight itself: with an adapter Keras returns a sum
        self.layer.lora_enabled = is_enabled
        return kernel

    @property
    def axes(self):
        rows, columns = self.kernel.shape
        return (rows,), (columns,)

    @property
    def scale(self):
        return self.layer.lora_alpha / self.layer.lora_rank if self.layer.lora_enabled else None

    @property
    def parts(self):
        return self.layer.lora_kernel_a, self.layer.lora_kernel_b

    def add(self, rank, alpha):
        parts = {"lora_kernel_a": (), "lora_kernel_b": ()}
        self.layer.weight_axes = {**getattr(self.layer, "weight_axes", {}), **parts}
        self.layer.enable_lora(rank, lora_alpha=alpha)
        name_weights(self.layer)

    def rank_of(self, b):
        return b.shape[0]

    def updated(self):
        return self.kernel + self.scale * ops.matmul(*self.parts)

    def merge(self):
        self.kernel.assign(self.updated())
        for name in ("lora_kernel_a", "lora_kernel_b"):
            remove_weight(self.layer, name)
        self.layer.lora_enabled, self.layer.lora_rank, self.layer.lora_alpha = False, None, None


def projections(model):
    """Return the projections of a model, by path, such as `depth/blocks/0/attention/query`.

    A path is that of `layers_by_path` and the projection's name.
    """
    by_path = {}
    for path, layer in layers_by_path(model):
        if not layer.built or layer.quantization_mode is not None:
            continue
        if isinstance(layer, LowRankKernels):
            for name in layer.kernel_names():
                own = "/".join((*path, name))
                by_path[own] = KernelProjection(own, layer, name)
        elif isinstance(layer, keras.layers.Dense):
            # `output` is an attribute of every Keras layer, so a dense layer cannot have the name.
            own = "/".join(path).removesuffix("_dense")
            by_path[own] = DenseProjection(own, layer)
    return by_path


def adapted(model):
    """Return the projections of a model that have an adapter, by path."""
    return {path: p for path, p in projections(model).items() if p.scale is not None}


def matching(model, targets):
    """Return the projections that the targets name, by path; refuse a target without any."""
    known, named = projections(model), {}
    for target in targets:
        paths = _named(known, target)
        if not paths:
            names = sorted({"/".join(path.split("/")[-2:]) for path in known})
            raise ValueError(
                "`targets` must be names of projections, ends of their paths, or patterns with "
                f"`*`. The model has {', '.join(names) or 'none'}. Received: targets={target!r}."
            )
        named |= {path: known[path] for path in paths}
    return named


def _named(paths, target):
    """Return the paths that end with a target, or match it."""
    return [p for p in paths if fnmatchcase(p, target) or fnmatchcase(p, f"*/{target}")]


def merged_weights(model):
    """Return pairs of a weight and its value in a file of the model, which has no adapters."""
    adapters = adapted(model).values()
    parts = {id(part) for projection in adapters for part in projection.parts}
    values = {id(projection.kernel): projection.updated() for projection in adapters}
    weights = [weight for weight in model.weights if id(weight) not in parts]
    return [(weight, values.get(id(weight), weight.value)) for weight in weights]
