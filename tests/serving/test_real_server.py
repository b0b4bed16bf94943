"""Where `tensorflow_model_server` is on the PATH, the suite starts it and asks it the same."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def test_it_is_started_with_its_flags_and_asked(tmp_path):
    """With a program of that name which notes how it was called and does what our server does."""
    program = tmp_path / "tensorflow_model_server"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/flags\nexec {sys.executable} -m serving.server "$@"\n'
    )
    program.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    variables.pop("KERAS_ATTN_SERVING_ADDRESS", None)
    # One test file suffices, since all get their server from the same fixture.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        + [HERE / "test_status_and_metadata.py", "-k", program.name],
        cwd=HERE.parents[1],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "failed" not in done.stdout
    flags = (tmp_path / "flags").read_text()
    assert flags.startswith("--model_name=toy --model_base_path=/")
    assert " --rest_api_port=" in flags and " --port=" in flags
