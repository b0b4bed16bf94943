"""Configuration files: text protos, read and checked. What is wrong is a `ValueError`."""

import contextlib
import dataclasses
import logging
import os
import pathlib
import ssl
import tempfile

import grpc
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

from .client.messages_pb2 import BatchingParameters, MonitoringConfig, SSLConfig

_log = logging.getLogger(__name__)


def read_config(path, message_class):
    """Return the text proto in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message_class())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message_class.DESCRIPTOR.name
        raise ValueError(f"{path} is not a {name} text proto: {error}") from error


def read_model_configs(model_config_file=None, model_name=None, model_base_path=None):
    """Return `ModelConfig` protos, checked: of a `ModelServerConfig` file, or of a single model."""
    if model_config_file:
        configs = read_config(model_config_file, ModelServerConfig).model_config_list.config
    else:
        configs = [ModelConfig(name=model_name, base_path=model_base_path)]
    if not configs:
        file = model_config_file
        raise ValueError(f"{file} must list at least one model in its model_config_list.")
    check_model_configs(configs)
    return list(configs)


def check_model_configs(configs):
    """Refuse `ModelConfig` protos that no request could name, or whose path can hold no version.

    A directory without versions may get some later; a warning names another that has some already.
    """
    names = set()
    for config in configs:
        if not config.name:
            nameless = f"The one with base path {config.base_path!r} has none"
            raise ValueError(f"Each model must have a name. {nameless}")
        if config.name in names:
            raise ValueError(f"Illegal to list model {config.name} multiple times in config list")
        names.add(config.name)
        if "" in config.version_labels:
            raise ValueError(f"The labels of model {config.name} must not be empty")
        path, suggested = config.base_path, _suggest_base_path(config.base_path)
        if _is_version(path) or not os.path.isdir(path):
            must = "must be a directory that holds one sub-directory per version"
            hint = "" if suggested is None else f", as {suggested!r} does"
            message = f"The base path of model {config.name} {must}{hint}. Received: {path!r}"
            raise ValueError(message)
        if suggested is not None:
            warning = "The base path of model %s holds no version; %r does. Received: %r"
            _log.warning(warning, config.name, suggested, path)


def _is_version(path):
    is_file = os.path.isfile(os.path.join(path, "saved_model.pb"))
    return is_file and pathlib.Path(path).name.isdecimal()


def _suggest_base_path(path):
    """Return a directory of exported versions for a path that holds none, or None.

    A recipe writes them into `export/` of its run.
    """
    if _is_version(path):
        return str(pathlib.Path(path).parent)
    with contextlib.suppress(OSError):
        children = [child for child in sorted(pathlib.Path(path).iterdir()) if child.is_dir()]
        if not any(child.name.isdecimal() for child in children):
            exports = (str(child) for child in children if _holds_versions(child))
            return next(exports, None)
    return None


def _holds_versions(directory):
    return any(_is_version(file.parent) for file in directory.glob("*/saved_model.pb"))


def read_metrics_path(path=None):
    """Return the URL path of the metrics in a `MonitoringConfig` file, or None for no metrics."""
    config = path and read_config(path, MonitoringConfig).prometheus_config
    if not config or not config.enable:
        return None
    page = config.path or "/monitoring/prometheus/metrics"
    if not page.startswith("/"):
        raise ValueError(f"{path}: path must start with a slash. Received: {page!r}")
    return page


def read_credentials(path=None):
    """Return the server's `grpc.ServerCredentials`, or None without a file.

    The text file of an `SSLConfig` proto holds the keys and certificates themselves, as PEM.
    """
    if not path:
        return None
    config = read_config(path, SSLConfig)
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise ValueError(f"{path}: {name} must hold a key or certificate in PEM form.")
    if config.client_verify and not config.custom_ca:
        raise ValueError(f"{path}: client_verify needs the clients' authority in custom_ca.")
    _check_pair(path, config)
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _check_pair(path, config):
    """Refuse keys with which gRPC would fail, without a reason, when the port is opened."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expected = "server_key and server_cert must be a key without a password and its certificate"
    with tempfile.TemporaryDirectory() as folder:  # readable by this user only
        paths = [pathlib.Path(folder, name) for name in ("server_cert", "server_key")]
        for file in paths:
            file.write_text(getattr(config, file.name), encoding="utf-8")
        try:
            # With an empty password OpenSSL refuses a key that needs one, and does not prompt.
            context.load_cert_chain(*paths, password="")
            expected = "custom_ca must be a certificate in PEM form"
            if config.custom_ca:
                context.load_verify_locations(cadata=config.custom_ca)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ValueError(f"{path}: {expected}. Received: {reason}.") from error


@dataclasses.dataclass(frozen=True)
class BatchingOptions:
    """TensorFlow Serving's batching parameters; the defaults are its defaults."""

    max_batch_size: int = 1000  # most rows of one request
    batch_timeout_micros: int = 0  # time that a batch which is not full waits for more
    max_enqueued_batches: int = 10  # batches of one signature that may wait
    num_batch_threads: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    allowed_batch_sizes: tuple = ()  # increasing; a batch is filled up to the next of them
    pad_variable_length_inputs: bool = False  # pad shorter tensors of a batch
    enable_large_batch_splitting: bool = False  # spread a request over batches
    max_execution_batch_size: int | None = None  # most rows of a batch, used with splitting
    thread_pool_name: str = "batch_threads"

    def __post_init__(self):
        if self.max_execution_batch_size is None or not self.enable_large_batch_splitting:
            object.__setattr__(self, "max_execution_batch_size", self.max_batch_size)
        positive = "max_batch_size max_execution_batch_size max_enqueued_batches num_batch_threads"
        for name in positive.split():
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive; was {getattr(self, name)}")
        most, sizes = self.max_execution_batch_size, self.allowed_batch_sizes
        if (micros := self.batch_timeout_micros) < 0:
            raise ValueError(f"batch_timeout_micros must be non-negative; was {micros}")
        if most > self.max_batch_size:
            rule = "must be greater than or equal to max_execution_batch_size"
            raise ValueError(f"max_batch_size {rule}; was {self.max_batch_size}; expected {most}")
        if any(size <= previous for previous, size in zip((0, *sizes), sizes)):
            rule = "must be positive and monotonically increasing"
            raise ValueError(f"allowed_batch_sizes entries {rule}; were {list(sizes)}")
        if sizes and sizes[-1] != most:
            raise ValueError(
                "Last entry in allowed_batch_sizes must match max_batch_size (with splitting, "
                f"max_execution_batch_size); last entry was {sizes[-1]}; expected {most}"
            )


def read_batching_options(path=None):
    """Return the options of a `BatchingParameters` text proto; the defaults without a file."""
    if not path:
        return BatchingOptions(thread_pool_name="model_server_batch_threads")
    values = {}
    for field, value in read_config(path, BatchingParameters).ListFields():
        value = value.value if field.message_type else value
        values[field.name] = tuple(value) if field.name == "allowed_batch_sizes" else value
    try:
        return BatchingOptions(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_own_batching_options(version_path, common):
    """Return the options in a version's `batching_params.pbtxt`, or None for one without it.

    All versions share the threads of the server's own options, `common`.
    """
    path = os.path.join(version_path, "batching_params.pbtxt")
    if not os.path.exists(path):
        return None
    threads = {name: getattr(common, name) for name in ("num_batch_threads", "thread_pool_name")}
    return dataclasses.replace(read_batching_options(path), **threads)
