"""Base classes, and values of an axis: given as an object, a snake_case name or a configuration."""

import contextlib
import functools
import inspect

import keras
import numpy as np

from keras_attn.compat.default_methods import is_default
from keras_attn.compat.tensorflow_tracking import track_containers
from keras_attn.compat.torch_parameters import renew_parameters
from keras_attn.fit_checks import check_class_weight, explain_loss_scale
from keras_attn.hints import ArgumentHints, closest, constructors
from keras_attn.part_names import class_name, name_layers, name_seeds
from keras_attn.part_states import PART_STATES, frozen_parts, part_states, restore_parts
from keras_attn.sublayers import sublayers

PACKAGE = "keras_attn"
serialize = keras.saving.serialize_keras_object
deserialize = keras.saving.deserialize_keras_object

# Functions that make the values, by snake_case name: the default of an argument may be a name.
_NAMED = {}
# The classes and functions that this package registers.
_OWN = set()


def register(value):
    """Register a class or a function of this package, so that files that refer to it load."""
    _OWN.add(value)
    return keras.saving.register_keras_serializable(package=PACKAGE)(value)


def is_own(value):
    """Return True for a class or a function that this package registers."""
    return value in _OWN


class _ConstructorSignature:
    """Signature of a class for `help`, with the arguments of its base classes."""

    def __get__(self, value, cls):
        if value is not None:
            raise AttributeError("__signature__")  # an object's signature is that of its call
        parameters = sorted(_parameters(cls).values(), key=lambda parameter: parameter.kind)
        if issubclass(cls, keras.layers.Layer):
            parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(parameters)


def with_python_numbers(function):
    """Return a function that turns numbers of NumPy among its arguments into Python's.

    A decorator. Layers of Keras, JSON and `repr` need those.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        args = [_python_numbers(x) for x in args]
        return function(*args, **{name: _python_numbers(x) for name, x in kwargs.items()})

    call.__signature__ = inspect.signature(function)  # which Keras reads
    return call


def _python_numbers(value):
    """Return a number, or those in a list, tuple or dict, as Python's; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_python_numbers, value))
    if type(value) is dict:
        return {key: _python_numbers(x) for key, x in value.items()}
    return value


class NumPyNumbers:
    """Mixin of a class whose constructor takes numbers of NumPy as Python's."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = with_python_numbers(cls.__init__)


class Configurable(NumPyNumbers, ArgumentHints):
    """Mixin with a configuration and a `repr` made of the constructor's arguments.

    The value of an argument is the attribute of its name. A constructor's `**kwargs` are the
    arguments of its base class. What is stored elsewhere needs a `get_config` of its own.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, pattern=keras_attn.patterns.Local(256))
        MultiHeadAttention(8, 64, pattern=Local(256))
    """

    __signature__ = _ConstructorSignature()
    # Arguments of a base class that the class decides itself.
    decided_arguments = ()
    # True if configuration, parts and weights of a layer determine what it computes: it recomputes
    # nothing, sums over no replicas and reads no masks that Keras attaches to tensors.
    depends_on_config_only = False

    @classmethod
    def is_determined(cls):
        """Return True if layers of equal configuration, parts and weights compute the same.

        A subclass of another package may add what its configuration lacks: it is not determined.
        """
        return cls.depends_on_config_only and is_own(cls)

    def get_config(self):
        # Not `super()`: some values inherit from a class of Keras first.
        bases = (base for base in type(self).__mro__ if not issubclass(base, Configurable))
        base = next((base for base in bases if "get_config" in vars(base)), None)
        config = {} if base is None else base.get_config(self)
        for name in _parameters(type(self)):
            if hasattr(self, name):
                # Of a function in `keras.activations` the name is enough.
                to_config = keras.activations.serialize if name == "activation" else serialize
                config[name] = to_config(getattr(self, name))
        return config

    def derived_defaults(self):
        """Return the defaults of arguments that other arguments decide, by name."""
        return {}

    def __repr__(self):
        config, derived, parts = self.get_config(), self.derived_defaults(), []
        for name, parameter in _parameters(type(self)).items():
            if name not in config:
                continue
            value = getattr(self, name, config[name])
            default = derived.get(name, parameter.default)
            if default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
                parts.append(_show(value))
            elif not _is_default(value, default):
                parts.append(f"{name}={_show(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"


@functools.cache
def _parameters(cls):
    """Return the parameters of a constructor and of those that its `**kwargs` reach, by name."""
    parameters = {}
    for constructor in constructors(cls):
        if not issubclass(constructor.owner, Configurable):
            continue
        is_base = bool(parameters)  # reached by keyword only
        for parameter in constructor.parameters:
            kind = parameter.KEYWORD_ONLY if is_base else parameter.kind
            parameters.setdefault(parameter.name, parameter.replace(kind=kind))
        if not constructor.is_open:
            break
    return {name: parameters[name] for name in parameters if name not in cls.decided_arguments}


def _show(value):
    if isinstance(value, (list, tuple)) and any(hasattr(x, "get_config") for x in value):
        return f"[{', '.join(map(_show, value))}]"
    if inspect.isfunction(value):
        return value.__name__
    if isinstance(value, Configurable) or not hasattr(value, "get_config"):
        return repr(value)
    if isinstance(value, keras.layers.Layer):
        return type(value).__name__
    config = [f"{k}={v!r}" for k, v in value.get_config().items() if v is not None]
    return f"{type(value).__name__}({', '.join(config)})"


def _is_default(value, default):
    """Return True if `value` is the default, or the object that the default's name makes."""
    if not isinstance(default, str) or isinstance(value, str):
        return value is default or type(value) is type(default) and value == default
    if default in _NAMED:
        return repr(value) == f"{_NAMED[default].__name__}()"
    for get in (keras.initializers.get, keras.activations.get):
        with contextlib.suppress(ValueError):
            named = get(default)
            return named is value or hasattr(value, "get_config") and _show(named) == _show(value)
    return False


class Composite(Configurable):
    """Mixin of a layer that holds others, whose state is part of its own.

    What is frozen or quantized inside it is in its configuration, down to single variables, and
    variables have paths by attribute, equal in all models of one configuration. TensorFlow's
    checkpoints hold those in lists and dicts too. Put it before Keras's class.
    """

    # The states of parts that exist once the layer is built, and its flags when they were set.
    _pending_states = None

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        if isinstance(layer, keras.layers.Layer):  # Keras makes objects of mixins alone too
            layer.build = _complete_build(layer, layer.build)
        return layer

    def get_config(self):
        return {**Configurable.get_config(self), **part_states(self)}

    @classmethod
    def from_config(cls, config):
        states = {name: config[name] for name in PART_STATES if name in config}
        arguments = {name: config[name] for name in config if name not in states}
        layer = super().from_config(unbuilt(arguments))
        if states:
            restore_parts(layer, states)
            layer._pending_states = None if layer.built else (states, frozen_parts(layer))
        return layer

    def add_loss(self, loss):
        """Add a loss as Keras does, in the precision of its main loss whatever the policy's."""
        losses = [keras.ops.cast(each, keras.config.floatx()) for each in keras.tree.flatten(loss)]
        super().add_loss(losses)

    @is_default
    def compute_output_shape(self, *shapes, **named_shapes):
        """Return the shape of the output, as a call with inputs of these shapes has it.

        Args:
            *shapes: of the inputs, in the order of `call`.
            **named_shapes: the same by name: `value_shape` for `value`.
        """
        named = {name.removesuffix("_shape"): shape for name, shape in named_shapes.items()}
        first_error = None
        for dtype in (self.compute_dtype, "int32"):  # layers of ids refuse floats
            inputs, named_inputs = keras.tree.map_shape_structure(
                lambda shape: keras.KerasTensor(shape, dtype), (shapes, named)
            )
            # A call builds the copy.
            infer = self.compute_output_spec if self.built else copy(self)
            call = inspect.signature(self.call).bind(*inputs, **named_inputs)
            try:
                spec = infer(*call.args, **call.kwargs)
                break
            except (TypeError, ValueError) as error:
                if first_error is not None:
                    raise first_error from None
                first_error = error
        return keras.tree.map_structure(lambda x: x.shape, spec)


def _complete_build(layer, build):
    """Return the `build` of a layer, which also names its parts and gives them their states."""

    @functools.wraps(build)
    def build_parts(*args, **kwargs):
        parts_before = sublayers(layer)
        name_layers(parts_before)
        states, flags = layer._pending_states or ({}, None)
        if states and frozen_parts(layer) != flags:  # somebody has set others since
            states = {name: states[name] for name in states if name != "frozen"}
        build(*args, **kwargs)
        name_seeds(layer)
        if not layer.trainable:  # Keras has frozen the parts that there were
            known = set(map(id, parts_before.values()))
            for part in sublayers(layer).values():
                part.trainable = part.trainable and id(part) in known
        track_containers(layer)
        if states:
            restore_parts(layer, states)
        renew_parameters(layer)
        layer._pending_states = None

    return build_parts


class MaskedLayer(Composite, keras.layers.Layer):
    """A layer with a configuration and a `repr`, which passes Keras's masks on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True


class KernelLayer(MaskedLayer):
    """A layer whose kernels are made with the same options, and its biases too.

    Args:
        use_bias: bool. If False, the layer has no biases.
        kernel_initializer, kernel_regularizer, kernel_constraint: of each kernel.
        bias_initializer, bias_regularizer, bias_constraint: of each bias.
        output_initializer: of the last kernel; by default `kernel_initializer`.
    """

    depends_on_config_only = True

    def __init__(
        self,
        *,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.output_initializer = keras.initializers.get(output_initializer)


class Value(Configurable):
    """A value of an axis that has no weights: compared, printed and saved by its configuration."""

    @classmethod
    def from_config(cls, config):
        return cls(**{name: deserialize(value) for name, value in config.items()})

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), repr(sorted(self.get_config().items()))))


class LayerValue(Composite, keras.layers.Layer, Value):
    """A value of an axis that has weights: a layer that equals only itself."""

    depends_on_config_only = True

    def __new__(cls, *args, **kwargs):
        cls._check_arguments(args, kwargs)
        return super().__new__(cls, *args, **kwargs)

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = Configurable.__repr__


class BuildsOptimizer:
    """Mixin of a built model that builds its optimizer before the first step.

    Variables made inside the first step would make TensorFlow trace the step twice. Arguments with
    which Keras trains wrongly, or fails, are refused. Put the mixin before `keras.Model`.
    """

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        check_class_weight(self, super().fit, args, kwargs)
        return super().fit(*args, **kwargs)

    @functools.wraps(keras.Model.train_on_batch)
    def train_on_batch(self, *args, **kwargs):
        check_class_weight(self, super().train_on_batch, args, kwargs)
        return super().train_on_batch(*args, **kwargs)

    def train_step(self, *args, **kwargs):
        with explain_loss_scale(self.optimizer):
            return super().train_step(*args, **kwargs)

    def make_train_function(self, force=False):
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)


def unbuilt(config):
    """Return a configuration whose parts are not built when they are made of it.

    Keras would build each by itself: outside of the layer that holds it, whose name begins the
    paths of their variables, and of any model, whose rules divide them among devices.
    """
    if isinstance(config, (list, tuple)):
        return type(config)(map(unbuilt, config))
    if not isinstance(config, dict):
        return config
    is_part = "class_name" in config
    return {k: unbuilt(x) for k, x in config.items() if not (is_part and k == "build_config")}


def revive(value):
    """Return the object of a serialised configuration; anything else as it is."""
    return deserialize(value) if isinstance(value, dict) else value


def resolve(identifier, names, axis, base=object, argument=None, **layer_arguments):
    """Return the value for a name, a config or an object, as `keras.initializers.get` does.

    Args:
        names: dict from each snake_case name to a function without arguments that makes the value.
        axis: str. The axis, for error messages.
        base: class of the axis's objects.
        argument: str. The argument, for error messages; by default `axis`.
        **layer_arguments: such as a dtype policy, for Keras layers that are made from a name.
    """
    _NAMED.update(names)
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str) and identifier in names:
        make = names[identifier]
        is_layer = isinstance(make, type) and issubclass(make, keras.layers.Layer)
        return make(**layer_arguments) if is_layer else make()
    is_object = isinstance(identifier, base) and not isinstance(identifier, type)
    if is_object and hasattr(identifier, "get_config"):
        return identifier
    argument = argument or axis
    problem = _problem(identifier, names, axis, base, argument)
    raise ValueError(
        f"{problem} Received: {argument}={identifier!r}. Known names: {', '.join(sorted(names))}."
    )


def _problem(identifier, names, axis, base, argument):
    """Return a sentence on why an argument is no value of an axis."""
    if isinstance(identifier, str):
        return f"Unknown {axis}.{_hint(identifier, names, axis, base)}"
    is_class = isinstance(identifier, type) and issubclass(identifier, base)
    if is_class and issubclass(identifier, Configurable):
        return f"`{argument}` must be an object, not a class: pass {_call_of(identifier)}."
    kind = "" if base is object else f", an instance of {base.__name__}"
    return f"`{argument}` must be a name or an object of this axis{kind}."


def _hint(name, names, axis, base):
    """Return a sentence with the value of the axis, or of another one, that a name may mean."""
    values = {cls.__name__: _call_of(cls) for cls in _classes(base)}
    match = closest(name, [*values, *names])
    if match is not None:
        return f" Did you mean {values.get(match) or repr(match)}?"
    others = {cls.__name__: _call_of(cls) for cls in _classes(Configurable)}
    match = closest(name, others)
    return "" if match is None else f" {others[match]} belongs to another axis."


def _classes(base):
    """Return the registered subclasses of `base`; none if it is `object`."""
    if base is object:
        return []
    classes = [cls for child in base.__subclasses__() for cls in (child, *_classes(child))]
    return [cls for cls in classes if ">" in keras.saving.get_registered_name(cls)]


def _call_of(cls):
    """Return the call that makes an object: `patterns.Local(window=...)`, with backquotes."""
    needed = [f"{p.name}=..." for p in _parameters(cls).values() if p.default is p.empty]
    package, _, module = cls.__module__.partition(".")
    folder = f"{module.partition('.')[0]}." if package == PACKAGE else ""
    return f"`{folder}{cls.__name__}({', '.join(needed)})`"


def copy(value):
    """Return a new, unbuilt object of the same configuration, a layer with its class's name."""
    config = value.get_config()
    if isinstance(value, keras.layers.Layer):
        config["name"] = class_name(value)
    return type(value).from_config(config)


def build_once(layer, *shapes):
    """Build `layer` unless it is built: a layer restored from a file arrives built."""
    if not layer.built:
        layer.build(*shapes)
