"""Status, metadata and reload of models, as the protos that both APIs answer with."""

from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse

from .config_files import check_model_configs
from .errors import Code, ServingError, invalid_argument, not_found

SIGNATURE_DEF = "signature_def"


def model_status(manager, model_spec):
    """Return a `GetModelStatusResponse`: all versions, the newest first, or the one named.

    Args:
        manager: `ModelManager`.
        model_spec: `ModelSpec` proto. A label does not narrow the answer.

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
        status.status.error_code = record.code.value[0]
        status.status.error_message = record.message
    return response


def model_metadata(manager, model_spec):
    """Return the signatures of the version that a request names.

    Args:
        manager: `ModelManager`.
        model_spec: `ModelSpec` proto.

    Returns:
        Pair of a `GetModelMetadataResponse` without the signatures and their `SignatureDefMap`.

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


def reload_models(manager, configs):
    """Serve other models; return when the new ones among them can answer.

    The real server waits for the last retry of a load, and without end for a base path that holds
    no version. Here the first attempt decides; failed loads are retried all the same.

    Args:
        manager: `ModelManager`.
        configs: list of `ModelConfig` protos.

    Raises:
        ServingError: if a configuration is wrong, and then nothing changes; or if a model that was
            not served before does not become available, and then the others do.
    """
    try:
        check_model_configs(configs)
    except ValueError as error:
        raise invalid_argument(str(error)) from error
    before = manager.names()
    manager.configure(configs)
    manager.poll()
    new = [config for config in configs if config.name not in before]
    missing = [text for config in new if (text := _missing(config, manager.versions(config.name)))]
    if missing:
        raise ServingError(
            Code.UNKNOWN,
            f"{len(missing)} servable(s) did not become available: "
            f"{{{''.join(f'{{{text}}}, ' for text in missing)}}}",
        )


def _missing(config, records):
    """Return the reason why a model cannot answer, or None if it can."""
    if any(record.loaded for record in records):
        return None
    if not records:
        return f"No versions of servable {config.name} found under {config.base_path}"
    record = records[0]
    return f"{{name: {config.name} version: {record.version}}} due to error: {record.message}"
