"""Predict requests: find the signature, check names and dtypes of the inputs, pick outputs."""

import contextlib
import dataclasses
import functools
import math
import typing
import weakref

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from .errors import Code, ServingError, invalid_argument, require
from .metrics import measure_runtime
from .tensors import FEW_VALUES, check_tensors, dtype_name, fill_proto, to_array

DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class GraphCall:
    """A run of a model's graph for one request.

    Args:
        feeds, fetches: dict from tensor name to array, list of tensor names.
        finish: function that turns the outputs into the request's answer.
        measure: function without arguments that returns the context of the run.
    """

    feeds: dict
    fetches: list
    finish: typing.Callable
    measure: typing.Callable = contextlib.nullcontext

    def then(self, function):
        """Return the call whose answer is the function of this one's."""
        finish = self.finish
        return dataclasses.replace(self, finish=lambda outputs: function(finish(outputs)))

    def run(self, servable, request_context=None):
        """Return the answer, on this thread; the `RequestContext` limits the time."""
        with self.measure():
            outputs = servable.run(self.feeds, self.fetches, request_context)
        return self.finish(outputs)


def run_now(prepare):
    """Return the function that runs at once the `GraphCall` that a function prepares."""

    def run(servable, request, request_context=None, limits=None):
        return prepare(servable, request, limits).run(servable, request_context)

    return run


def is_small(request):
    """Return True for a `PredictRequest` of few values; one value may stand for a whole tensor."""
    shapes = [proto.tensor_shape.dim for proto in getattr(request, "inputs", {}).values()]
    return sum(math.prod(dim.size for dim in dims) for dims in shapes) <= FEW_VALUES


def prepare_request(servable, request, limits=None):
    """Return the `GraphCall` of a `PredictRequest`, of gRPC or of a warm-up file.

    Its answer is a `PredictResponse`. `Limits` bound the request.
    """
    inputs = {name: to_array(name, proto, limits) for name, proto in request.inputs.items()}
    check_tensors(inputs, limits)
    name = request.model_spec.signature_name

    def respond(outputs):
        response = PredictResponse()
        name_version(response.model_spec, servable, name or DEFAULT_SIGNATURE)
        for name_of_output, array in outputs.items():
            fill_proto(response.outputs[name_of_output], array)
        return response

    return prepare(servable, name, inputs, request.output_filter).then(respond)


run_predict_request = run_now(prepare_request)


def predict(servable, signature_name, inputs, output_filter=(), request_context=None):
    """Return what `prepare` answers, on this thread; the `RequestContext` limits the time."""
    return prepare(servable, signature_name, inputs, output_filter).run(servable, request_context)


def prepare(servable, signature_name, inputs, output_filter=()):
    """Return the `GraphCall` of a signature ("" for the default one) on arrays by input name.

    Its answer are arrays by output name: those of `output_filter`, or all if that is empty.
    """
    name = signature_name or DEFAULT_SIGNATURE
    if name not in servable.signatures:
        raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    signature = _read_signature(servable, name)
    feeds = _feeds(signature, inputs)
    outputs = _outputs(signature, output_filter)
    fetches = [signature.outputs[alias] for alias in outputs]
    measure = functools.partial(measure_runtime, servable.name, "Predict")
    return GraphCall(feeds, fetches, lambda arrays: dict(zip(outputs, arrays)), measure)


class _Signature:
    """Names and types of a signature, read once: of its proto that takes longer than a request."""

    def __init__(self, proto):
        self.proto, self.optional = proto, set(proto.defaults)
        self.dtypes = {name: tf.as_dtype(proto.inputs[name].dtype) for name in sorted(proto.inputs)}
        self.array_dtypes = {name: np.dtype(x.as_numpy_dtype) for name, x in self.dtypes.items()}
        self.inputs = {name: proto.inputs[name].name for name in self.dtypes}
        self.outputs = {name: proto.outputs[name].name for name in sorted(proto.outputs)}


_signatures = weakref.WeakKeyDictionary()  # servable -> name -> _Signature


def _read_signature(servable, name):
    known = _signatures.setdefault(servable, {})
    if name not in known:
        known[name] = _Signature(servable.signatures[name])
    return known[name]


def input_dtypes(servable, signature_name):
    """Return the inputs of a signature: a dictionary from name to `tf.DType`, sorted by name."""
    name = signature_name or DEFAULT_SIGNATURE
    message = f'Serving signature name: "{name}" not found in signature def'
    require(name in servable.signatures, message)
    dtypes = _read_signature(servable, name).dtypes
    require(dtypes, f"Failed to get input map for signature: {signature_name or 'DEFAULT'}")
    return dtypes


def optional_inputs(servable, signature_name):
    """Return the names of a signature's inputs that a request may leave out."""
    return _read_signature(servable, signature_name or DEFAULT_SIGNATURE).optional


def name_version(model_spec, servable, signature_name):
    """Fill the `ModelSpec` of an answer: the version and the signature that gave it, if any."""
    model_spec.name, model_spec.version.value = servable.name, servable.version
    model_spec.signature_name = signature_name


def _feeds(signature, inputs):
    dtypes = {name: array.dtype for name, array in inputs.items()}
    if dtypes == signature.array_dtypes:
        return {tensor: inputs[name] for name, tensor in signature.inputs.items()}
    signature = signature.proto
    sent, known = set(inputs), set(signature.inputs)
    if len(sent) > len(known) or (len(sent) < len(known) and not signature.defaults):
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(known)} "
            f"len({{{_join(sent)}}}) != len({{{_join(known)}}}). "
            f"Sent extra: {{{_join(sent - known)}}}. "
            f"Missing but required: {{{_join(known - sent)}}}."
        )
    feeds = {}
    for index, alias in enumerate(sorted(known)):
        info = signature.inputs[alias]
        if alias in inputs:
            array = inputs[alias]
        elif alias in signature.defaults:
            array = to_array(alias, signature.defaults[alias])
        else:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and "
                "no default value provided. Inputs expected to be in the request "
                f"{{{_join(sent)}}}, or default input alias set: {_join(signature.defaults)}"
            )
        wanted, got = tf.as_dtype(info.dtype), tf.as_dtype(array.dtype)
        names = f"{dtype_name(wanted)} but {dtype_name(got)}"
        require(wanted == got, f"Expects arg[{index}] to be {names} is provided")
        feeds[info.name] = array
    names = f"{_join(sent & known)}, request input: {_join(sent)}"
    require(sent <= known, f"Inputs contains invalid name. Used request inputs: {names}")
    return feeds


def _outputs(signature, output_filter):
    aliases = []
    for alias in output_filter:
        known = f"Outputs expected to be in the set {{{_join(signature.outputs)}}}."
        message = f"output tensor alias not found in signature: {alias} {known}"
        require(alias in signature.outputs, message)
        require(alias not in aliases, f"duplicate output tensor alias: {alias}")
        aliases.append(alias)
    return aliases or [*signature.outputs]


def _join(names):
    return ",".join(sorted(names))
