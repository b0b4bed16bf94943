"""Overrides that are no arguments of a model's function: another depth or residual."""

import functools

import keras

from keras_attn import depth, registry, residuals
from keras_attn.ops.checks import check_that
from keras_attn.part_states import PART_STATES
from keras_attn.sublayers import attributes

CHANGES = ("depth", "residual")
_DEPTHS = {"reversible": depth.Reversible, "stack": depth.Stack}
_STACKS = ("depth", "encoder", "decoder")


def change(model, **changes):
    """Return a model with another depth or residual, and the weights of `model`.

    What both models have keeps its numbers, in each block the norms of the residuals too. Other
    weights, such as the norm after the last block of a pre-norm stack, have their initial ones.

    Args:
        model: a model of `keras_attn.models` that has its weights.
        changes: `residual`, a name or object of the residual axis, and `depth`: "stack",
            "reversible", or a function from the list of blocks to a depth, such as
            `lambda blocks: depth.Stack(blocks, remat=True)`.

    Raises:
        ValueError: if a change is of another kind, or the blocks do not fit the depth.
    """
    if not changes:
        return model
    config = model.get_config()
    stacks = [name for name in _STACKS if getattr(model, name, None) is not None]
    for name in stacks:
        stack = getattr(model, name)
        if not hasattr(stack, "blocks"):
            raise ValueError(
                f"`{next(iter(changes))}` must be left out for a model whose layers are no stack "
                f"of blocks. Received: a model with {type(stack).__name__}."
            )
        _check_shared_blocks(stack, changes)
        blocks = [_with_residual(block, changes.get("residual")) for block in stack.blocks]
        made = _depth_of(stack, changes.get("depth"))(blocks)
        check_that(hasattr(made, "blocks"), "a function from blocks to a depth", depth=made)
        config[name] = registry.serialize(made)
        config[name]["config"]["name"] = stack.name
    changed = type(model).from_config(config)
    for name, old in attributes(model).items():
        if name in stacks:
            _copy_stack(old, getattr(changed, name))
        elif isinstance(old, keras.layers.Layer):
            getattr(changed, name).set_weights(old.get_weights())
    return changed


def _check_shared_blocks(stack, changes):
    """Refuse another residual for blocks that several layers share."""
    has_groups = any(isinstance(block, depth.Stack) for block in stack.blocks)
    keeps_shared = stack.shares_block and "depth" not in changes
    if "residual" in changes and (has_groups or keeps_shared):
        raise ValueError(
            "`residual` must be left out for blocks that several layers share; where all layers "
            "share one, `depth='stack'` gives each layer its own. "
            f"Received: residual={changes['residual']!r} for {stack!r}."
        )


def _depth_of(stack, identifier):
    """Return the function from blocks to the depth that an override names."""
    if identifier is None:
        left_out = {"block", "num_layers", *PART_STATES}
        options = {k: v for k, v in stack.get_config().items() if k not in left_out}
        return functools.partial(type(stack), **options)
    if isinstance(identifier, str) and identifier in _DEPTHS:
        return functools.partial(_DEPTHS[identifier], dtype=stack.dtype_policy)
    is_function = callable(identifier) and not isinstance(identifier, keras.layers.Layer)
    check_that(is_function, f"{', '.join(_DEPTHS)} or a function of the blocks", depth=identifier)
    return identifier


def _with_residual(block, identifier):
    """Return a new block; a residual that is given by its name keeps the kind of the norms."""
    config = registry.serialize(block)
    if identifier is not None:
        residual = residuals.get(identifier)
        if isinstance(identifier, str):
            norm = block.residual.norm
            residual = type(residual).from_config(
                {**residual.get_config(), "norm": registry.serialize(registry.copy(norm))}
            )
        config["config"]["residual"] = registry.serialize(residual)
    return registry.revive(config)


def _copy_stack(old, new):
    for before, after in zip(old.blocks, new.blocks, strict=True):
        shapes = [[weight.shape for weight in block.weights] for block in (before, after)]
        if type(before) is type(after) and shapes[0] == shapes[1]:
            after.set_weights(before.get_weights())
            continue
        for name in ("attention", "cross_attention", "feed_forward"):
            if getattr(before, name, None) is not None:
                getattr(after, name).set_weights(getattr(before, name).get_weights())
                residual = f"{name}_residual"
                _copy_norms(getattr(before, residual), getattr(after, residual))
    if old.norm is not None and new.norm is not None:
        new.norm.set_weights(old.norm.get_weights())


def _copy_norms(old, new):
    """Copy the weights of the norms that both residuals have."""
    for name in ("norm", "output_norm"):
        norms = [getattr(residual, name, None) for residual in (old, new)]
        if None not in norms and [x.shape for x in norms[0].weights] == [
            x.shape for x in norms[1].weights
        ]:
            norms[1].set_weights(norms[0].get_weights())
