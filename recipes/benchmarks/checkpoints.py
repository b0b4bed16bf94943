"""Card of random checkpoints of each family, compared with transformers.

    python -m recipes.benchmarks.checkpoints --oracle PYTHON [--families llama --cases 5]

PYTHON is that of an environment with torch and transformers, in a process of its own. Its answers
are kept in a folder, so that a run after a change here computes few of them again. With names of
families the other rows of the card stay as they are; with `--cases` no card is written.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import traceback
import warnings

import keras
import numpy as np

from keras_attn import generation
from keras_attn.convert import from_hugging_face, generation_options, to_hugging_face
from keras_attn.convert.golden import compare_outputs

from ..common import files
from ..common.machine import hardware, versions
from .card import CARDS, cell, execute, positive
from .checkpoint_cases import cases, has_any
from .checkpoint_families import families

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = f"{__package__}.contenders.checkpoints_torch"
GENERATED = "generated.json"
ENCODER_TOLERANCE, DECODER_TOLERANCE = 2e-6, 5e-6
# Allowed beside that, in roundings of transformers itself: scores of T5 are not divided.
ROUNDINGS = 3
GENERATED_CASES = 6  # of each class: a loop of the decoder is compiled for each
COMMAND = f"python -m {__package__}.checkpoints --oracle PYTHON"
METHOD = (
    "Random checkpoints of each family, written by transformers in three sizes. The options of a "
    "family occur in pairs: for any two of them, each pair of values is in some checkpoint. "
    "**defaults** counts those beside them whose `config.json` has the sizes only, one of each "
    "class; rows without a number are older than those. Every "
    "parameter and saved buffer has noise. The texts have right padding and the id 0, and are "
    "longer than windows. **largest** is the largest difference of the outputs at real tokens over "
    f"the largest output, where {ENCODER_TOLERANCE:.0e} is allowed, {DECODER_TOLERANCE:.0e} for "
    f"models that generate, or {ROUNDINGS} times **rounding**: the difference of transformers from "
    "itself in float64, or in float64 with weights moved by up to a rounding, if that is larger. "
    "**generated** counts checkpoints with equal greedy continuations, and "
    "for encoder-decoders equal beams of three; the first ones of each class generate. **written** "
    "counts those that `to_hugging_face` wrote and transformers read, with the largest difference. "
    "**refused** names the options that are not converted: each is refused in a sentence with its "
    "name."
)


class Oracle:
    """The process with transformers, and the folder that keeps its answers."""

    def __init__(self, python, cache):
        self._python = python
        self._root = pathlib.Path(cache, self._state())

    def _state(self):
        """Return a name for the version of transformers and the programs of the oracle."""
        ask = "import transformers; print(transformers.__version__)"
        version = subprocess.run(
            [self._python, "-c", ask], check=True, capture_output=True, text=True
        ).stdout.strip()
        programs = ("recipes/benchmarks/contenders/checkpoints_torch.py",)
        programs += ("keras_attn/convert/golden_writer.py",)
        return f"{version}-{files.digest(*((ROOT / path).read_text() for path in programs))[:12]}"

    def folder(self, case):
        """Return the folder with the checkpoint of a case and the outputs of transformers."""
        return self._root / case.key()

    def make(self, chosen):
        """Write the checkpoints of cases that are not there; `failed.json` says why one is not."""
        missing = [x for x in chosen if not any(map(os.path.isfile, self._ends(x)))]
        for case in missing:
            shutil.rmtree(self.folder(case), ignore_errors=True)
            self.folder(case).mkdir(parents=True)
        tasks = [
            {
                "folder": str(self.folder(x)),
                "class_name": x.class_name,
                "options": x.options,
                "is_bare": x.is_bare,
            }
            for x in missing
        ]
        for case, answer in zip(missing, self._ask("make", tasks), strict=True):
            if "failed" in answer:
                files.write_json(self.folder(case) / "failed.json", answer)

    def _ends(self, case):
        return (self.folder(case) / "outputs.npz", self.folder(case) / "failed.json")

    def failure(self, case):
        """Return why transformers has no outputs for a case, or None."""
        path = self.folder(case) / "failed.json"
        return json.loads(path.read_text())["failed"] if path.is_file() else None

    def generates(self, case):
        """Return True if transformers generates with a case."""
        return (self.folder(case) / GENERATED).is_file()

    def read(self, written):
        """Return the answer to each pair of a case and the folder that keras_attn wrote of it."""
        tasks = [{"folder": str(self.folder(x)), "written": str(out)} for x, out in written]
        return self._ask("read", tasks)

    def _ask(self, action, tasks):
        if not tasks:
            return []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tasks.json")
            path.write_text(json.dumps(tasks))
            command = [self._python, "-m", ORACLE, action, path]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ValueError(f"The process with transformers failed: {done.stderr[-900:]}")
            return json.loads(path.read_text())


def measure(oracle, case, out, generates):
    """Return the row of a case, whose model is written to `out`."""
    folder = oracle.folder(case)
    row = {"class": case.class_name, "chosen": case.chosen}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, _ = from_hugging_face(folder / "checkpoint")
    except ValueError as error:
        return {**row, "refused": str(error).partition(" Received: ")[0]}
    with np.load(folder / "outputs.npz") as file:
        arrays = dict(file)
    inputs = {k.removeprefix("input_"): x for k, x in arrays.items() if k.startswith("input_")}
    outputs, mask = model(inputs), arrays["mask"]
    outputs = np.array(outputs["logits"] if isinstance(outputs, dict) else outputs)
    row["difference"], _ = compare_outputs(arrays["outputs"][mask], outputs[mask], "float32", 0)
    row["rounding"] = float(arrays["rounding"])
    if generates and oracle.generates(case):
        generated = json.loads((folder / GENERATED).read_text())
        row["generated"] = compare_generated(model, generated)
    try:
        row["written"] = to_hugging_face(model, out)
    except ValueError as error:
        row["not_written"] = str(error).partition(" Received: ")[0]
    return row


def compare_generated(model, generated):
    """Return True if the model generates the ids of transformers, else a sentence."""
    if "failed" in generated:
        return f"transformers: {generated['failed']}"
    options, reads_source = generated["options"], not model.reads_prompt
    for name in ("greedy", "beams"):
        if name not in generated:
            continue
        beams = {"num_beams": 3} if name == "beams" else {}
        strategy = generation_options({**options, **beams}, is_encoder_decoder=reads_source)
        rows = generated["prompts"]
        lengths = [len(row) for row in rows]
        inputs = np.array([row + [row[0]] * (max(lengths) - len(row)) for row in rows])
        ids, _ = generation.generate(model, inputs, lengths=np.array(lengths), **strategy)
        ours = [until(row, options["eos_token_id"]) for row in np.asarray(ids).tolist()]
        theirs = [until(row, options["eos_token_id"]) for row in generated[name]]
        if ours != theirs:
            return f"{name}: {ours} instead of {theirs}"
    return True


def until(ids, end):
    """Return the ids up to the end token."""
    return ids[: ids.index(end) + 1] if end in ids else ids


def problem(family, row, tolerance):
    """Return what is wrong about a case, or None."""
    if row["refused_by"] is not None:
        sentence = row.get("refused", "it must be refused")
        return None if row["refused_by"] in sentence else sentence
    for name in ("failed", "refused", "not_read"):
        if name in row:
            return row[name]
    tolerance = max(tolerance, ROUNDINGS * row["rounding"])
    if not row["difference"] <= tolerance:
        return f"differs by {row['difference']:.2g}"
    if row.get("generated", True) is not True:
        return row["generated"]
    is_known = has_any(row["chosen"], family.not_written)
    if "not_written" in row:
        return None if is_known else row["not_written"]
    if row["back"] > tolerance:
        return f"differs by {row['back']:.2g} when written"
    return "it was to be refused by `to_hugging_face`" if is_known else None


def run(oracle, name, family, count, log):
    """Return the rows of the cases of a family."""
    chosen = cases(name, family)[:count]
    oracle.make(chosen)
    rows, generated = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for index, case in enumerate(chosen):
            row = {"class": case.class_name, "chosen": case.chosen}
            if failure := oracle.failure(case):
                row["failed"] = f"transformers: {failure}"
            else:
                number = generated[case.class_name] = generated.get(case.class_name, 0) + 1
                out = pathlib.Path(folder, str(index))
                try:
                    row = measure(oracle, case, out, generates=number <= GENERATED_CASES)
                except Exception as error:  # a fault of ours must not end the other cases
                    traceback.print_exc(limit=-4)
                    row["failed"] = f"{type(error).__name__}: {error}"
            rows.append({**row, "refused_by": case.refused_by})
            keras.utils.clear_session(free_memory=False)
        written = [
            (case, pathlib.Path(folder, str(i)))
            for i, case in enumerate(chosen)
            if "written" in rows[i]
        ]
        answers = iter(oracle.read(written))
        for row in (row for row in rows if "written" in row):
            answer = next(answers)
            row.update({"not_read": answer["failed"]} if "failed" in answer else {})
            row.update({"back": answer["answer"]} if "answer" in answer else {})
    is_decoder = any(oracle.generates(case) for case in chosen)
    tolerance = DECODER_TOLERANCE if is_decoder else ENCODER_TOLERANCE
    for row in rows:
        row["problem"] = problem(family, row, tolerance)
        if row["problem"]:
            log(f"  {name} {json.dumps(row['chosen'])}: {row['problem']}")
    return rows


def summary(family, rows):
    """Return the row of a family on the card."""
    compared = [row for row in rows if "difference" in row and row["refused_by"] is None]
    generated = [row["generated"] for row in compared if "generated" in row]
    written = [row for row in compared if "back" in row]
    by_class = {
        name: [row["difference"] for row in compared if row["class"] == name]
        for name in family.classes
    }
    return {
        "by_class": {
            name: [len(largest), max(largest, default=None)] for name, largest in by_class.items()
        },
        "options": sorted(family.options),
        "defaults": len(family.classes),
        "cases": len([row for row in rows if row["refused_by"] is None]),
        "compared": len(compared),
        "largest": max((row["difference"] for row in compared), default=None),
        "rounding": max((row["rounding"] for row in compared), default=None),
        "generated": [sum(x is True for x in generated), len(generated)],
        "written": [len(written), max((row["back"] for row in written), default=None)],
        "not_written": sorted({row["not_written"] for row in compared if "not_written" in row}),
        "refused": {row["refused_by"]: row["refused"] for row in rows if "refused" in row},
        "problems": [
            {"chosen": row["chosen"], "problem": row["problem"]} for row in rows if row["problem"]
        ],
    }


def markdown(content):
    """Return the card in Markdown."""
    lines = ["# Checkpoints beside transformers", "", METHOD, ""]
    lines += [f"- Command: `{content['command']}`", f"- Date: {content['date']}"]
    lines += [f"- Hardware: {content['hardware']}", f"- Versions: {content['versions']}", ""]
    lines += [
        "| family | checkpoints | defaults | options | largest | rounding | generated | written "
        "| refused |"
    ]
    lines += ["| --- | --: | --: | --: | --: | --: | --: | --: | --- |"]
    for name, row in sorted(content["families"].items()):
        count, back = row["written"]
        equal, of = row["generated"]
        cells = [f"`{name}`", str(row["cases"]), str(row.get("defaults", "-"))]
        cells += [str(len(row["options"])), figure(row["largest"]), figure(row["rounding"])]
        cells += [f"{equal} of {of}" if of else "-", f"{count}, {figure(back)}"]
        cells += [", ".join(f"`{name}`" for name in row["refused"]) or "-"]
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    problems = [
        f"- `{name}`, {json.dumps(each['chosen'])}: {each['problem']}"
        for name, row in sorted(content["families"].items())
        for each in row["problems"]
    ]
    return "\n".join([*lines, *(["", "## Problems", "", *problems] if problems else [])]) + "\n"


def figure(value):
    return "-" if value is None else f"{value:.1e}".replace("e-0", "e-")


def write_card(path, name, measured):
    """Write the card with the rows measured now, and those of other families as they were."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    file = path / f"{name}.json"
    known = json.loads(file.read_text())["families"] if file.is_file() else {}
    content = {
        "command": COMMAND,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": ", ".join(f"{k} {v}" for k, v in versions("keras_attn", "tensorflow").items()),
        "families": dict(sorted({**known, **measured}.items())),
    }
    files.write_json(file, content)
    files.write(path / f"{name}.md", markdown(content))


def main():
    known = families()
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.checkpoints", description=__doc__
    )
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with transformers")
    parser.add_argument("--families", nargs="+", choices=known, default=list(known))
    parser.add_argument("--cases", type=positive, help="only the first ones of each family")
    cache = pathlib.Path(tempfile.gettempdir(), "keras_attn_checkpoints")
    parser.add_argument("--cache", default=cache, help="folder of what transformers computed")
    parser.add_argument("--name", default="checkpoints", help="name of the card")
    parser.add_argument("--out", default=CARDS, help="folder of the card")
    arguments = parser.parse_args()
    oracle, failed = Oracle(arguments.oracle, arguments.cache), False
    for name in arguments.families:
        rows = run(oracle, name, known[name], arguments.cases, log=print)
        row = summary(known[name], rows)
        equal, of = row["generated"]
        print(
            f"{name}: {row['compared']} of {row['cases']} compared, {figure(row['largest'])}; "
            f"{equal} of {of} generate; {row['written'][0]} written, {figure(row['written'][1])}; "
            f"{len(row['problems'])} problems",
            flush=True,
        )
        failed |= bool(row["problems"])
        if arguments.cases is None:
            write_card(arguments.out, arguments.name, {name: row})
    return failed


if __name__ == "__main__":
    execute(main)
