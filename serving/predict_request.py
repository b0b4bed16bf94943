"""A `PredictRequest` to a `PredictResponse`."""

from tensorflow_serving.apis.predict_pb2 import PredictResponse

from .predict import DEFAULT_SIGNATURE, predict
from .tensor_proto import to_array, to_proto


def run_predict_request(servable, request, caller=None, limits=None):
    """Answers a request that came over gRPC or stands in a warm-up file.

    Args:
        servable: `Servable`.
        request: `PredictRequest` proto.
        caller: `RequestContext` or None. Whose time limit ends the run.
        limits: `Limits` or None. What the request may bring.

    Returns:
        `PredictResponse` proto, with the version and the signature that answered.

    Raises:
        ServingError: if the request does not fit the signature, or the run fails.
    """
    inputs = {name: to_array(name, proto, limits) for name, proto in request.inputs.items()}
    if limits:
        limits.check_tensors(inputs)
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    outputs = predict(servable, signature_name, inputs, request.output_filter, caller)
    response = PredictResponse()
    response.model_spec.name = servable.name
    response.model_spec.version.value = servable.version
    response.model_spec.signature_name = signature_name
    for name, array in outputs.items():
        response.outputs[name].CopyFrom(to_proto(array))
    return response
