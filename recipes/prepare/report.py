"""The manifest of a prepared corpus, and a report of what was read, kept and left out."""

import json
import os

from keras_attn.text.corpus.manifest import TOKENIZER, Manifest

from ..common import files
from ..common.files import SPLITS
from . import problems
from .encoding import Encoder

REPORT = "report.json"


def write_report(plan, facts, names):
    """Write the report, and then the manifest, with which the corpus is complete.

    Args:
        plan: `Plan`.
        facts: list of the dict of each part's first pass.
        names: list of a dict for each part, of split to the name of its shard.
    """
    shards = {split: [part[split] for part in names if split in part] for split in SPLITS}
    path = os.path.join(plan.out, TOKENIZER)
    with open(path, "rb") as file:
        tokenizer = Encoder(file.read(), path)
    texts = {part.name: one["sha256"] for part, one in zip(plan.parts, facts, strict=True)}
    manifest = Manifest.describe(plan.out, shards, texts, plan.settings, tokenizer)
    splits = {
        split: {name: manifest.total(split, name) for name in ("documents", "tokens", "characters")}
        for split in SPLITS
    }
    read, kept = sum(one["read"] for one in facts), sum(x["documents"] for x in splits.values())
    content = {
        "files": len(plan.paths),
        "parts": len(plan.parts),
        "documents": read,
        "repeats": read - kept,
        "vocabulary_size": tokenizer.vocabulary_size,
        "splits": splits,
        "problems": problems.total([one["problems"] for one in facts]),
    }
    files.write(os.path.join(plan.out, REPORT), json.dumps(content, indent=1) + "\n")
    manifest.save(plan.out)


def summary(out):
    """Yield the lines of the report of a prepared corpus."""
    report = files.read_object(os.path.join(out, REPORT), "prepare the corpus again", "splits")
    yield (
        f"Documents: {report['documents']:,} in {report['files']:,} files, "
        f"of which {report['repeats']:,} are repeats"
    )
    for split, entry in report["splits"].items():
        yield f"{split}: {entry['documents']:,} documents, {entry['tokens']:,} tokens"
    for kind, entry in report["problems"].items():
        first = "; ".join(entry["first"][:3])
        yield f"Left out: {entry['count']:,} {kind}: {first}{', ...' if entry['count'] > 3 else ''}"
    yield f"Report: {os.path.join(out, REPORT)}"
    yield f"Corpus: {out}"
