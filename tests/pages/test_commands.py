"""The programs, options, scripts and extras that the pages name exist."""

import argparse
import configparser
import importlib
import re
import runpy
import sys

import pages
import pytest
from each import check_each

from keras_attn import programs
from serving.flags import parse_flags

PROGRAMS = {
    f"{pages.name(page)}: {module} {' '.join(arguments)}": (module, arguments)
    for page in pages.PAGES
    for module, arguments in pages.programs(page)
}
SCRIPT = re.compile(r"(?:bash|python) ([\w./]+\.(?:sh|py))")
EXTRA = re.compile(r"(?:keras_attn|\.)\[([\w,]+)\]")


class Parsed(Exception):
    """A program has read its options and knows them."""


def read_options(module, arguments, monkeypatch):
    """Read the options of a program as it does, without running it."""
    # A wheel installs these folders in `keras_attn`.
    module = re.sub(r"^keras_attn\.(recipes|serving)", r"\1", module)
    if module == "serving.server":
        parse_flags(arguments)
    elif (pages.ROOT / module.replace(".", "/") / "options.py").is_file():
        importlib.import_module(f"{module}.options").RecipeOptions.parse(arguments, module)
    else:
        parse, parsers = argparse.ArgumentParser.parse_known_args, []

        def stop(parser, *args):
            parsers.append(parser)
            parsed = parse(parser, *args)
            if parser is not parsers[0]:
                return parsed  # of a subcommand
            if parsed[1]:
                parser.error(f"unknown arguments: {parsed[1]}")
            raise Parsed

        monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        with pytest.raises(Parsed):
            runpy.run_module(module, run_name="__main__")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # an earlier import does no harm
def test_the_options_of_commands_exist(monkeypatch):
    def check(module, arguments):
        try:
            with monkeypatch.context() as patch:
                read_options(module, arguments, patch)
        except SystemExit as end:
            assert end.code == 0 and "--help" in arguments

    check_each(check, PROGRAMS)


def test_the_commands_that_pages_name_exist():
    text = "\n".join(map(pages.text, pages.PAGES))
    known = {words.split()[0] for words in programs.PROGRAMS} | {"COMMAND"}
    assert set(re.findall(r"(?:keras-attn|-m keras_attn) (\w[\w-]*)", text)) - known == set()


def test_the_scripts_and_extras_that_pages_name_exist():
    setup = configparser.ConfigParser()
    setup.read(pages.ROOT / "setup.cfg")
    text = "\n".join(map(pages.text, pages.PAGES))
    scripts = set(SCRIPT.findall(text))
    assert scripts and {name for name in scripts if not (pages.ROOT / name).is_file()} == set()
    extras = {name for names in EXTRA.findall(text) for name in names.split(",")}
    assert extras and extras - set(setup["options.extras_require"]) == set()
