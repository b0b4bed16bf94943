"""Another set of models while the server runs."""

from .errors import Code, ServingError, invalid_argument
from .model_configs import check_model_configs


def reload_models(manager, configs):
    """Serves other models; returns when the new ones among them can answer.

    The real server waits for the last retry of a load, and without end for a base path that holds
    no version. Here the first look decides; what failed is tried again all the same.

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
    """Why a model cannot answer; None if it can."""
    if any(record.loaded for record in records):
        return None
    if not records:
        return f"No versions of servable {config.name} found under {config.base_path}"
    record = records[0]
    return f"{{name: {config.name} version: {record.version}}} due to error: {record.message}"
