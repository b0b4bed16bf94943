"""The calls of a model's layers, with their shapes: the model runs on symbolic tensors."""

import contextlib
import dataclasses
import functools
import inspect

import keras
from keras import ops

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.compat.unallocated import without_values
from keras_attn.depth import ACT, ACTCell
from keras_attn.layers import MultiHeadAttention


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a layer.

    Attributes:
        layer: the layer.
        arguments: dict of the arguments by name; tensors are `keras.KerasTensor`s, one for each.
        output: `keras.KerasTensor`, the first output.
        inside: tuple of the layers whose calls it is a part of, from the outermost on.
        reads_input: True if floats among the arguments are an input of the model, which needs no
            gradient.
    """

    layer: keras.layers.Layer
    arguments: dict
    output: object
    inside: tuple
    reads_input: bool

    @property
    def value(self):
        """The values of an attention layer: by default its queries."""
        value = self.arguments.get("value")
        return self.arguments["query"] if value is None else value

    @property
    def num_keys(self):
        """Number of keys of an attention layer."""
        return self.value.shape[1]

    @property
    def repeats(self):
        """Number of times that the call runs: a loop that may end early is recorded once."""
        loops = [layer for layer in self.inside if isinstance(layer, (ACT, ACTCell))]
        return max([layer.max_steps for layer in loops], default=1)

    @property
    def recomputations(self):
        """Number of times that the backward pass computes the call again."""
        return sum(getattr(layer, "num_recomputations", 0) for layer in self.inside)


def record_calls(model, inputs):
    """Return the list of the `Call`s of all layers in a call of `model`.

    Nothing is computed, and no weight needs a value. Layers that count themselves
    (`call_products`, and attention layers) are not run: they return tensors of the right shapes.

    Args:
        model: a built `keras.Model`.
        inputs: nested `keras.KerasTensor`s.
    """
    recorder = _Recorder(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_values())
        for layer in flatten_layers(model):
            if layer is not model:
                stack.enter_context(recorder.watched(layer))
        try:
            recorder.compute_output_spec(inputs)
        except Exception as error:  # Keras wraps what a layer raises
            raise recorder.error or error from None
    # A loop may be traced several times.
    loops = {}
    calls = []
    for call in recorder.calls:
        if call.repeats > 1:
            key = id(call.layer), call.inside
            if loops.setdefault(key, call) is not call:
                continue
        calls.append(call)
    return calls


def counts_itself(layer):
    """Return True if a layer knows the cost of its calls, with all layers inside it."""
    return isinstance(layer, MultiHeadAttention) or hasattr(layer, "call_products")


class _Recorder(keras.Operation):
    def __init__(self, model):
        super().__init__()
        self.model, self.error = model, None
        self.calls, self.inside, self.inputs, self.specs = [], [], [], {}

    def call(self, inputs):
        self.inputs = [id(x) for x in keras.tree.flatten(inputs) if x is not None]
        return self.model(inputs)

    @contextlib.contextmanager
    def watched(self, layer):
        original, signature = layer.call, inspect.signature(layer.call)

        @functools.wraps(original)  # layers read the signature of their call
        def call(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            is_silent = any(counts_itself(other) for other in self.inside)
            self.inside.append(layer)
            try:
                output = self._output(layer, original, args, kwargs)
            except Exception as error:
                self.error = self.error or error
                raise
            finally:
                self.inside.pop()
            if not is_silent:
                self._add(layer, given, output)
            return output

        layer.__dict__["call"] = call
        try:
            yield
        finally:
            del layer.__dict__["call"]

    def _output(self, layer, original, args, kwargs):
        has_more = kwargs.get("cache") is not None or kwargs.get("return_attention_scores")
        if not counts_itself(layer) or has_more:
            return original(*args, **kwargs)
        args, kwargs = keras.tree.map_structure(self._spec, (args, kwargs))
        spec = layer.compute_output_spec(*args, **kwargs)
        return keras.tree.map_structure(lambda x: ops.zeros(x.shape, x.dtype), spec)

    def _spec(self, x):
        """Return the symbolic tensor for a tensor, the same each time; anything else as it is."""
        if not ops.is_tensor(x):
            return x
        if id(x) not in self.specs:  # the tensor is kept, so that no other one gets its id
            dtype = keras.backend.standardize_dtype(x.dtype)
            self.specs[id(x)] = keras.KerasTensor(tuple(x.shape), dtype), x
        return self.specs[id(x)][0]

    def _add(self, layer, given, output):
        # Masks, ids and positions have no gradient, wherever they come from.
        tensors = [x for x in keras.tree.flatten(list(given.values())) if id(x) in self.inputs]
        reads_input = any("float" in keras.backend.standardize_dtype(x.dtype) for x in tensors)
        given = {name: keras.tree.map_structure(self._spec, x) for name, x in given.items()}
        first = keras.tree.flatten(keras.tree.map_structure(self._spec, output))[0]
        self.calls.append(Call(layer, given, first, tuple(self.inside), reads_input))
