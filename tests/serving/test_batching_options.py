"""Batching parameters file (session_bundle_config.proto of TensorFlow Serving)."""

import pytest

from serving.config_files import BatchingOptions, read_batching_options


def test_a_parameters_file_sets_the_options(tmp_path):
    path = tmp_path / "batching.config"
    path.write_text(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 5 } "
        "max_enqueued_batches { value: 3 } num_batch_threads { value: 2 } "
        'thread_pool_name { value: "name" } allowed_batch_sizes: 2 allowed_batch_sizes: 4 '
        "pad_variable_length_inputs: true enable_large_batch_splitting { value: true } "
        "max_execution_batch_size { value: 4 }"
    )
    assert read_batching_options(path) == BatchingOptions(8, 5, 3, 2, (2, 4), True, True, 4, "name")
    path.write_text("")
    options = read_batching_options(path)
    assert (options.max_batch_size, options.batch_timeout_micros) == (1000, 0)
    assert (options.max_enqueued_batches, options.pad_variable_length_inputs) == (10, False)


@pytest.mark.parametrize(
    "text, message",
    [
        ("max_batch_size: 8", "is not a BatchingParameters text proto"),
        ("max_batch_size {}", "max_batch_size must be positive; was 0"),
        ("num_batch_threads { value: -1 }", "num_batch_threads must be positive; was -1"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must be non-negative"),
        ("max_enqueued_batches {}", "max_enqueued_batches must be positive"),
        ("allowed_batch_sizes: 5", "last entry was 5; expected 1000"),
        ("allowed_batch_sizes: [1000, 1000]", "monotonically increasing"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path, text, message):
    path = tmp_path / "batching.config"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as info:
        read_batching_options(path)
    assert str(path) in str(info.value)
