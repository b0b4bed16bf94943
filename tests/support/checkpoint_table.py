"""Try out what the golden checkpoints of each family and head support, and write the results.

    PYTHONPATH=. python tests/support/checkpoint_table.py [NAME ...]

writes `tests/convert/table.json`, and from it the table of `keras_attn/convert/families.md`. It
tries out golden files that are new or have changed, with names those. Each takes half a minute.
"""

import collections
import hashlib
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path

import checkpoint_folders
import keras
import numpy as np
import pages

from keras_attn import export, layers, models
from keras_attn.convert import from_hugging_face, load_peft, save_peft, to_hugging_face
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.conversion import forecaster_type
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer

FILE = pages.ROOT / "tests/convert/table.json"
PAGE = pages.ROOT / "keras_attn/convert/families.md"
CARD = pages.ROOT / "recipes/benchmarks/cards/checkpoints.json"
IDS = pages.ROOT / "tests/convert/golden_ids"
NAMES = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))
WAYS = "SavedModel", "ONNX", "LiteRT", "CTranslate2", "LoRA"
YES, NO, SOME = "yes", "no", "some"
# Heads by the ends of the names of classes.
HEADS = {
    "DecisionTransformerModel": "actions",
    "ElectraForPreTraining": "replaced tokens",
    "ForMaskedLM": "masked tokens",
    "ForPreTraining": "masked tokens",
    "ForCausalLM": "next token",
    "LMHeadModel": "next token",
    "ModelWithLMHead": "next token",
    "ForConditionalGeneration": "targets",
    "MTModel": "targets",
    "ForSequenceClassification": "classes",
    "ForImageClassification": "classes",
    "ForTokenClassification": "tags",
    "ForClassification": "classes",
    "ForPrediction": "next values",
    "ForRegression": "values",
    "ForPretraining": "masked patches",
    "ForQuestionAnswering": "answers",
    "ModelForForecasting": "quantiles",
    "Model": "features",
}
# The folder of `golden_ids` with a tokenizer of the family's kind, where it has one.
TOKENIZERS = {
    "bart": "roberta",
    "bert": "bert",
    "distilbert": "bert",
    "electra": "bert",
    "gpt2": "gpt2",
    "llama": "llama3",
    "longformer": "roberta",
    "marian": "marian",
    "phi": "gpt2",
    "qwen2": "qwen2",
    "qwen3": "qwen2",
    "roberta": "roberta",
    "t5": "t5",
}


def digest(name):
    """Return a digest of a golden file."""
    content = (checkpoint_folders.GOLDEN / f"{name}.npz").read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def recorded():
    """Return the results in the committed file."""
    empty = {"checkpoints": {}, "tokenizers": {}}
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else empty


def head_of(config):
    """Return the name of the head of a configuration's class; features without a class."""
    name = (config.get("architectures") or ["Model"])[0]
    return next((head for end, head in HEADS.items() if name.endswith(end)), name)


def ids_of(model, config):
    """Return the ids of the first and the last token, of a model that generates."""
    if not hasattr(model, "reads_prompt"):
        return {}
    start, end = config.get("decoder_start_token_id"), config.get("eos_token_id")
    end = end if isinstance(end, int) and end < config["vocab_size"] else 1
    return {"bos_id": start or 0, "eos_id": end}


class Trial:
    """A golden checkpoint as a folder, its model, and the ways out of it."""

    def __init__(self, name, folder):
        self.config, weights, self.arrays = checkpoint_folders.load_golden(name)
        self.path = Path(folder)
        self.folder = checkpoint_folders.write_folder(folder / "in", self.config, weights)
        self.model, _ = from_hugging_face(self.folder)
        self.ids = ids_of(self.model, self.config)
        self.limits = {"max_length": 6, "max_source_length": 20} if self.ids else {}

    def row(self):
        """Return the facts of the checkpoint."""
        family = forecaster_type(Config(self.folder)) or self.config["model_type"]
        row = {"family": family, "head": head_of(self.config)}
        row["difference"] = float(checkpoint_folders.difference(self.model, self.arrays))
        row["reasons"] = {}
        for name in ("written", *WAYS):
            try:
                result = getattr(self, name.lower())()
            except (ValueError, ImportError) as error:
                row["reasons"][name] = re.split(" Received: ", str(error))[0].strip()
                result = NO
            row[name] = result or YES
        return row

    def written(self):
        return to_hugging_face(self.model, self.path / "out")

    def savedmodel(self):
        path = export.saved_model(self.model, str(self.path / "export"), **self.limits, **self.ids)
        return self.inspected(path)

    def onnx(self):
        # It compares the outputs of ONNX Runtime with the model's.
        export.onnx(self.model, self.path / "model.onnx", **self.limits, **self.ids)

    def litert(self):
        path = self.path / "model.tflite"
        return self.inspected(export.litert(self.model, path, **self.limits, **self.ids))

    def inspected(self, path):
        faults = export.inspect(path).faults
        if faults:
            raise ValueError(" ".join(faults))

    def ctranslate2(self):
        if isinstance(self.model, models.Classifier) and self.model.num_classes is not None:
            raise ValueError("CTranslate2 has no classes of texts.")
        length = {"max_length": 5} if self.ids else {}
        export.ctranslate2(self.model, self.path / "ct2", **length, **self.ids)

    def lora(self):
        """Adapters written as those of peft give another model the same outputs."""
        first, second = (from_hugging_face(self.folder)[0] for _ in range(2))
        layers.add_lora(first, rank=2, targets=["query", "value"])
        for number, weight in enumerate(first.trainable_weights):
            random = np.random.default_rng(number)
            weight.assign(random.normal(0.0, 0.3, weight.shape))
        save_peft(first, self.path / "adapters", self.folder)
        load_peft(second, self.path / "adapters", self.folder)
        columns = self.arrays["columns"]
        outputs, plain = (outputs_of(x, self.arrays)[..., columns] for x in (first, self.model))
        arrays = {**self.arrays, "outputs": outputs}
        if checkpoint_folders.difference(second, arrays) > checkpoint_folders.TOLERANCE:
            raise ValueError("The adapters that were read give other outputs.")
        if np.allclose(outputs, plain, rtol=1e-3):
            raise ValueError("The adapters change no output.")


def outputs_of(model, arrays):
    """Return the outputs for the inputs of a golden file."""
    inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if k.startswith("input_")}
    outputs = model(inputs)
    return np.array(outputs["logits"] if isinstance(outputs, dict) else outputs)


def try_out(name):
    """Return the facts of a golden file."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"digest": digest(name), **Trial(name, Path(folder)).row()}


def equal_lines(name):
    """Return how many lines of `golden_ids` have the ids of Hugging Face, and the number of all."""
    arrays = [[*np.load(path).values()] for path in (IDS / name / "ids.npz", IDS / "lines.npz")]
    ids, lines = (np.split(rows[0], np.cumsum(rows[1])[:-1]) for rows in arrays)
    encoded, lengths = read_tokenizer(IDS / name).encode([bytes(x.astype("uint8")) for x in lines])
    rows = zip(np.asarray(encoded), np.asarray(lengths), ids, strict=True)
    return [sum(row[:n].tolist() == expected.tolist() for row, n, expected in rows), len(lines)]


def cell_of(results):
    """Return what checkpoints of one family and head support together."""
    kinds = {NO if result == NO else YES for result in results}
    return kinds.pop() if len(kinds) == 1 else SOME


def table(content, card):
    """Return the lines of the page's table."""
    groups = collections.defaultdict(list)
    for _, row in sorted(content["checkpoints"].items()):
        groups[row["family"], row["head"]].append(row)
    live = collections.defaultdict(list)
    for family, facts in card.items():
        for kind, (count, largest) in facts["by_class"].items():
            live[family, head_of({"architectures": [kind]})].append((count, largest))
    head = ["family", "head", "golden", "largest", "live", "largest", "written", "tokenizer"]
    lines = [f"| {' | '.join([*head, *WAYS])} |"]
    lines += ["| --- | --- | --: | --: | --: | --: | --- | --- |" + " --- |" * len(WAYS)]
    order = list(dict.fromkeys(HEADS.values()))
    rows_of = sorted(groups.keys() | live.keys(), key=lambda x: (x[0], order.index(x[1])))
    for family, head in rows_of:
        rows, counts = groups[family, head], live[family, head]
        cells = [f"`{family}`", head, str(len(rows) or "-")]
        cells += [figure(max((row["difference"] for row in rows), default=None))]
        cells += [str(sum(count for count, _ in counts) or "-")]
        cells += [figure(max((x for _, x in counts if x is not None), default=None))]
        written = sorted({row["written"] for row in rows})
        cells += [", ".join(x if x == NO else f"`{x}`" for x in written) or "-"]
        tokenizer = TOKENIZERS.get(family)
        equal = content["tokenizers"].get(tokenizer)
        cells += [f"{tokenizer}, {equal[0]} of {equal[1]}" if equal else "-"]
        cells += [cell_of([row[way] for row in rows]) if rows else "-" for way in WAYS]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def figure(value):
    return "-" if value is None else f"{value:.1e}".replace("e-0", "e-")


def page_table():
    """Return the lines of the page's table, from the committed results."""
    card = json.loads(CARD.read_text(encoding="utf-8"))["families"]
    return table(recorded(), card)


def write_page():
    """Replace the table of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition("| family | head |")
    PAGE.write_text(before + "\n".join(page_table()) + "\n\n" + rest.partition("\n\n")[2])


def main(names):
    content = recorded()
    kept = {name: row for name, row in content["checkpoints"].items() if name in NAMES}
    content["checkpoints"] = kept
    stale = [name for name in NAMES if kept.get(name, {}).get("digest") != digest(name)]
    for name in names or stale:
        kept[name] = row = try_out(name)
        print(name, {key: row[key] for key in ("difference", "written", *WAYS)}, flush=True)
        keras.backend.clear_session()
        content["checkpoints"] = dict(sorted(kept.items()))
        FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    content["tokenizers"] = {name: equal_lines(name) for name in sorted({*TOKENIZERS.values()})}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_page()


if __name__ == "__main__":
    assert TOKENIZERS.keys() <= FAMILIES.keys()
    main(sys.argv[1:])
