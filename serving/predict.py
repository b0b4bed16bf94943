"""Predict requests: find the signature, check names and dtypes of the inputs, pick outputs."""

import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from .errors import Code, ServingError, invalid_argument, require
from .metrics import measure_runtime
from .tensors import check_tensors, dtype_name, to_array, to_proto

DEFAULT_SIGNATURE = "serving_default"


def run_predict_request(servable, request, request_context=None, limits=None):
    """Answer a `PredictRequest`, of gRPC or of a warm-up file, with a `PredictResponse`.

    The time limit of the `RequestContext` ends the run; `Limits` bound the request.
    """
    inputs = {name: to_array(name, proto, limits) for name, proto in request.inputs.items()}
    check_tensors(inputs, limits)
    name = request.model_spec.signature_name
    outputs = predict(servable, name, inputs, request.output_filter, request_context)
    response = PredictResponse()
    name_version(response.model_spec, servable, name or DEFAULT_SIGNATURE)
    for name, array in outputs.items():
        response.outputs[name].CopyFrom(to_proto(array))
    return response


def predict(servable, signature_name, inputs, output_filter=(), request_context=None):
    """Run a signature ("" for the default one) on arrays by input name.

    It returns arrays by output name: those of `output_filter`, or all of them if that is empty.
    """
    name = signature_name or DEFAULT_SIGNATURE
    if name not in servable.signatures:
        raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    signature = servable.signatures[name]
    feeds = _feeds(signature, inputs)
    outputs = _outputs(signature, output_filter)
    fetches = [signature.outputs[alias].name for alias in outputs]
    with measure_runtime(servable.name, "Predict"):
        return dict(zip(outputs, servable.run(feeds, fetches, request_context)))


def input_dtypes(servable, signature_name):
    """Return the inputs of a signature: a dictionary from name to `tf.DType`, sorted by name."""
    name = signature_name or DEFAULT_SIGNATURE
    message = f'Serving signature name: "{name}" not found in signature def'
    require(name in servable.signatures, message)
    inputs = servable.signatures[name].inputs
    require(inputs, f"Failed to get input map for signature: {signature_name or 'DEFAULT'}")
    return {alias: tf.as_dtype(inputs[alias].dtype) for alias in sorted(inputs)}


def optional_inputs(servable, signature_name):
    """Return the names of a signature's inputs that a request may leave out."""
    return set(servable.signatures[signature_name or DEFAULT_SIGNATURE].defaults)


def name_version(model_spec, servable, signature_name):
    """Fill the `ModelSpec` of an answer: the version and the signature that gave it, if any."""
    model_spec.name, model_spec.version.value = servable.name, servable.version
    model_spec.signature_name = signature_name


def _feeds(signature, inputs):
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
    return aliases or sorted(signature.outputs)


def _join(names):
    return ",".join(sorted(names))
