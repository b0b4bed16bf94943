"""A reader sees the earlier file or the complete new one, whatever happens to the writer."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_attn import files as atomic_files
from keras_attn.files import atomic_directory, atomic_file, partial_path


def test_a_failed_write_keeps_the_earlier_content_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "new folder" / "model.keras"
    with atomic_file(path) as temporary:
        Path(temporary).write_text("complete")
        assert temporary.endswith("model.partial.keras") and not path.exists()
    assert path.read_text() == "complete"
    Path(temporary).write_text("left by a process that was killed")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as temporary:
        Path(temporary).write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(path.parent) == ["model.keras"]
    assert path.read_text() == "complete"


def test_a_failed_directory_is_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_directory(tmp_path / "1") as temporary:
        Path(temporary, "file").write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    with atomic_directory(tmp_path / "1") as temporary:
        Path(temporary, "file").write_text("complete")
        assert not (tmp_path / "1").exists()
    assert (tmp_path / "1" / "file").read_text() == "complete"


WRITE_FOREVER = """
import runpy, sys
import numpy as np

atomic_file = runpy.run_path(sys.argv[1])["atomic_file"]
for number in range(10**6):
    print(number, flush=True)
    with atomic_file(sys.argv[2]) as temporary:
        np.savez(temporary, *[np.full(1_000_000, number)] * 2)
"""


def test_a_process_killed_while_writing_leaves_a_complete_file(tmp_path):
    path = str(tmp_path / "arrays.npz")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, atomic_files.__file__, path],
        stdout=subprocess.PIPE,
        text=True,
    )
    while int(process.stdout.readline()) < 2:
        pass
    time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    begun = max([2, *map(int, process.stdout)])
    process.wait()
    with np.load(path) as arrays:
        number = arrays["arr_0"][0]
        assert number in (begun - 1, begun)
        assert all((arrays[name] == number).all() for name in arrays.files)
    assert set(os.listdir(tmp_path)) <= {"arrays.npz", os.path.basename(partial_path(path))}
