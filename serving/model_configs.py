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
        ValueError: if the file cannot be read or parsed, or a directory does not exist.
    """
    if model_config_file:
        configs = _read(model_config_file)
    else:
        configs = [ModelConfig(name=model_name, base_path=model_base_path)]
    for config in configs:
        if not os.path.isdir(config.base_path):
            raise ValueError(
                f"The base path of model {config.name} must be a directory that holds one "
                f"sub-directory per version. Received: {config.base_path!r}"
            )
    return configs


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
