"""Server of exported models: `keras-attn serve --help`."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import logging
import os
import signal
import socket
import sys
import threading

from keras_attn.startup import import_library

from .errors import ServingError
from .flags import parse_flags
from .limits import Limits

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 30
_POLL_SECONDS = 1.0
_MOST_FILES = 65536


def main(arguments=None):
    """Load the models and serve them until SIGTERM or SIGINT; running requests finish first.

    It returns the exit code: 0 after a signal, 1 if serving failed, 2 for a usage error.
    """
    flags = parse_flags(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    raise_file_limit()
    try:
        serve(flags, stopping)
    except (ImportError, OSError, RuntimeError, ServingError, ValueError) as error:
        print(f"keras-attn serve: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ImportError, ValueError)) else 1
    return 0


def raise_file_limit():
    """Allow as many open connections as the system lets this process have, up to 65,536.

    The usual limit of 1,024 is spent by as many clients that send nothing.
    """
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def serve(flags, stopping):
    """Load the models and serve them until the `threading.Event` `stopping` is set."""
    try:
        # Before the imports that take seconds, so that a wrong path or port is reported at once.
        from . import config_files

        configs = config_files.read_model_configs(
            flags.model_config_file, flags.model_name, flags.model_base_path
        )
        for api, flag in (("gRPC", "port"), ("REST", "rest_api_port")):
            if port := getattr(flags, flag):
                check_address(f"{api} (--{flag})", flags.host, port)
        metrics_path = config_files.read_metrics_path(flags.monitoring_config_file)
        credentials, options = config_files.read_credentials(flags.ssl_config_file), None
        if flags.enable_batching:
            options = config_files.read_batching_options(flags.batching_parameters_file)
        import_library("tensorflow")
        from . import grpc_api, rest_api, rest_server  # noqa: F401
        from .batch_scheduler import BatchScheduler
        from .manager import ModelManager
    except ImportError as error:
        remedy = "The server needs: pip install 'keras_attn[serving]'"
        raise ImportError(f"{error}. {remedy}") from error
    scheduler = BatchScheduler(options) if options else None
    manager = ModelManager(
        functools.partial(load, flags, scheduler),
        max_retries=flags.max_num_load_retries,
        retry_seconds=flags.load_retry_interval_micros / 1e6,
        unavailable_labels=flags.allow_version_labels_for_unavailable_models,
        stopping=stopping,
    )
    # The imported modules stay: a collection that searches them delays requests by a second.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # Requests make many objects and few cycles.
    manager.configure(configs)
    _await_models(manager, configs, flags, stopping)
    if stopping.is_set():
        _log.info("Stopped while the models were loading")
        return
    if flags.file_system_poll_wait_seconds > 0:
        manager.poll_every(flags.file_system_poll_wait_seconds)
    # A thread of its own: uvicorn handles signals itself where it runs on the main thread.
    with concurrent.futures.ThreadPoolExecutor(1, "event-loop") as event_loop:
        apis = _serve_apis(flags, manager, metrics_path, credentials, stopping)
        event_loop.submit(asyncio.run, apis).result()


def load(flags, scheduler, name, version, path):
    """Return a loaded and warmed version of a model, a `Servable` or a `BatchingServable`."""
    from .batching_servable import BatchingServable
    from .config_files import read_own_batching_options
    from .servable import Servable, warm_up

    options = scheduler and scheduler.options
    if options and flags.enable_per_model_batching_parameters:
        options = read_own_batching_options(path, options)
    servable = Servable(
        name,
        version,
        path,
        intra_op_parallelism_threads=flags.tensorflow_intra_op_parallelism,
        inter_op_parallelism_threads=flags.tensorflow_inter_op_parallelism,
    )
    if options:
        servable = BatchingServable(servable, scheduler, options, limits(flags))
    if flags.enable_model_warmup:
        try:
            warm_up(servable, path, max(flags.num_request_iterations_for_warmup, 1))
        except Exception:  # Raised again; only the model must not stay loaded.
            servable.close()
            raise
    return servable


def limits(flags):
    """Return the `Limits` that the flags set."""
    return Limits(
        **{field.name: getattr(flags, field.name) for field in dataclasses.fields(Limits)}
    )


def _await_models(manager, configs, flags, stopping):
    """Return when every model can answer, before which no port opens, or when to stop."""
    while not stopping.is_set():
        manager.poll()
        versions = {config.name: manager.versions(config.name) for config in configs}
        missing = {
            n: records for n, records in versions.items() if not any(r.loaded for r in records)
        }
        if not missing or stopping.is_set():
            return
        for name, records in missing.items():
            if records and all(record.ended for record in records):
                raise RuntimeError(f"Model {name} did not become available: {records[0].message}")
        stopping.wait(flags.file_system_poll_wait_seconds or _POLL_SECONDS)


async def _serve_apis(flags, manager, metrics_path, credentials, stopping):
    """Serve both APIs until `stopping` is set, and until the running requests are done."""
    from .demo_page import render
    from .grpc_api import GrpcApi, HealthService, make_grpc_server
    from .rest_api import RestApi, make_rest_application
    from .rest_server import RestServer

    health = HealthService() if flags.enable_grpc_healthcheck_service else None
    grpc_server = rest_server = None
    if flags.port:
        api = GrpcApi(manager, flags.grpc_max_threads, limits(flags))
        host = f"[{flags.host}]" if _family(flags.host) == socket.AF_INET6 else flags.host
        address = f"{host}:{flags.port}"
        grpc_server = make_grpc_server(api, flags.max_request_bytes, address, credentials, health)
        await grpc_server.start()
    if flags.rest_api_port:
        threads, milliseconds = flags.rest_api_num_threads, flags.rest_api_timeout_in_ms
        api = RestApi(manager, threads, limits(flags), milliseconds)
        demo_page = functools.partial(render, manager) if flags.demo_page else None
        cors = flags.rest_api_enable_cors_support
        application = make_rest_application(api, cors, metrics_path, demo_page)
        listener = open_socket("REST", flags.host, flags.rest_api_port)
        rest_server = RestServer(application, listener, head_seconds=milliseconds / 1000)
        rest_end = asyncio.create_task(rest_server.serve())
    ports = f"gRPC port {flags.port}, REST port {flags.rest_api_port}"
    _log.info("Serving on %s: %s", flags.host, ports)
    await asyncio.to_thread(stopping.wait)
    _log.info("Stopping; running requests finish first")
    if health:
        health.stop()
    if rest_server:
        rest_server.stop(_GRACE_SECONDS)
    if grpc_server:
        await grpc_server.stop(_GRACE_SECONDS)
    if rest_server:
        await rest_end


def check_address(api, host, port):
    """Bind a port and release it, so that a wrong address is reported before models load.

    Nothing listens meanwhile, so no client takes the server for one that answers. An `OSError` says
    that the host is unknown or not of this machine, or the port is taken or not allowed.
    """
    try:
        with socket.socket(_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise OSError(f"{api} cannot listen on {host}:{port}: {error.strerror}") from error


def open_socket(api, host, port):
    """Return a listening socket; the errors are those of `check_address`."""
    check_address(api, host, port)
    return socket.create_server((host, port), family=_family(host), backlog=2048)


def _family(host):
    """Return IPv6 for an address of that kind, IPv4 for any other and for names."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


if __name__ == "__main__":
    _code = main()
    logging.shutdown()
    # All requests are answered; taking TensorFlow's modules apart would only cost seconds.
    os._exit(_code)
