"""The command `keras-attn`, which runs the programs of this package by their names."""

import os
import runpy
import sys

from keras_attn import __version__, programs, startup

USAGE = """\
usage: keras-attn [--help] [--version] [--verbose] COMMAND [--help] ...

Train, export and serve Transformers. `keras-attn COMMAND --help` lists the options of a command;
--verbose shows the log of TensorFlow."""


def main(arguments=None):
    """Run a command, and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--verbose" in words:
        words.remove("--verbose")
        os.environ[startup.VERBOSE] = "1"
    if not words or words[0] in ("--help", "-h", "help"):
        print("\n".join([USAGE, *_listed()]))
        return 0
    if words[0] == "--version":
        print(f"keras-attn {__version__}")
        return 0
    name = " ".join(words[:2])
    name = name if name in programs.PROGRAMS else words[0]
    if name not in programs.PROGRAMS:
        return _refuse(name)
    program = programs.PROGRAMS[name]
    programs.make_importable()
    sys.argv = [sys.argv[0], *program.arguments, *words[len(name.split()) :]]
    runpy.run_module(programs.installed_name(program.module), run_name="__main__", alter_sys=True)
    return 0


def _listed():
    """Return the lines of all commands, by group."""
    width = max(map(len, programs.PROGRAMS))
    lines = []
    for title, group in programs.GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {words:{width}}  {program.purpose}" for words, program in group.items()]
    return lines


def _refuse(name):
    """Print that there is no such command, and the closest one that there is."""
    from keras_attn.hints import closest

    # Those of two words also by their second.
    known = {word: words for words in programs.PROGRAMS for word in (words.split()[-1], words)}
    match = closest(name, known)
    hint = f" Did you mean {known[match]!r}?" if match else " `keras-attn` lists all."
    print(f"keras-attn: There is no command {name!r}.{hint}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
