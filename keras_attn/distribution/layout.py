"""The part of a weight that each device of a mesh holds."""

import math
import re

# Smaller weights are not worth a gather of their own.
LEAST_SHARDED_SIZE = 1024


def parse_mesh(text):
    """Return the sizes by axis of a mesh such as "data=2,model=4"; an axis left out is 1.

    Raises:
        ValueError: if it is anything else.
    """
    found = [re.fullmatch(r"(data|model)=([1-9]\d*)", part) for part in text.split(",")]
    if None in found or len({part[1] for part in found}) < len(found):
        raise ValueError(f"A mesh must be as data=2,model=4. Received: {text!r}.")
    return {"data": 1, "model": 1, **{part[1]: int(part[2]) for part in found}}


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
