"""Status, metadata and reload of models, as the protos that both APIs answer with."""

from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse

from .config_files import check_model_configs
from .errors import Code, ServingError, invalid_argument
from .predict import name_version

SIGNATURE_DEF = "signature_def"


def model_status(manager, model_spec):
    """Return a `GetModelStatusResponse`: all versions, the newest first, or the one named.

    A label in the `ModelSpec` does not narrow the answer.
    """
    records, missing = manager.versions(model_spec.name), "any versions"
    if model_spec.HasField("version"):
        records = [record for record in records if record.version == model_spec.version.value]
        missing = f"version {model_spec.version.value}"
    if not records:
        raise ServingError(Code.NOT_FOUND, f"Could not find {missing} of model {model_spec.name}")
    response = GetModelStatusResponse()
    for record in records:
        status = response.model_version_status.add(version=record.version, state=record.state)
        status.status.SetInParent()  # an empty status would vanish from the JSON
        status.status.error_code = record.code.value[0]
        status.status.error_message = record.message
    return response


def model_metadata(manager, model_spec):
    """Return a `GetModelMetadataResponse` without the signatures, and their `SignatureDefMap`."""
    response, signatures = GetModelMetadataResponse(), SignatureDefMap()
    with manager.use(model_spec) as servable:
        name_version(response.model_spec, servable, "")
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
    return response, signatures


def reload_models(manager, configs):
    """Serve other models (`ModelConfig`s); return when the new ones among them can answer.

    If a configuration is wrong, nothing changes. If a model that was not served before does not
    become available, the others do. The real server waits for the last retry of a load, and without
    end for a base path that holds no version. Here the first attempt decides; failed loads are
    retried all the same.
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
        listed = "".join(f"{{{text}}}, " for text in missing)
        message = f"{len(missing)} servable(s) did not become available: {{{listed}}}"
        raise ServingError(Code.UNKNOWN, message)


def _missing(config, records):
    """Return the reason why a model cannot answer, or None if it can."""
    if not records:
        return f"No versions of servable {config.name} found under {config.base_path}"
    name = f"{{name: {config.name} version: {records[0].version}}}"
    is_loaded = any(record.loaded for record in records)
    return None if is_loaded else f"{name} due to error: {records[0].message}"
