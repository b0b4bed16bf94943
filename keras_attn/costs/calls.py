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
        needs_gradient: frozenset of the names of the arguments that need a gradient, since weights
            that learn come before them.
    """

    layer: keras.layers.Layer
    arguments: dict
    output: object
    inside: tuple
    needs_gradient: frozenset

    @property
    def has_gradient(self):
        """True if the backward pass computes a gradient in this call."""
        return bool(self.needs_gradient or self.layer.trainable_variables)

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
        loops = [layer for layer in self.inside if is_loop(layer)]
        return max([layer.max_steps for layer in loops], default=1)

    @property
    def recomputations(self):
        """Number of times that the backward pass computes the call again."""
        again = [layer for layer in self.inside if getattr(layer, "num_recomputations", 0)]
        again = [layer for layer in again if self.needs_gradient or layer.trainable_variables]
        return sum(layer.num_recomputations for layer in again)


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


def is_loop(layer):
    """Return True if a layer repeats what is inside it up to `max_steps` times."""
    return isinstance(layer, (ACT, ACTCell))


def counts_itself(layer):
    """Return True if a layer knows the cost of its calls, with all layers inside it."""
    return isinstance(layer, MultiHeadAttention) or hasattr(layer, "call_products")


class _Recorder(keras.Operation):
    def __init__(self, model):
        super().__init__()
        self.model, self.error = model, None
        self.calls, self.inside, self.specs = [], [], {}
        # By id whether a tensor needs a gradient, and the tensor, so that no other one gets the id.
        self.known = {}
        self.learns = any(weight.trainable for weight in own_weights(model))  # anything so far

    def call(self, inputs):
        self._note(inputs, False)
        return self.model(inputs)

    @contextlib.contextmanager
    def watched(self, layer):
        original, signature = layer.call, inspect.signature(layer.call)

        @functools.wraps(original)  # layers read the signature of their call
        def call(*args, **kwargs):
            arguments = signature.bind(*args, **kwargs).arguments
            is_silent = any(counts_itself(other) for other in self.inside)
            in_loop = any(is_loop(other) and other.trainable_variables for other in self.inside)
            needs = [n for n, x in arguments.items() if self._needs_gradient(x, in_loop)]
            self.learns = self.learns or any(weight.trainable for weight in own_weights(layer))
            self.inside.append(layer)
            try:
                output = self._output(layer, original, args, kwargs)
            except Exception as error:
                self.error = self.error or error
                raise
            finally:
                self.inside.pop()
            # A layer that counts itself does not run those inside it.
            self.learns = self.learns or bool(layer.trainable_variables)
            if not is_silent:
                self._add(layer, arguments, output, frozenset(needs))
            return output

        layer.__dict__["call"] = call
        try:
            yield
        finally:
            del layer.__dict__["call"]

    def _output(self, layer, original, args, kwargs):
        # What these return is known to the call alone.
        has_more = kwargs.get("return_attention_scores") or any(
            kwargs.get(name) is not None for name in ("cache", "memory")
        )
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

    def _note(self, tensors, needs_gradient):
        """Record whether tensors need a gradient; one that needs none, as an input, stays so."""
        for x in keras.tree.flatten(tensors):
            if ops.is_tensor(x):
                before, _ = self.known.get(id(x), (True, x))
                self.known[id(x)] = before and needs_gradient, x

    def _needs_gradient(self, argument, in_loop):
        """Return True if a tensor of the argument needs a gradient.

        One that no layer has returned needs it if anything before it learns: an upper bound. Inside
        a loop that learns all do, as the state of its later steps.
        """
        for x in keras.tree.flatten(argument):
            # Masks, ids and positions have no gradient, wherever they come from.
            if ops.is_tensor(x) and "float" in keras.backend.standardize_dtype(x.dtype):
                needs_gradient, _ = self.known.get(id(x), (self.learns, x))
                if needs_gradient or in_loop:
                    return True
        return False

    def _add(self, layer, arguments, output, needs_gradient):
        arguments = {name: keras.tree.map_structure(self._spec, x) for name, x in arguments.items()}
        first = keras.tree.flatten(keras.tree.map_structure(self._spec, output))[0]
        call = Call(layer, arguments, first, tuple(self.inside), needs_gradient)
        self._note(output, call.has_gradient)
        self.calls.append(call)


def own_weights(layer):
    """Return the weights of a layer that belong to no layer inside it."""
    others = {id(w) for other in flatten_layers(layer) if other is not layer for w in other.weights}
    return [w for w in layer.weights if id(w) not in others]


def own_kernels(layer):
    """Return the matrices of a layer by which its inputs are multiplied."""
    return [w for w in own_weights(layer) if w.name.endswith("kernel") and len(w.shape) > 1]
