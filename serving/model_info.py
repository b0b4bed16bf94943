"""Model status and metadata, as the protos that both APIs answer with."""

from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse

from .errors import not_found

SIGNATURE_DEF = "signature_def"


def model_status(manager, model_spec):
    """The states of a model's versions, the newest first, or of the one that is named.

    Args:
        manager: `ModelManager`.
        model_spec: `ModelSpec` proto. A label does not narrow the answer.

    Returns:
        `GetModelStatusResponse`.

    Raises:
        ServingError: if the model or the version is unknown.
    """
    name = model_spec.name
    records = manager.versions(name)
    if model_spec.HasField("version"):
        version = model_spec.version.value
        records = [record for record in records if record.version == version]
        if not records:
            raise not_found(f"Could not find version {version} of model {name}")
    if not records:
        raise not_found(f"Could not find any versions of model {name}")
    response = GetModelStatusResponse()
    for record in records:
        status = response.model_version_status.add(version=record.version, state=record.state)
        status.status.SetInParent()  # an empty status would vanish from the JSON
        status.status.error_code = int(record.code)
        status.status.error_message = record.message
    return response


def model_metadata(manager, model_spec):
    """The signatures of the version that a request names.

    Args:
        manager: `ModelManager`.
        model_spec: `ModelSpec` proto.

    Returns:
        Pair of the `GetModelMetadataResponse` without and the `SignatureDefMap` with signatures.

    Raises:
        ServingError: if no such version is available.
    """
    response = GetModelMetadataResponse()
    signatures = SignatureDefMap()
    with manager.use(model_spec) as servable:
        response.model_spec.name = servable.name
        response.model_spec.version.value = servable.version
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
    return response, signatures
