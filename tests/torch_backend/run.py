"""Run the tests of this folder on torch, try each value and each model there, and write the card.

    python tests/torch_backend/run.py            tests, table and card: 15 minutes on two cores
    python tests/torch_backend/run.py --tests    the tests alone; pytest gets the other arguments

The table follows one file of each model from backend to backend. TensorFlow writes it, with the
outputs, the greedily decoded tokens and the gradients of the model; torch does the same with it and
writes it again, which TensorFlow and JAX read; JAX writes it for torch to read. The results are in
`recipes/catalogue/torch.json`, which the catalogue reads, and in the card beside this program.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
CARD = FOLDER / "card.md"
RESULTS = ROOT / "recipes" / "catalogue" / "torch.json"
SUPPORT = json.loads(RESULTS.with_name("support.json").read_text(encoding="utf-8"))
LIBRARIES = "torch", "keras", "tensorflow", "jax"
COMMAND = "python tests/torch_backend/run.py"
# Relative to the largest number of each result. Gradients are differences of weights near 1.
TOLERANCES = {"called": 1e-5, "generated": 1e-5, "trained": 1e-4}
HEADINGS = {
    "called": "called",
    "generated": "generated",
    "trained": "trained",
    "tensorflow": "its file on TensorFlow",
    "jax": "on JAX",
    "torch": "JAX's file",
}


def on(backend):
    """Return the environment of a process on a backend."""
    paths = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **quick, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)}


def run_tests(arguments):
    """Run pytest on torch; return its exit code and its last line."""
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", *arguments]
    command = [sys.executable, "-m", "pytest", str(FOLDER), *options]
    done = subprocess.run(command, cwd=ROOT, env=on("torch"), stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    return done.returncode, done.stdout.strip().splitlines()[-1]


def rows(backend, step, *folders):
    """Return the results of a step of `rows.py` on a backend, by the name of the value."""
    command = [sys.executable, str(FOLDER / "rows.py"), step, *map(str, folders)]
    done = subprocess.run(command, env=on(backend), stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"{step} on {backend}: {len(lines)} values", flush=True)
    return {line.pop("name"): line for line in lines}


def measure(folder):
    """Return a row for each value: a largest difference or an error by what was tried."""
    first, second, third = (Path(folder, name) for name in ("tensorflow", "torch", "jax"))
    for each in (first, second, third):
        each.mkdir()
    written = rows("tensorflow", "write", first)
    steps = {
        "here": rows("torch", "copy", first, second),
        "tensorflow": rows("tensorflow", "read", second),
        "jax": rows("jax", "rewrite", second, third),
        "torch": rows("torch", "read", third),
    }
    return {name: row_of(name, steps) for name in written}


def row_of(name, steps):
    """Return the row of a value from the results of the steps."""
    row = {act: steps["here"][name].get(act) for act in TOLERANCES}
    row |= {other: steps[other][name].get("called") for other in ("tensorflow", "jax", "torch")}
    errors = {step: rows[name]["errors"] for step, rows in steps.items() if rows[name]["errors"]}
    return {act: x for act, x in {**row, "errors": errors}.items() if x not in (None, {})}


def works(name, row):
    """Return True if all that was tried equals what TensorFlow did."""
    limits = {act: TOLERANCES.get(act, TOLERANCES["called"]) for act in HEADINGS}
    if SUPPORT[name].get("cached") == "differs":  # by the number of slots, which grows there
        del limits["generated"]
    return "errors" not in row and all(row[act] <= limits[act] for act in limits if act in row)


def card(results, tests):
    """Return the text of the card."""
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    sound = sum(works(*item) for item in results.items())
    lines = [
        "# Torch",
        "",
        "Each value of the catalogue in a tiny model, which TensorFlow made with random weights "
        "and saved. Torch makes it too, reads that file, calls, trains and decodes, and writes a "
        "file, which TensorFlow and JAX read; JAX writes one for torch. A number is the largest "
        "difference from TensorFlow, relative to the largest number; trained are gradients of a "
        "step of `fit`. A loss alone has a finite value, and no numbers. A step of `LSH` reads "
        "other keys where caches grow, as they do on TensorFlow alone.",
        "",
        f"- Command: `{COMMAND}`",
        f"- Date: {datetime.date.today().isoformat()}",
        f"- Versions: {versions}",
        f"- Tests: {tests}",
        f"- Values: {sound} of {len(results)} work",
        "",
        f"| value | {' | '.join(HEADINGS.values())} |",
        f"| --- |{' --: |' * len(HEADINGS)}",
    ]
    for name, row in sorted(results.items()):
        cells = [f"{row[act]:.0e}" if act in row else "" for act in HEADINGS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    for name, row in sorted(results.items()):
        if errors := row.get("errors"):
            lines += ["", f"- `{name}`: {json.dumps(errors)}"]
    return "\n".join(lines) + "\n"


def write(results, tests):
    """Write the results for the catalogue, and the card."""
    supported = {name: {"torch": works(name, row)} for name, row in sorted(results.items())}
    lines = [f'"{name}": {json.dumps(row)}' for name, row in supported.items()]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    CARD.write_text(card(results, tests), encoding="utf-8")


def main(arguments):
    code, summary = run_tests(arguments[1:] if arguments[:1] == ["--tests"] else [])
    if arguments:
        return code
    with tempfile.TemporaryDirectory() as folder:
        results = measure(folder)
    write(results, summary)
    failed = [name for name, row in results.items() if not works(name, row)]
    print(f"Not as on TensorFlow: {', '.join(failed) or 'none'}.")
    return code or int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
