"""The programs of this folder other than tests are for another Python, with torch."""

import pathlib

_FILES = pathlib.Path(__file__).parent.glob("*.py")
collect_ignore = [file.name for file in _FILES if not file.name.startswith("test_")]
