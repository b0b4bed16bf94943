"""Options of batching: a `BatchingParameters` file, checked, with the real server's defaults."""

import dataclasses
import os

from .client.messages_pb2 import BatchingParameters
from .config_files import read_config


@dataclasses.dataclass(frozen=True)
class BatchingOptions:
    """TensorFlow Serving's batching parameters; the defaults are its defaults.

    Raises:
        ValueError: if the values contradict each other.
    """

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
        micros, most = self.batch_timeout_micros, self.max_execution_batch_size
        if micros < 0:
            raise ValueError(f"batch_timeout_micros must be non-negative; was {micros}")
        if most > self.max_batch_size:
            values = f"was {self.max_batch_size}; expected {most}"
            name = "max_execution_batch_size"
            raise ValueError(f"max_batch_size must be greater than or equal to {name}; {values}")
        sizes = self.allowed_batch_sizes
        if any(size <= previous for previous, size in zip((0, *sizes), sizes)):
            rule = "must be positive and monotonically increasing"
            raise ValueError(f"allowed_batch_sizes entries {rule}; were {list(sizes)}")
        if sizes and sizes[-1] != most:
            raise ValueError(
                "Last entry in allowed_batch_sizes must match max_batch_size (with splitting, "
                f"max_execution_batch_size); last entry was {sizes[-1]}; expected {most}"
            )


def read_batching_options(path=None):
    """Return the options of a `BatchingParameters` text proto; the defaults without a file.

    Raises:
        ValueError: if the file cannot be read or parsed, or its values contradict each other.
    """
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

    Args:
        version_path: string. The version's directory.
        common: `BatchingOptions` of the server, whose threads all versions share.

    Raises:
        ValueError: as above.
    """
    path = os.path.join(version_path, "batching_params.pbtxt")
    if not os.path.exists(path):
        return None
    threads = {name: getattr(common, name) for name in ("num_batch_threads", "thread_pool_name")}
    return dataclasses.replace(read_batching_options(path), **threads)
