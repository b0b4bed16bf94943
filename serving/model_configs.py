"""Which models to serve, from the command line or a configuration file."""

import os

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig


def read_model_configs(model_config_file=None, model_name=None, model_base_path=None):
    """The models to serve.

    Args:
        model_config_file: string or None. Text file of a `ModelServerConfig` proto with a
            `model_config_list`; the other arguments are then ignored.
        model_name: string. The name of a single model.
        model_base_path: string. Its directory.

    Returns:
        List of `ModelConfig` protos.

    Raises:
        ValueError: if the file cannot be read or parsed, or `check_model_configs` finds a fault.
    """
    if model_config_file:
        configs = _read(model_config_file)
    else:
        configs = [ModelConfig(name=model_name, base_path=model_base_path)]
    check_model_configs(configs)
    return configs


def check_model_configs(configs):
    """Refuses models that nothing could ask, before one is loaded.

    Args:
        configs: list of `ModelConfig` protos.

    Raises:
        ValueError: if a name or a label is empty, two models have the same name, or a directory
            does not exist.
    """
    names = set()
    for config in configs:
        if not config.name:
            raise ValueError(
                f"Each model must have a name. The one with the base path {config.base_path!r} has "
                "none"
            )
        if config.name in names:
            raise ValueError(f"Illegal to list model {config.name} multiple times in config list")
        names.add(config.name)
        if "" in config.version_labels:
            raise ValueError(f"The labels of model {config.name} must not be empty")
        if not os.path.isdir(config.base_path):
            raise ValueError(
                f"The base path of model {config.name} must be a directory that holds one "
                f"sub-directory per version. Received: {config.base_path!r}"
            )


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            config = text_format.Parse(file.read(), ModelServerConfig())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a ModelServerConfig text proto: {error}") from error
    configs = list(config.model_config_list.config)
    if not configs:
        raise ValueError(f"{path} must list at least one model in its model_config_list.")
    return configs
