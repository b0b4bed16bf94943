"""Results that the workers of one run of pytest share."""

import json
import os

from filelock import FileLock


def shared(tmp_path_factory, name, make):
    """Return what `make` returns, as JSON holds it; the first worker that asks makes it.

    Workers steal tests of one module from each other, and a fixture of a module is one for each.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    path = folder / f"{name}.json"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_text(json.dumps(make()))
    return json.loads(path.read_text())
