"""The configuration of a checkpoint: options by their old and new keys, checked when read."""

import math

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

    Attributes:
        max_length: int. The longest text that the user asks for; None for any.
    """

    max_length = None

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

    def optional(self, read, name, default):
        """Return an option, where null in the file stands for none, an absent key for the default.

        Args:
            read: a method of this object, such as `size`.
            name: str.
            default: None for none.
        """
        return None if self.values.get(name, default) is None else read(name, default)

    def number(self, name, default):
        """Return an option that is a number of at least 0."""
        value = self.get(name, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:  # JSON of Python may hold NaN and Infinity
            self.refuse(f"`{name}` in {FILE} must be a number of at least 0, not {value!r}.")
        return value

    def real(self, name):
        """Return an option that is a finite number of any sign; refuse its absence."""
        value = self.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            self.refuse(f"`{name}` in {FILE} must be a number, not {value!r}.")
        return value

    def positive(self, name, default):
        """Return an option that is a number above 0."""
        value = self.number(name, default)
        if value == 0:
            self.refuse(f"`{name}` in {FILE} must be a number above 0, not {value!r}.")
        return value

    def integer(self, name, default):
        """Return an option that is an integer of any sign."""
        value = self.get(name, default)
        if type(value) is not int:
            self.refuse(f"`{name}` in {FILE} must be an integer, not {value!r}.")
        return value

    def integers(self, name, default=None):
        """Return an option that is a list of integers."""
        value = self.get(name, default)
        if not isinstance(value, list) or not all(type(x) is int for x in value):
            self.refuse(f"`{name}` in {FILE} must be a list of integers, not {value!r}.")
        return value

    def levels(self, name):
        """Return an option that is a list of numbers between 0 and 1; refuse its absence."""
        value = self.get(name)
        is_list = isinstance(value, list) and len(value) > 0
        if not is_list or not all(isinstance(x, float) and 0 < x < 1 for x in value):
            self.refuse(f"`{name}` in {FILE} must be a list of levels in (0, 1), not {value!r}.")
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
        quantization = self.get("quantization_config")
        if isinstance(quantization, dict) and quantization.get("quant_method") == "mxfp4":
            options = {"quantization_config": quantization, **options}  # read by its tensors
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


def windows(config, types, default=4096, is_used=True):
    """Return a function from a layer's index to its window, None for none.

    Args:
        config: a `Config`.
        types: list of the type of each layer.
        default: int. The window where the file has no key `sliding_window`; None for none.
        is_used: bool. False if an option turns windows off, which types must agree with.
    """
    window = config.optional(config.size, "sliding_window", default) if is_used else None
    if SLIDING in types and window is None:
        config.refuse(
            "Layers with a window need the option sliding_window, and use_sliding_window=True in "
            "families that have it."
        )
    return lambda index: window if types[index] == SLIDING else None
