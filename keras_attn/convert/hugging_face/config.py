"""The configuration of a checkpoint: options by their old and new keys, checked when read."""

from keras_attn import positions
from keras_attn.convert.hugging_face.tensor_files import read_json, refuse
from keras_attn.ops.activations import gelu_sigmoid, gelu_tanh, get_activation

FILE = "config.json"
_ACTIVATIONS = {
    **{name: name for name in ("gelu", "relu", "tanh", "silu")},
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), gelu_tanh),
    "quick_gelu": gelu_sigmoid,
    "swish": "silu",
}
# Options of any family that are converted with one value only: the one that changes nothing.
_OPTIONS = {
    "add_cross_attention": False,
    "auto_map": None,
    "is_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
}
# Types of layers: with a window of keys, and without one.
SLIDING, FULL = "sliding_attention", "full_attention"
_LENGTH = "original_max_position_embeddings"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def activation_name(function, tanh="gelu_pytorch_tanh"):
    """Return the name of an activation in `config.json`, by default its first name above.

    Args:
        function: the activation of a layer.
        tanh: name of the approximation of GELU by tanh, for which families have several.

    Raises:
        ValueError: if transformers has no such activation.
    """
    if function is gelu_tanh:
        return tanh
    for name, value in _ACTIVATIONS.items():
        if get_activation(value) is function:
            return name
    raise ValueError(
        "`model` fits no family of checkpoints: its activations must be among "
        f"{', '.join(_ACTIVATIONS)}. Received: activation={function!r}."
    )


class Config:
    """The options of `config.json`.

    Args:
        folder: path of the checkpoint.
        values: dict, in place of the file.
    """

    def __init__(self, folder, values=None):
        self.folder = folder
        self.values = read_json(folder, FILE) if values is None else values

    def refuse(self, problem):
        """Raise a `ValueError` with the folder's name."""
        refuse(problem, self.folder)

    def get(self, name, default=None):
        """Return an option; the default where it is absent or null."""
        value = self.values.get(name)
        return default if value is None else value

    def size(self, name, default=None):
        """Return an option that is an integer above 0; refuse its absence without a default."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(f"`{name}` in {FILE} must be an integer above 0, not {value!r}.")
        return value

    def number(self, name, default):
        """Return an option that is a number of at least 0."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            self.refuse(f"`{name}` in {FILE} must be a number of at least 0, not {value!r}.")
        return value

    def integers(self, name):
        """Return an option that is a list of integers."""
        value = self.get(name)
        if not isinstance(value, list) or not all(type(x) is int for x in value):
            self.refuse(f"`{name}` in {FILE} must be a list of integers, not {value!r}.")
        return value

    def strings(self, name):
        """Return an option that is a list of strings; None where it is absent or null."""
        value = self.get(name)
        is_list = isinstance(value, list) and all(isinstance(x, str) for x in value)
        if value is not None and not is_list:
            self.refuse(f"`{name}` in {FILE} must be a list of strings, not {value!r}.")
        return value

    def index(self, name, default):
        """Return an option that is the id of a token."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(f"`{name}` in {FILE} must be the id of a token, not {value!r}.")
        return value

    def flag(self, name, default=False):
        """Return an option that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            self.refuse(f"`{name}` in {FILE} must be true or false, not {value!r}.")
        return value

    def options(self, name):
        """Return an option that holds options of its own; None where it is absent or null."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(f"`{name}` in {FILE} must be an object of options, not {value!r}.")
        return value

    def activation(self, name, default):
        """Return the activation that an option names, as an argument of a layer."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in _ACTIVATIONS:
            self.refuse(f"The activation {name}={value!r} is not converted.")
        return _ACTIVATIONS[value]

    def require(self, **options):
        """Refuse a folder in which one of the `options`, if it is there, has another value."""
        for name, value in {**_OPTIONS, **options}.items():
            if self.get(name, value) != value:
                self.refuse(
                    f"The option {name}={self.values[name]!r} is not converted, only {value!r}."
                )


def layer_types(config, is_sliding):
    """Return the type of each layer: `layer_types`, or by the index where an old file has none."""
    num_layers = config.size("num_hidden_layers")
    types = config.strings("layer_types")
    if types is None:
        return [SLIDING if is_sliding(index) else FULL for index in range(num_layers)]
    if len(types) != num_layers or not set(types) <= {SLIDING, FULL}:
        config.refuse(
            f"`layer_types` must name {SLIDING!r} or {FULL!r} for each of {num_layers} layers, "
            f"not {types!r}."
        )
    return types


def windows(config, types, default=4096):
    """Return a function from a layer's index to its window, None for none."""
    window = config.size("sliding_window", default) if SLIDING in types else None
    return lambda index: window if types[index] == SLIDING else None


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
        theta: float. Base where the file has none.
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
    options = {"rope_type": kinds[type(scaling)], "rope_theta": float(position.max_wavelength)}
    if scaling is None:
        return {"rope_parameters": options}
    options["factor"] = scaling.factor
    if type(scaling) is positions.Interpolation:
        return {"rope_parameters": options}
    options[_LENGTH] = scaling.length
    if type(scaling) is positions.Llama3:
        options |= _LLAMA3
    elif not scaling.truncate:
        options["truncate"] = False
    # By default transformers takes the length of the family, and scales to that.
    length = round(scaling.factor * scaling.length)
    return {"rope_parameters": options, "max_position_embeddings": length}


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
