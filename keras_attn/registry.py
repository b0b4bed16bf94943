"""How a value of an axis is given: an object, its snake_case name, or its serialised config."""

import keras

PACKAGE = "keras_attn"
register = keras.saving.register_keras_serializable(package=PACKAGE)


class Value:
    """A value of an axis that has no weights: compared, printed and saved by its configuration."""

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), repr(sorted(self.get_config().items()))))

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


def resolve(identifier, names, axis, needs="get_config", **layer_arguments):
    """The value that `identifier` stands for, as `keras.initializers.get` does.

    `names` maps each snake_case name to a function without arguments that makes the value;
    `needs` is the attribute by which an object is known to be of this axis, and not of another;
    `layer_arguments` (a dtype policy, say) reach the value only where a name makes a Keras layer,
    since an object that the user made keeps what the user gave it.
    """
    if isinstance(identifier, str):
        if identifier not in names:
            raise ValueError(
                f"Unknown {axis}. Received: {axis}={identifier!r}. "
                f"Known names: {', '.join(sorted(names))}."
            )
        make = names[identifier]
        is_layer = isinstance(make, type) and issubclass(make, keras.layers.Layer)
        return make(**layer_arguments) if is_layer else make()
    if isinstance(identifier, dict):
        return keras.saving.deserialize_keras_object(identifier)
    is_value = hasattr(identifier, "get_config") and hasattr(identifier, needs)
    if isinstance(identifier, type) or not is_value:
        raise ValueError(
            f"`{axis}` must be a name or an object of this axis. Received: {axis}={identifier!r}. "
            f"Known names: {', '.join(sorted(names))}."
        )
    return identifier


def copy(value):
    """A new, unbuilt object of the same configuration."""
    return type(value).from_config(value.get_config())


def redraw(initializer):
    """The initializer with numbers of its own: an object with a seed draws the same every time."""
    return copy(initializer) if hasattr(initializer, "seed") else initializer


def build_once(layer, *shapes):
    """Builds `layer` unless it is built: a layer restored from a file arrives built."""
    if not layer.built:
        layer.build(*shapes)


serialize = keras.saving.serialize_keras_object
deserialize = keras.saving.deserialize_keras_object
