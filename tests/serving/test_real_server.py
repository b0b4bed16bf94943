"""Start and use `tensorflow_model_server` where it is on the PATH."""

import os
import pathlib
import sys

import pytest
from servers import OURS, REAL, programs, running

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_the_real_server_is_started_with_its_own_flags_only(tmp_path, toys, monkeypatch):
    """By a program of that name which notes its flags and then runs our server."""
    program = tmp_path / REAL
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/flags\nexec {sys.executable} -m {OURS} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("servers.ADDRESS", None)
    assert programs() == [OURS, REAL]
    (tmp_path / "base").mkdir()
    toys.export_small(tmp_path / "base", 7)
    flags = ["--model_name=toy", f"--model_base_path={tmp_path / 'base'}"]
    with running(tmp_path / "log", *flags, program=REAL) as server:
        assert not server.is_ours
        assert server.states() == {7: "AVAILABLE"}
    written = (tmp_path / "flags").read_text()
    assert written.startswith(" ".join(flags))
    assert " --rest_api_port=" in written and " --port=" in written
