"""Rotary positions by the old and the new keys of a configuration."""

from keras_attn import positions

_LENGTH = "original_max_position_embeddings"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def read_rotary(config, kind=None, theta_key="rope_theta", theta=10000.0):
    """Return the `Rotary` of a configuration.

    New files have `rope_parameters`, old ones `rope_theta` and `rope_scaling`, whose kind is
    `rope_type` or `type`. A file with both is read as transformers reads it: `rope_scaling`
    replaces the parameters of all layers, their base too, and updates those of a type of layers;
    `rope_theta` is the base of parameters without one.

    Args:
        config: a `Config`.
        kind: str. Type of the layers, where each type has parameters of its own; None otherwise.
        theta_key: str. Old key of the base.
        theta: float. Base where none is given.
    """
    options = config.options("rope_parameters") or {}
    # `rope_scaling` is of layers with `rope_theta`; those with a key of their own have none.
    scaling = (config.options("rope_scaling") or {}) if theta_key == "rope_theta" else {}
    if kind is not None:
        options = {**(options.get(kind) or {}), **scaling}
    else:
        options = dict(scaling or options)
        if (length := config.get(_LENGTH)) is not None:
            # In place of that of the parameters; transformers ignores it for a type of layers.
            options[_LENGTH] = length
    fraction = options.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if fraction != 1:
        config.refuse(f"The option partial_rotary_factor={fraction!r} is not converted, only 1.")
    base = options.get("rope_theta", config.number(theta_key, theta))
    return positions.Rotary(base, layout="half", scaling=_read_scaling(config, options))


def rotary_options(position):
    """Return the options of `config.json` for a `Rotary`.

    Raises:
        ValueError: if the position is another one, or transformers has no such scaling.
    """
    kinds = {
        type(None): "default",
        positions.Interpolation: "linear",
        positions.Llama3: "llama3",
        positions.YaRN: "yarn",
    }
    scaling = getattr(position, "scaling", None)
    if type(position) is not positions.Rotary or type(scaling) not in kinds:
        raise ValueError(
            "`model` fits no family of checkpoints: its decoder's positions must be `Rotary`, "
            "without a scaling or with `Interpolation`, `Llama3` or `YaRN`. "
            f"Received: position={position!r}."
        )
    found = {"rope_type": kinds[type(scaling)], "rope_theta": float(position.max_wavelength)}
    if scaling is None:
        return {"rope_parameters": found}
    found["factor"] = scaling.factor
    if type(scaling) is positions.Interpolation:
        return {"rope_parameters": found}
    found[_LENGTH] = scaling.length
    if type(scaling) is positions.Llama3:
        found |= _LLAMA3
    elif not scaling.truncate:
        found["truncate"] = False
    # By default transformers takes the length of the family, and scales to that.
    length = round(scaling.factor * scaling.length)
    return {"rope_parameters": found, "max_position_embeddings": length}


def _read_scaling(config, options):
    kind = options.get("rope_type", options.get("type", "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn"):
        config.refuse(
            f"The rope_type {kind!r} is not converted, only default, linear, llama3 and yarn."
        )
    factor = options.get("factor")
    if factor is None:
        config.refuse(f"Rotary positions with the rope_type {kind!r} need the option 'factor'.")
    if kind == "linear":
        return positions.Interpolation(factor)
    length = options.get(_LENGTH) or config.get("max_position_embeddings")
    if length is None:
        config.refuse(f"Rotary positions with the rope_type {kind!r} need the option {_LENGTH!r}.")
    if kind == "llama3":
        _require(config, options, **_LLAMA3)
        return positions.Llama3(factor, length)
    scaling = positions.YaRN(factor, length, truncate=options.get("truncate", True))
    _require(config, options, beta_fast=32, beta_slow=1, mscale=None, mscale_all_dim=None)
    _require(config, options, attention_factor=scaling.amplitude)
    return scaling


def _require(config, options, **values):
    for name, value in values.items():
        if options.get(name) not in (None, value):
            config.refuse(
                f"The option {name}={options[name]!r} of the rotary positions is not converted, "
                f"only {value!r}."
            )
