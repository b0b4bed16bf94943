"""Command line: the flags of `tensorflow_model_server` that this server supports."""

import argparse
import contextlib
import os
import sys
import threading

from .limits import Limits

# Flags of the real server: the error says that this server lacks them.
UNSUPPORTED = tuple(
    """enable_profiler enable_serialization_as_tensor_content enable_signature_method_name_check
    flush_filesystem_caches grpc_channel_arguments grpc_socket_path mixed_precision
    model_config_file_poll_wait_seconds num_load_threads num_tflite_interpreters_per_pool
    num_tflite_pools num_unload_threads per_process_gpu_memory_fraction platform_config_file
    prefer_tflite_model remove_unused_fields_from_bundle_metagraph saved_model_tags
    skip_initialize_tpu tensorflow_session_config_file tensorflow_session_parallelism
    thread_pool_factory_config_file use_alts_credentials version xla_cpu_compilation_enabled
    xla_gpu_compilation_enabled""".split()
)


def _bool(text):
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"true or false is expected. Received: {text}")
    return text.lower() in ("true", "1")


def _integer(expected, allowed):
    def read(text):
        if text.isdecimal() and int(text) in allowed:
            return int(text)
        raise argparse.ArgumentTypeError(f"{expected} is expected. Received: {text}")

    return read


def _seconds(text):
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= threading.TIMEOUT_MAX:
            return float(text)
    raise argparse.ArgumentTypeError(f"a number of seconds is expected. Received: {text}")


_port = _integer("a port from 0 to 65535", range(65536))
_positive = _integer("a positive integer", range(1, sys.maxsize))
_count = _integer("an integer of at least 0", range(2**31))
_micros = _integer("an integer of at least 0", range(2**63))
_bytes = _integer("a positive integer below 2**31", range(1, 2**31))  # gRPC's largest message
_THREADS = 4 * (os.cpu_count() or 1)
# Name, type, default, help.
_FLAGS = [
    ("host", str, "127.0.0.1", "address to listen on"),
    ("port", _port, 8500, "gRPC port, 0 for none"),
    ("rest_api_port", _port, 0, "REST port, 0 for none"),
    ("rest_api_num_threads", _positive, _THREADS, "REST requests that run at once"),
    ("rest_api_timeout_in_ms", _count, 30000, "time limit of a REST request, 0 for none"),
    ("rest_api_enable_cors_support", _bool, False, "let web pages of other sites read the answers"),
    ("enable_batching", _bool, False, "run requests of one signature together"),
    ("batching_parameters_file", str, None, "text file of a BatchingParameters proto"),
    ("enable_per_model_batching_parameters", _bool, False, "batch by versions' parameters"),
    ("monitoring_config_file", str, None, "text file of a MonitoringConfig proto, for Prometheus"),
    ("ssl_config_file", str, None, "text file of an SSLConfig proto: TLS for gRPC"),
    ("enable_grpc_healthcheck_service", _bool, False, "answer grpc.health.v1.Health too"),
    ("demo_page", _bool, True, "show a page at / of the REST port with a form for each task"),
    ("grpc_max_threads", _positive, _THREADS, "gRPC calls that run at once"),
    ("model_name", str, "default", "name of the model"),
    ("model_base_path", str, None, "directory that holds the model's version directories"),
    ("model_config_file", str, None, "text file of a ModelServerConfig proto, for several models"),
    ("allow_version_labels_for_unavailable_models", _bool, False, "labels may precede versions"),
    ("file_system_poll_wait_seconds", _seconds, 1.0, "seconds between polls, 0 for a single poll"),
    ("max_num_load_retries", _count, 5, "attempts to load a version after the first one failed"),
    ("load_retry_interval_micros", _micros, 60_000_000, "microseconds between two attempts"),
    ("enable_model_warmup", _bool, True, "replay an export's requests before it is available"),
    ("num_request_iterations_for_warmup", _count, 0, "runs of each warm-up request, 0 for one"),
    ("tensorflow_intra_op_parallelism", _count, 0, "threads of one operation, 0 for all cores"),
    ("tensorflow_inter_op_parallelism", _count, 0, "operations at once, 0 for all cores"),
    ("max_request_bytes", _bytes, Limits.max_request_bytes, "bytes of a request"),
    ("max_json_depth", _positive, Limits.max_json_depth, "lists and objects inside each other"),
    ("max_string_bytes", _positive, Limits.max_string_bytes, "bytes of one string of a request"),
    ("max_rows", _positive, Limits.max_rows, "rows of one request"),
    ("max_ids", _positive, Limits.max_ids, "integers or strings of one tensor, rows times length"),
    (
        "max_waiting_requests",
        _positive,
        Limits.max_waiting_requests,
        "that wait for a thread, by API",
    ),
]


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """End the process with one sentence, which the usage of all flags would hide."""
        self.exit(2, f"keras-attn serve: {message}. --help lists the flags\n")


def parse_flags(arguments=None):
    """Return the flags of a command line, by default the process's, as a namespace.

    A usage error ends the process with code 2.
    """
    parser = _Parser(
        prog="keras-attn serve",
        description="A server for development and small jobs that speaks TensorFlow Serving's REST "
        "and gRPC API. Its flags are those of tensorflow_model_server, except --host, --demo_page "
        "and the limits (--max_*).",
        epilog=f"Flags of the real server that are not supported here: {', '.join(UNSUPPORTED)}",
        allow_abbrev=False,
    )
    for name, read, default, text in _FLAGS:
        switch = {"nargs": "?", "const": True} if read is _bool else {}
        shown = text if default is None else f"{text} (default: %(default)s)"
        parser.add_argument(f"--{name}", type=read, default=default, help=shown, **switch)
    flags, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        name = argument.lstrip("-").partition("=")[0]
        if name in UNSUPPORTED:
            real = "tensorflow_model_server that this server does not support"
            parser.error(f"--{name} is a flag of {real}")
        parser.error(f"unknown argument: {argument}")
    if not flags.model_config_file and not flags.model_base_path:
        parser.error("--model_base_path or --model_config_file is required")
    if flags.batching_parameters_file and not flags.enable_batching:
        parser.error("--batching_parameters_file is set without setting --enable_batching to true")
    if not flags.rest_api_port and not flags.port:
        parser.error("--port and --rest_api_port are both 0, so nothing would be served")
    if flags.rest_api_port == flags.port:
        parser.error(f"--port and --rest_api_port must differ. Received: {flags.port} for both")
    return flags
