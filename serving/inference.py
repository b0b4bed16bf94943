"""Classify, Regress and MultiInference: signatures that read `tf.Example`s.

Which signatures fit, and the messages for those that do not, are those of `classifier.cc`,
`regressor.cc` and `multi_inference.cc`. Like the real server by default, a signature is judged by
the names of its inputs and outputs and not by its method name.
"""

import dataclasses
import functools
import typing

import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow_serving.apis.classification_pb2 import ClassificationResponse
from tensorflow_serving.apis.inference_pb2 import MultiInferenceResponse
from tensorflow_serving.apis.regression_pb2 import RegressionResponse

from .errors import Code, ServingError, invalid_argument, require
from .examples import serialized_examples
from .metrics import measure_runtime
from .predict import DEFAULT_SIGNATURE, GraphCall, name_version, run_now
from .tensors import as_array, check_tensors

_SHOWN = {"classes", "scores", "outputs"}  # outputs that an answer shows


class _Method(typing.NamedTuple):
    name: str
    response: type  # of the API's message
    check: typing.Callable  # raises if a signature does not fit
    fill: typing.Callable  # puts outputs into a result proto
    result_field: str  # of an `InferenceResult`


def prepare_multi_inference(servable, request, limits=None):
    """Return the `GraphCall` of a `MultiInferenceRequest`, several signatures in one run.

    `Limits` bound the request.
    """
    tasks = {}  # signature name -> method
    for task in request.tasks:
        spec = task.model_spec
        require(spec.name, "Found ModelSpec with an empty model name.")
        require(
            spec.name == request.tasks[0].model_spec.name,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        )
        name = spec.signature_name or DEFAULT_SIGNATURE
        require(name not in tasks, f"Duplicate evaluation of signature: {name}")
        message = f"Requested signature not found in model graph: {name}"
        require(name in servable.signatures, message)
        method = _METHODS.get(task.method_name)
        if method is None:
            message = f"Unsupported signature method_name: {task.method_name}"
            raise ServingError(Code.UNIMPLEMENTED, message)
        method.check(servable.signatures[name])
        tasks[name] = method
    examples = _examples(request.input, limits)

    def respond(outputs):
        response = MultiInferenceResponse()
        for name, method in tasks.items():
            result = response.results.add()
            method.fill(outputs[name], len(examples), getattr(result, method.result_field))
            name_version(result.model_spec, servable, name)
        return response

    return _call(servable, tasks, examples).then(respond)


def _prepare(method, servable, request, limits=None):
    """Return the `GraphCall` of a request for one signature; the rest as for several."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    require(name in servable.signatures, f"No signature was found with the name: {name}")
    method.check(servable.signatures[name])
    examples = _examples(request.input, limits)

    def respond(outputs):
        response = method.response()
        method.fill(outputs[name], len(examples), response.result)
        name_version(response.model_spec, servable, name)
        return response

    measure = functools.partial(measure_runtime, servable.name, method.name)
    return dataclasses.replace(_call(servable, [name], examples), measure=measure).then(respond)


def _call(servable, names, examples):
    """Return the `GraphCall` of signatures, whose answer has, by signature, the shown outputs."""
    signatures = {name: servable.signatures[name] for name in names}
    wanted = {
        name: {
            alias: signature.outputs[alias].name for alias in _SHOWN.intersection(signature.outputs)
        }
        for name, signature in signatures.items()
    }
    feeds = {signature.inputs["inputs"].name: examples for signature in signatures.values()}
    fetches = sorted({tensor for tensors in wanted.values() for tensor in tensors.values()})

    def arrange(arrays):
        outputs = dict(zip(fetches, map(as_array, arrays)))
        return {
            name: {alias: outputs[tensor] for alias, tensor in tensors.items()}
            for name, tensors in wanted.items()
        }

    return GraphCall(feeds, fetches, arrange)


def _check_classify(signature):
    count = len(signature.outputs)
    require(len(signature.inputs) == 1, "Expected one input Tensor.")
    require(count in (1, 2), f"Expected one or two output Tensors, found {count}")
    _check_name("inputs", signature.inputs, "classification inputs", signature)
    if not {"classes", "scores"} & set(signature.outputs):
        raise invalid_argument(
            "Expected classification signature outputs to contain at least one of "
            f'"classes" or "scores". Signature was: {signature}'
        )


def _check_regress(signature):
    require(len(signature.inputs) == 1, "Expected one input Tensor.")
    require(len(signature.outputs) == 1, "Expected one output Tensor.")
    _check_name("inputs", signature.inputs, "regression inputs", signature)
    _check_name("outputs", signature.outputs, "regression outputs", signature)


def _check_name(name, known, shown, signature):
    if name not in known:  # not `require`: the message prints the whole signature
        raise invalid_argument(f"No {shown} found in SignatureDef: {signature}")


def _examples(input_proto, limits):
    examples = serialized_examples(input_proto)
    check_tensors({"inputs": examples}, limits)
    return examples


def _fill_classes(outputs, count, result):
    """Fill a `ClassificationResult`."""
    outputs = {alias: outputs[alias] for alias in ("classes", "scores") if alias in outputs}
    dtypes = {"classes": tf.string, "scores": tf.float32}
    for alias, array in outputs.items():
        shape = _shape(array)
        require(array.ndim == 2, f"Expected Tensor shape: [batch_size num_classes] but got {shape}")
        _check_dtype(array, dtypes[alias], f"Expected {alias} Tensor of {{}}. Got: {{}}")
        message = f"Expected {alias} output batch size of {count}. Got: {len(array)}"
        require(len(array) == count, message)
    widths = [array.shape[1] for array in outputs.values()]
    first, last = widths[0], widths[-1]
    message = f"Tensors class and score should match in dim_size(1). Got {first} vs. {last}"
    require(first == last, message)
    for row in range(count):
        classes = result.classifications.add().classes
        for column in range(first):
            item = classes.add()
            if "classes" in outputs:
                item.label = outputs["classes"][row, column].decode("utf-8", "replace")
            if "scores" in outputs:
                item.score = outputs["scores"][row, column]


def _fill_values(outputs, count, result):
    """Fill a `RegressionResult`."""
    array = outputs["outputs"]
    expected = "Expected output Tensor shape to be either [batch_size] or [batch_size, 1]"
    fits = array.ndim == 1 or array.shape[1:] == (1,)
    require(fits, f"{expected} but got {_shape(array)}")
    message = f"Input batch size did not match output batch size: {count} vs. {len(array)}"
    require(len(array) == count, message)
    _check_dtype(array, tf.float32, "Expected output Tensor of {}.  Got: {}")
    for value in array.ravel().tolist():
        result.regressions.add(value=value)


def _check_dtype(array, wanted, message):
    received = tf.as_dtype(array.dtype)
    if received != wanted:
        names = [DataType.Name(dtype.as_datatype_enum) for dtype in (wanted, received)]
        raise invalid_argument(message.format(*names))


def _shape(array):
    return f"[{','.join(map(str, array.shape))}]"


_CLASSIFY = _Method(
    "Classify", ClassificationResponse, _check_classify, _fill_classes, "classification_result"
)
_REGRESS = _Method("Regress", RegressionResponse, _check_regress, _fill_values, "regression_result")
_METHODS = {"tensorflow/serving/classify": _CLASSIFY, "tensorflow/serving/regress": _REGRESS}
prepare_classify = functools.partial(_prepare, _CLASSIFY)
prepare_regress = functools.partial(_prepare, _REGRESS)
classify, regress = run_now(prepare_classify), run_now(prepare_regress)
multi_inference = run_now(prepare_multi_inference)
