"""Serves exported models: `python -m serving.server --help`."""

import dataclasses
import functools
import gc
import logging
import os
import signal
import sys
import threading

from .addresses import check_address, joined
from .errors import ServingError
from .flags import parse_flags

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 30
_POLL_SECONDS = 1.0


def main(arguments=None):
    """Loads the models, serves them until SIGTERM or SIGINT, and lets running requests finish.

    Args:
        arguments: list of strings; those of the process if None.

    Returns:
        The exit code: 0 after a signal, 1 if serving failed, 2 for a usage error.
    """
    flags = parse_flags(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        return _serve(flags, stopping)
    except (ImportError, ValueError) as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 2
    except (OSError, RuntimeError, ServingError) as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1


def _serve(flags, stopping):
    try:
        # Before the imports that take seconds: a wrong path is told at once.
        from .model_configs import read_model_configs

        configs = read_model_configs(
            flags.model_config_file, flags.model_name, flags.model_base_path
        )
        from .batching_options import read_batching_options
        from .metrics import read_metrics_path
        from .tls import read_credentials

        _check_addresses(flags)
        batching = None
        if flags.enable_batching:
            batching = read_batching_options(flags.batching_parameters_file)
        metrics_path = read_metrics_path(flags.monitoring_config_file)
        credentials = read_credentials(flags.ssl_config_file)
        from .batch_scheduler import BatchScheduler
        from .demo_page import DemoPage
        from .grpc_service import make_grpc_server
        from .health import add_health_service
        from .limits import Limits
        from .manager import ModelManager
        from .rest import RestApi
        from .rest_server import RestServer
    except ImportError as error:
        raise ImportError(
            f"{error}. The server needs: pip install 'keras_attn[serving]'"
        ) from error

    manager = ModelManager(
        functools.partial(_load, flags, batching and (BatchScheduler(batching), batching)),
        max_retries=flags.max_num_load_retries,
        retry_seconds=max(flags.load_retry_interval_micros, 0) / 1e6,
        unavailable_labels=flags.allow_version_labels_for_unavailable_models,
        stopping=stopping,
    )
    # What the imports made stays: to look for garbage among it would hold up requests for a second.
    gc.freeze()
    manager.configure(configs)
    _await_models(manager, configs, flags, stopping)
    if stopping.is_set():
        _log.info("Stopped while the models were loading")
        return 0
    if flags.file_system_poll_wait_seconds > 0:
        manager.poll_every(flags.file_system_poll_wait_seconds)

    limits = Limits(
        **{field.name: getattr(flags, field.name) for field in dataclasses.fields(Limits)}
    )
    grpc_server = make_grpc_server(manager, flags.grpc_max_threads, limits)
    health = None
    if flags.enable_grpc_healthcheck_service:
        health = add_health_service(grpc_server)
    if flags.port:
        address = joined(flags.host, flags.port)
        if credentials:
            grpc_server.add_secure_port(address, credentials)
        else:
            grpc_server.add_insecure_port(address)
    servers = [grpc_server] if flags.port else []
    if flags.rest_api_port:
        application = RestApi(
            manager,
            flags.rest_api_num_threads,
            limits,
            flags.rest_api_timeout_in_ms,
            flags.rest_api_enable_cors_support,
            metrics_path,
            DemoPage(manager) if flags.demo_page else None,
        )
        head_seconds = max(flags.rest_api_timeout_in_ms, 0) / 1000
        servers.append(RestServer(application, flags.host, flags.rest_api_port, head_seconds))
    for server in servers:
        server.start()
    _log.info(
        "Serving on %s: gRPC port %d, REST port %d", flags.host, flags.port, flags.rest_api_port
    )

    stopping.wait()
    _log.info("Stopping; running requests finish first")
    manager.stop()
    if health:
        health.stop()
    for done in [server.stop(_GRACE_SECONDS) for server in servers]:
        done.wait()
    return 0


def _check_addresses(flags):
    for api, port in (("gRPC", flags.port), ("REST", flags.rest_api_port)):
        if port:
            check_address(api, flags.host, port)


def _load(flags, batching, name, version, path):
    from .batching_options import read_own_batching_options
    from .batching_servable import BatchingServable
    from .servable import Servable
    from .warmup import warm_up

    scheduler, options = batching or (None, None)
    if options and flags.enable_per_model_batching_parameters:
        options = read_own_batching_options(path, options)
    servable = Servable(name, version, path)
    if options:
        servable = BatchingServable(servable, scheduler, options)
    if flags.enable_model_warmup:
        try:
            warm_up(servable, path, max(flags.num_request_iterations_for_warmup, 1))
        except Exception:  # Raised again; only the model must not stay loaded.
            servable.close()
            raise
    return servable


def _await_models(manager, configs, flags, stopping):
    """Returns when every model can answer: like the real server, no port opens before.

    Returns earlier when the server is to stop.
    """
    while not stopping.is_set():
        manager.poll()
        if stopping.is_set():
            return
        missing = [
            config.name
            for config in configs
            if not any(record.loaded for record in manager.versions(config.name))
        ]
        if not missing:
            return
        for name in missing:
            records = manager.versions(name)
            if records and all(record.ended for record in records):
                raise RuntimeError(f"Model {name} did not become available: {records[0].message}")
        stopping.wait(flags.file_system_poll_wait_seconds or _POLL_SECONDS)


if __name__ == "__main__":
    _code = main()
    logging.shutdown()
    # All requests are answered. To take TensorFlow's modules apart would only cost seconds.
    os._exit(_code)
