"""Start and use `tensorflow_model_server` where it is on the PATH."""

import os
import sys

from servers import OURS, REAL, programs, running

PROGRAM = """#!{python} -S
import http.server, pathlib, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b"{{}}")

pathlib.Path({flags!r}).write_text(" ".join(sys.argv[1:]))
ports = [int(flag.split("=")[1]) for flag in sys.argv if flag.startswith("--rest_api_port=")]
http.server.HTTPServer(("127.0.0.1", *ports), Handler).serve_forever()
"""


def test_the_real_server_is_started_with_its_own_flags_and_asked(tmp_path, monkeypatch):
    """By a program of that name which writes its flags and answers over HTTP."""
    program, flags = tmp_path / REAL, tmp_path / "flags"
    program.write_text(PROGRAM.format(python=sys.executable, flags=str(flags)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("servers.ADDRESS", None)
    assert programs() == [OURS, REAL]
    with running(tmp_path / "log", "--model_name=toy", program=REAL) as server:
        assert not server.is_ours
        assert server.states() == {}
    written = flags.read_text()
    assert written.startswith("--model_name=toy --rest_api_port=") and " --port=" in written
