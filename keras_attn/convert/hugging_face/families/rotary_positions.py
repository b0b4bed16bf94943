"""Rotary positions of a configuration, by its old and new options, as a `Rotary`; and back.

New files have `rope_parameters`, old ones `rope_theta` and `rope_scaling`, whose kind is
`rope_type` or `type`. A file with both is read as transformers reads it: `rope_scaling` replaces
the parameters of all layers, their base too, and updates those of a type of layers; `rope_theta` is
the base of parameters without one.
"""

import math

from keras_attn import positions

_LENGTH = "original_max_position_embeddings"
_LONGEST = "max_position_embeddings"
_FRACTION = "partial_rotary_factor"


def read_rotary(config, kind=None, theta_key="rope_theta", theta=10000.0, **defaults):
    """Return the `Rotary` of a configuration, for texts of at most its `max_length`.

    Args:
        config: a `Config`.
        kind: str. Type of the layers, where each type has parameters of its own; None otherwise.
        theta_key: str. Old key of the base.
        theta: float. Base where the file has none.
        defaults: options of the family where the file has none. Only a family with a default of
            `partial_rotary_factor` has heads that turn in part.
    """
    options = _read_options(config, kind, theta_key, defaults)
    base = _number(config, options, "rope_theta", config.number(theta_key, theta))
    fraction = _read_fraction(config, options, defaults.get(_FRACTION))
    scaling, longest = _read_scaling(config, options)
    limit = config.max_length if longest is None else longest
    return positions.Rotary(base, "half", fraction, scaling, limit)


def _read_options(config, kind, theta_key, defaults):
    options = config.options("rope_parameters") or {}
    # `rope_scaling` is of layers with `rope_theta`; those with a key of their own have none.
    scaling = (config.options("rope_scaling") or {}) if theta_key == "rope_theta" else {}
    if kind is None:
        options = dict(scaling or options)
        if (length := config.get(_LENGTH, defaults.get(_LENGTH))) is not None:
            options[_LENGTH] = length  # in place of that of the parameters
    else:
        # transformers ignores the length beside the parameters of types of layers, and reads
        # `truncate` there only.
        truncate = options.get("truncate", True)
        own = options.get(kind) or {}
        if not isinstance(own, dict):
            config.refuse(f"The parameters of rotary positions of {kind} are {own!r}, no object.")
        options = {**own, **scaling, "truncate": truncate}
    if _FRACTION not in options:
        options[_FRACTION] = config.get(_FRACTION, defaults.get(_FRACTION, 1.0))
    return options


def _read_fraction(config, options, default):
    fraction = _number(config, options, _FRACTION, 1.0)
    if fraction == 1:
        return 1.0
    if default is None:
        config.refuse(f"The option {_FRACTION}={fraction!r} is not converted, only 1.")
    width, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    size = config.size("head_dim", width // num_heads)
    return int(size * fraction) / size


def _read_scaling(config, options):
    """Return the scaling and the longest text for which it holds, each None for none."""
    kind = options.get("rope_type", options.get("type", "default"))
    readers = {
        "default": lambda config, options: (None, None),
        "linear": lambda config, options: (positions.Interpolation(options["factor"]), None),
        "llama3": _read_llama3,
        "yarn": _read_yarn,
        "longrope": _read_longrope,
        "su": _read_longrope,  # of the first files of Phi-3
        "dynamic": _read_dynamic,
    }
    if not isinstance(kind, str) or kind not in readers:
        kinds = ", ".join(name for name in readers if name != "su")
        config.refuse(f"The rope_type {kind!r} is not converted, only {kinds}.")
    needed = {"linear": ["factor"], "llama3": ["factor"], "yarn": ["factor"]}
    for name in needed.get(kind, ()):
        if name not in options or options[name] is None and kind != "yarn":
            config.refuse(f"Rotary positions with the rope_type {kind!r} need the option {name!r}.")
    try:
        return readers[kind](config, options)
    except (TypeError, ValueError) as error:
        if "Received: folder" in str(error):
            raise
        return config.refuse(f"The options of the rope_type {kind!r} do not fit: {error}")


def _read_llama3(config, options):
    bounds = options.get("low_freq_factor", 1.0), options.get("high_freq_factor", 4.0)
    return positions.Llama3(options["factor"], _trained_length(config, options), *bounds), None


def _read_yarn(config, options):
    length = _trained_length(config, options)
    factor = options["factor"]
    if factor is None:
        factor = config.size(_LONGEST) / length
    scaling = positions.YaRN(
        factor,
        length,
        options.get("truncate", True),
        options.get("beta_fast") or 32.0,
        options.get("beta_slow") or 1.0,
        _yarn_amplitude(options, factor),
    )
    return scaling, None


def _yarn_amplitude(options, factor):
    """Return the amplitude that the options give; None for that of the paper."""
    if options.get("attention_factor") is not None:
        return options["attention_factor"]
    scales = options.get("mscale"), options.get("mscale_all_dim")
    if not all(scales):
        return None
    above, below = (1 + 0.1 * scale * math.log(factor) for scale in scales)
    return above / below


def _read_longrope(config, options):
    """Return the short factors, for texts up to the trained length, or the long ones.

    transformers takes the set that fits the longest row of each call.
    """
    length = _trained_length(config, options)
    short, long = (_factors(config, options, name) for name in ("short_factor", "long_factor"))
    factor = options.get("factor") or config.size(_LONGEST) / length
    is_long = config.max_length is not None and config.max_length > length
    scaling = positions.LongRoPE(
        max(factor, 1.0), length, long if is_long else short, options.get("attention_factor")
    )
    # Factors that are equal hold for all texts.
    return scaling, None if is_long or short == long else min(config.max_length or length, length)


def _factors(config, options, name):
    values = options.get(name)
    if not isinstance(values, list):
        config.refuse(
            f"Rotary positions of long texts need the option {name!r}, a list of numbers."
        )
    return values


def _read_dynamic(config, options):
    """Return no scaling: up to the trained length the angles are those without one."""
    trained = config.size(_LONGEST)
    longest = config.max_length or trained
    if longest > trained:
        config.refuse(
            f"Rotary positions with the rope_type 'dynamic' are converted up to {_LONGEST}="
            f"{trained} only: in longer texts transformers changes the angles of all positions. "
            f"Take a `max_length` up to it, not {longest}."
        )
    return None, longest


def _trained_length(config, options):
    length = options.get(_LENGTH) or config.get(_LONGEST)
    if length is None:
        kind = options.get("rope_type", options.get("type"))
        config.refuse(f"Rotary positions with the rope_type {kind!r} need the option {_LENGTH!r}.")
    return length


def _number(config, options, name, default):
    value = options.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        config.refuse(f"The option {name} must be a number above 0, not {value!r}.")
    return value


def rotary_options(attention):
    """Return the options of `config.json` for the `Rotary` of an attention layer.

    Raises:
        ValueError: if the position is another one, or transformers has no such scaling.
    """
    position = attention.position
    scaling = getattr(position, "scaling", None)
    writers = {
        type(None): _write_none,
        positions.Interpolation: _write_linear,
        positions.Llama3: _write_llama3,
        positions.YaRN: _write_yarn,
        positions.LongRoPE: _write_longrope,
    }
    if type(position) is not positions.Rotary or type(scaling) not in writers:
        raise ValueError(
            "`model` fits no family of checkpoints: its decoder's positions must be `Rotary`, "
            "without a scaling or with `Interpolation`, `Llama3`, `YaRN` or `LongRoPE`. "
            f"Received: position={position!r}."
        )
    kind, parameters = writers[type(scaling)](scaling)
    parameters = {"rope_type": kind, "rope_theta": float(position.max_wavelength), **parameters}
    if position.fraction != 1:
        parameters[_FRACTION] = _written_fraction(position.fraction, attention.key_dim)
    options = {"rope_parameters": parameters}
    if _LENGTH in parameters:
        # Some families take this length from here; others scale to the class's longest text.
        options[_LENGTH] = parameters[_LENGTH]
        options[_LONGEST] = round(scaling.factor * scaling.length)
    elif position.max_length is not None:
        options[_LONGEST] = position.max_length
    return options


def _written_fraction(fraction, size):
    """Return a fraction of which transformers, which rounds down, takes as many components."""
    return (
        fraction if int(size * fraction) == round(size * fraction) else math.nextafter(fraction, 1)
    )


def _write_none(scaling):
    return "default", {}


def _write_linear(scaling):
    return "linear", {"factor": scaling.factor}


def _write_llama3(scaling):
    bounds = {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    return "llama3", {"factor": scaling.factor, _LENGTH: scaling.length, **bounds}


def _write_yarn(scaling):
    options = {"factor": scaling.factor, _LENGTH: scaling.length}
    if not scaling.truncate:
        options["truncate"] = False
    if (scaling.beta_fast, scaling.beta_slow) != (32, 1):
        options |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
    return "yarn", {**options, **_written_amplitude(scaling)}


def _write_longrope(scaling):
    """Return the options of one set of factors in the place of both, so that no text has others."""
    both = dict.fromkeys(("short_factor", "long_factor"), scaling.factors)
    options = {"factor": scaling.factor, _LENGTH: scaling.length, **both}
    return "longrope", {**options, **_written_amplitude(scaling)}


def _written_amplitude(scaling):
    is_default = scaling.amplitude == scaling.derived_defaults()["amplitude"]
    return {} if is_default else {"attention_factor": scaling.amplitude}
