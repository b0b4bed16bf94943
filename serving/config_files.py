"""Configuration files: text protos, read and checked."""

import os

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

from .client.messages_pb2 import MonitoringConfig


def read_config(path, message_class):
    """Return the text proto in a file.

    Raises:
        ValueError: if the file cannot be read or parsed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message_class())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message_class.DESCRIPTOR.name
        raise ValueError(f"{path} is not a {name} text proto: {error}") from error


def read_model_configs(model_config_file=None, model_name=None, model_base_path=None):
    """Return `ModelConfig` protos: those of a `ModelServerConfig` file, or that of a single model.

    Raises:
        ValueError: if the file cannot be read or parsed, or `check_model_configs` refuses it.
    """
    configs = [ModelConfig(name=model_name, base_path=model_base_path)]
    if file := model_config_file:
        configs = list(read_config(file, ModelServerConfig).model_config_list.config)
        if not configs:
            raise ValueError(f"{file} must list at least one model in its model_config_list.")
    check_model_configs(configs)
    return configs


def check_model_configs(configs):
    """Refuse `ModelConfig` protos that no request could name, before a model is loaded.

    Raises:
        ValueError: if a name or a label is empty, two models have the same name, or a directory
            does not exist.
    """
    names = set()
    for config in configs:
        if not config.name:
            path = repr(config.base_path)
            raise ValueError(f"Each model must have a name. The one with base path {path} has none")
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


def read_metrics_path(path=None):
    """Return the URL path of the metrics in a `MonitoringConfig` file, or None for no metrics.

    Raises:
        ValueError: if the file cannot be read or parsed, or its `path` is not a URL's.
    """
    if not path:
        return None
    config = read_config(path, MonitoringConfig).prometheus_config
    if not config.enable:
        return None
    page = config.path or "/monitoring/prometheus/metrics"
    if not page.startswith("/"):
        raise ValueError(f"{path}: path must start with a slash. Received: {page!r}")
    return page
