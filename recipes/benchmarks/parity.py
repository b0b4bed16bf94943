"""Card of the tests that copy weights into other libraries' attention."""

import argparse
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from ..common.machine import command_line, hardware, versions
from .card import CARDS, cell, execute

ROOT = pathlib.Path(__file__).parents[2]
# Those of layers; others of the folder compare whole models, files and generated texts.
TESTS = (
    "test_adaptive_span_authors",
    "test_local_attention",
    "test_reformer_pytorch",
    "test_transfo_xl",
    "test_transformers_layers",
)
PACKAGES = (
    "keras_attn",
    "keras",
    "tensorflow",
    "torch",
    "transformers",
    "reformer-pytorch",
    "local-attention",
)
METHOD = (
    "Each test gives our layer and the peer's the same weights and inputs, and compares what they "
    "compute within the tolerance of the test: attention of the authors' adaptive span, of "
    "local-attention, reformer-pytorch and transformers, and further layers of transformers. "
    "Hugging Face's Transformer-XL is in transformers up to 4.57, and its further layers are those "
    "of 5.23 in the Python that `KERAS_ATTN_PEERS_PYTHON` names; the authors' adaptive span is "
    "read from the folder that `KERAS_ATTN_ADAPTIVE_SPAN` names."
)


def run_tests(folder):
    """Return pairs of a test's name and its result, "passed" or a reason."""
    report = pathlib.Path(folder) / "report.xml"
    tests = [str(ROOT / "tests" / "peers" / f"{name}.py") for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", *tests, f"--junitxml={report}"]
    environment = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if not report.exists():
        raise SystemExit("pytest wrote no report; is it installed?")
    outcomes = []  # also where pytest finds no test, as outside a checkout
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        module = (case.get("classname") or "").rpartition(".")[2]
        problem = next(iter(case), None)
        says = "passed" if problem is None else f"{problem.tag}: {problem.get('message')}"
        outcomes.append((f"{module} {case.get('name')}".strip(), " ".join(says.split())))
    if not outcomes:
        raise SystemExit("pytest has found no test: run this in a checkout.")
    return outcomes


def markdown(outcomes):
    """The card, in Markdown."""
    installed = ", ".join(f"{name} {version}" for name, version in versions(*PACKAGES).items())
    passed = sum(says == "passed" for _, says in outcomes)
    return "\n".join(
        [
            "# Parity with other libraries",
            "",
            METHOD,
            "",
            f"- Command: `{command_line()}`",
            f"- Date: {datetime.date.today().isoformat()}",
            f"- Hardware: {hardware()}",
            f"- Versions: {installed}",
            "",
            f"{passed} of {len(outcomes)} passed.",
            "",
            "| test | result |",
            "| --- | --- |",
            *(f"| {cell(name)} | {cell(says)} |" for name, says in outcomes),
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(
        prog="python -m recipes.benchmarks.parity", description=__doc__
    )
    parser.add_argument("--out", default=CARDS, help="folder of the card")
    out = pathlib.Path(parser.parse_args().out)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_tests(folder)
    text = markdown(outcomes)
    out.mkdir(parents=True, exist_ok=True)
    (out / "parity.md").write_text(text)
    print(text)
    return any(not says.startswith(("passed", "skipped")) for _, says in outcomes)


if __name__ == "__main__":
    execute(main)
