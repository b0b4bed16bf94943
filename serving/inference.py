"""Classify, Regress and MultiInference: signatures that read `tf.Example`s.

Which signatures fit, and the messages for those that do not, are those of `classifier.cc`,
`regressor.cc` and `multi_inference.cc`. Like the real server by default, a signature is judged by
the names of its inputs and outputs and not by its method name.
"""

import typing

import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow_serving.apis.classification_pb2 import ClassificationResponse
from tensorflow_serving.apis.inference_pb2 import MultiInferenceResponse
from tensorflow_serving.apis.regression_pb2 import RegressionResponse

from .errors import Code, ServingError, invalid_argument, require
from .examples import serialized_examples
from .metrics import measure_runtime
from .predict import DEFAULT_SIGNATURE, name_version
from .tensors import as_array


class _Method(typing.NamedTuple):
    """One of the two ways to read a signature's outputs."""

    name: str
    check: typing.Callable  # raises if a signature does not fit
    fill: typing.Callable  # puts outputs into a result proto
    result_field: str  # of an `InferenceResult`


def classify(servable, request, request_context=None, limits=None):
    """Answer a `ClassificationRequest` with a `ClassificationResponse`.

    Args:
        servable: `Servable`.
        request: proto.
        request_context: `RequestContext` or None. Its time limit ends the run.
        limits: `Limits` or None. Bounds of the request.
    """
    return _infer(servable, request, ClassificationResponse(), _CLASSIFY, request_context, limits)


def regress(servable, request, request_context=None, limits=None):
    """Answer a `RegressionRequest` with a `RegressionResponse`; the rest as in `classify`."""
    return _infer(servable, request, RegressionResponse(), _REGRESS, request_context, limits)


def multi_inference(servable, request, request_context=None, limits=None):
    """Answer a `MultiInferenceRequest`, several signatures in one run; the rest as above."""
    tasks = {}  # signature name -> signature and method
    for task in request.tasks:
        spec = task.model_spec
        require(spec.name, "Found ModelSpec with an empty model name.")
        require(
            spec.name == request.tasks[0].model_spec.name,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        )
        name = spec.signature_name or DEFAULT_SIGNATURE
        require(name not in tasks, f"Duplicate evaluation of signature: {name}")
        known = name in servable.signatures
        require(known, f"Requested signature not found in model graph: {name}")
        if task.method_name not in _METHODS:
            message = f"Unsupported signature method_name: {task.method_name}"
            raise ServingError(Code.UNIMPLEMENTED, message)
        method = _METHODS[task.method_name]
        method.check(servable.signatures[name])
        tasks[name] = servable.signatures[name], method
    examples = _examples(request.input, limits)
    feeds = {signature.inputs["inputs"].name: examples for signature, _ in tasks.values()}
    fetches = sorted({t for signature, _ in tasks.values() for t in _wanted(signature).values()})
    found = dict(zip(fetches, map(as_array, servable.run(feeds, fetches, request_context))))
    response = MultiInferenceResponse()
    for name, (signature, method) in tasks.items():
        result = response.results.add()
        outputs = {alias: found[tensor] for alias, tensor in _wanted(signature).items()}
        method.fill(outputs, len(examples), getattr(result, method.result_field))
        name_version(result.model_spec, servable, name)
    return response


def _infer(servable, request, response, method, request_context, limits):
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    require(name in servable.signatures, f"No signature was found with the name: {name}")
    signature = servable.signatures[name]
    method.check(signature)
    examples, wanted = _examples(request.input, limits), _wanted(signature)
    with measure_runtime(servable.name, method.name):
        feeds = {signature.inputs["inputs"].name: examples}
        found = servable.run(feeds, list(wanted.values()), request_context)
    method.fill(dict(zip(wanted, map(as_array, found))), len(examples), response.result)
    name_version(response.model_spec, servable, name)
    return response


def _check_classify(signature):
    count = len(signature.outputs)
    require(len(signature.inputs) == 1, "Expected one input Tensor.")
    require(count in (1, 2), f"Expected one or two output Tensors, found {count}")
    if "inputs" not in signature.inputs:
        raise invalid_argument(f"No classification inputs found in SignatureDef: {signature}")
    if not {"classes", "scores"} & set(signature.outputs):
        raise invalid_argument(
            "Expected classification signature outputs to contain at least one of "
            f'"classes" or "scores". Signature was: {signature}'
        )


def _check_regress(signature):
    require(len(signature.inputs) == 1, "Expected one input Tensor.")
    require(len(signature.outputs) == 1, "Expected one output Tensor.")
    if "inputs" not in signature.inputs:
        raise invalid_argument(f"No regression inputs found in SignatureDef: {signature}")
    if "outputs" not in signature.outputs:
        raise invalid_argument(f"No regression outputs found in SignatureDef: {signature}")


def _wanted(signature):
    """Return output names to tensor names, of the outputs that an answer shows."""
    return {
        alias: signature.outputs[alias].name
        for alias in ("classes", "scores", "outputs")
        if alias in signature.outputs
    }


def _examples(input_proto, limits):
    examples = serialized_examples(input_proto)
    if limits:
        limits.check_tensors({"inputs": examples})
    return examples


def _fill_classes(outputs, count, result):
    """Fill a `ClassificationResult`."""
    outputs = {alias: outputs[alias] for alias in ("classes", "scores") if alias in outputs}
    dtypes = {"classes": tf.string, "scores": tf.float32}
    for alias, array in outputs.items():
        message = f"Expected Tensor shape: [batch_size num_classes] but got {_shape(array)}"
        require(array.ndim == 2, message)
        _check_dtype(array, dtypes[alias], f"Expected {alias} Tensor of {{}}. Got: {{}}")
        message = f"Expected {alias} output batch size of {count}. Got: {len(array)}"
        require(len(array) == count, message)
    widths = [array.shape[1] for array in outputs.values()]
    shown = f"{widths[0]} vs. {widths[-1]}"
    same = widths[0] == widths[-1]
    require(same, f"Tensors class and score should match in dim_size(1). Got {shown}")
    for row in range(count):
        classes = result.classifications.add().classes
        for column in range(widths[0]):
            item = classes.add()
            if "classes" in outputs:
                item.label = outputs["classes"][row, column].decode("utf-8", "replace")
            if "scores" in outputs:
                item.score = outputs["scores"][row, column]


def _fill_values(outputs, count, result):
    """Fill a `RegressionResult`."""
    array = outputs["outputs"]
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise invalid_argument(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{_shape(array)}"
        )
    message = f"Input batch size did not match output batch size: {count} vs. {len(array)}"
    require(len(array) == count, message)
    _check_dtype(array, tf.float32, "Expected output Tensor of {}.  Got: {}")
    for value in array.ravel().tolist():
        result.regressions.add(value=value)


def _check_dtype(array, wanted, message):
    found = tf.as_dtype(array.dtype)
    if found != wanted:
        names = [DataType.Name(dtype.as_datatype_enum) for dtype in (wanted, found)]
        raise invalid_argument(message.format(*names))


def _shape(array):
    return f"[{','.join(map(str, array.shape))}]"


_CLASSIFY = _Method("Classify", _check_classify, _fill_classes, "classification_result")
_REGRESS = _Method("Regress", _check_regress, _fill_values, "regression_result")
_METHODS = {"tensorflow/serving/classify": _CLASSIFY, "tensorflow/serving/regress": _REGRESS}
