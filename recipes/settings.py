"""What makes a run what it is, kept with it so that no other run goes on in its place."""

import json
import os

from recipes import files


def check_out(out):
    """Refuses a run's directory that cannot be one.

    Raises:
        ValueError: if `out`, or what it is to lie in, is a file.
    """
    path = os.path.abspath(out)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise ValueError(f"--out must be a directory, and {path} is none. Received: --out {out}.")


def check_settings(path, settings, out):
    """Refuses to go on with a run that was started with other settings.

    Args:
        path: str. Where `save_settings` keeps those of the run in the directory `out`.
        settings: dict of what must not change, as JSON holds it.
        out: str.

    Raises:
        ValueError: if the file is damaged, or a setting differs from the one in it.
    """
    if not os.path.exists(path):
        return
    before = files.read_object(path, "give another --out")
    changed = [name for name in settings if before.get(name) != settings[name]]
    if changed:
        differences = ", ".join(f"{n}={before.get(n)!r}, now {settings[n]!r}" for n in changed)
        raise ValueError(
            f"The run in {out} was started with other options; give another --out. "
            f"Received: {differences}."
        )


def save_settings(path, settings):
    """Writes the settings to `path`, which appears complete or not at all."""
    files.write(path, json.dumps(settings, indent=1))
