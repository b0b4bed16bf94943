"""The command line: the flags of `tensorflow_model_server` that this server supports."""

import argparse
import os

# Real flags of the real server: naming one is not a typing mistake, and the error says so.
UNSUPPORTED = (
    "enable_profiler",
    "enable_serialization_as_tensor_content",
    "enable_signature_method_name_check",
    "flush_filesystem_caches",
    "grpc_channel_arguments",
    "grpc_socket_path",
    "mixed_precision",
    "model_config_file_poll_wait_seconds",
    "num_load_threads",
    "num_tflite_interpreters_per_pool",
    "num_tflite_pools",
    "num_unload_threads",
    "per_process_gpu_memory_fraction",
    "platform_config_file",
    "prefer_tflite_model",
    "remove_unused_fields_from_bundle_metagraph",
    "saved_model_tags",
    "skip_initialize_tpu",
    "tensorflow_inter_op_parallelism",
    "tensorflow_intra_op_parallelism",
    "tensorflow_session_config_file",
    "tensorflow_session_parallelism",
    "thread_pool_factory_config_file",
    "use_alts_credentials",
    "version",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
)
_LIMITS = (
    ("max_request_bytes", 256 << 20, "bytes of a request's body or message"),
    ("max_json_depth", 256, "lists and objects inside each other in a request"),
    ("max_string_bytes", 16 << 20, "bytes of one string of a request"),
    ("max_rows", 4096, "rows of one request"),
    ("max_ids", 1 << 20, "integers or strings of one tensor of a request, rows times length"),
    ("max_waiting_requests", 1000, "requests of one API that wait for a thread"),
)
_THREADS = 4 * (os.cpu_count() or 1)


def parse_flags(arguments=None):
    """Reads the command line.

    Args:
        arguments: list of strings; those of the process if None.

    Returns:
        Namespace with one attribute per flag. A usage error ends the process with code 2.
    """
    parser = _parser()
    flags, rest = parser.parse_known_args(arguments)
    for argument in rest:
        name = argument.lstrip("-").partition("=")[0]
        if name in UNSUPPORTED:
            parser.error(
                f"--{name} is a flag of tensorflow_model_server that this server does not support"
            )
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


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One sentence, which the usage of all flags would hide."""
        self.exit(2, f"serving.server: {message}. --help lists the flags\n")


def _parser():
    parser = _Parser(
        prog="python -m serving.server",
        description=(
            "A server for development and small jobs that speaks TensorFlow Serving's REST and "
            "gRPC API. Its flags are those of tensorflow_model_server, except --host, --demo_page "
            "and the limits."
        ),
        epilog="Flags of tensorflow_model_server that are not supported here: "
        + ", ".join(UNSUPPORTED),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=_port, default=8500, help="gRPC port, 0 for none (default: %(default)s)")
    add("--rest_api_port", type=_port, default=0, help="REST port, 0 for none (default: 0)")
    add("--rest_api_num_threads", type=_positive, default=_THREADS, help="requests run at once")
    add(
        "--rest_api_timeout_in_ms",
        type=int,
        default=30000,
        help="time limit of a REST request, 0 for none (default: %(default)s)",
    )
    add(
        "--rest_api_enable_cors_support",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="let web pages of other sites read the answers",
    )
    add(
        "--enable_batching",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="run requests of one signature together",
    )
    add(
        "--batching_parameters_file",
        help="text file of a BatchingParameters proto: sizes, waiting time, padding, threads",
    )
    add(
        "--enable_per_model_batching_parameters",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="batch only versions that hold a batching_params.pbtxt, each by its own parameters",
    )
    add(
        "--monitoring_config_file",
        help="text file of a MonitoringConfig proto: metrics for Prometheus on the REST port",
    )
    add(
        "--ssl_config_file",
        help="text file of an SSLConfig proto: the keys and certificates of TLS for gRPC",
    )
    add(
        "--enable_grpc_healthcheck_service",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="answer grpc.health.v1.Health too",
    )
    add(
        "--demo_page",
        type=_bool,
        nargs="?",
        const=True,
        default=True,
        help="show a page at / of the REST port that translates what is typed (default: true)",
    )
    add("--grpc_max_threads", type=_positive, default=_THREADS, help="gRPC calls run at once")
    add("--model_name", default="default", help="the model's name (default: %(default)s)")
    add("--model_base_path", help="directory that holds the model's version directories")
    add(
        "--model_config_file",
        help="text file of a ModelServerConfig proto: several models, version policies, labels",
    )
    add(
        "--allow_version_labels_for_unavailable_models",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="let a new label point to a version that is not loaded yet, as when the server starts",
    )
    add(
        "--file_system_poll_wait_seconds",
        type=float,
        default=1.0,
        help="seconds between two looks for new versions, 0 for one look (default: 1)",
    )
    add(
        "--max_num_load_retries",
        type=int,
        default=5,
        help="how often a version that failed to load is tried again (default: %(default)s)",
    )
    add(
        "--load_retry_interval_micros",
        type=int,
        default=60_000_000,
        help="microseconds between two tries (default: one minute)",
    )
    add(
        "--enable_model_warmup",
        type=_bool,
        nargs="?",
        const=True,
        default=True,
        help="replay assets.extra/tf_serving_warmup_requests before a version is available",
    )
    add(
        "--num_request_iterations_for_warmup",
        type=int,
        default=0,
        help="how many times each warm-up request runs (default: once)",
    )
    for name, default, text in _LIMITS:
        add(
            f"--{name}",
            type=_positive,
            default=default,
            help=f"{text} (default: %(default)s; of this server alone)",
        )
    return parser


def _bool(text):
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"true or false is expected. Received: {text}")
    return text.lower() in ("true", "1")


def _port(text):
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port from 0 to 65535 is expected. Received: {text}")
    return int(text)


def _positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a positive integer is expected. Received: {text}")
    return int(text)
