"""Plan of a preparation: the parts of a corpus, and the settings of their shards."""

import hashlib
import json
import os
import re

from keras_attn.text.corpus.manifest import MANIFEST, Manifest

from ..common import files
from ..common.files import PLAN, WORK
from .division import divide
from .parallel_text import PARALLEL_TEXT, find_pairs
from .passes import Part, Rules
from .sources import Source, find_files, is_json_lines

# Of cleaning, of repeats and of splits; before 2 the words around a page break became one.
VERSION = 2
PAIRS_VERSION = 3  # the same of pairs; version 1 divided them by both sides
_BYTES = 1_000_000


class Plan:
    """The files of a corpus, its parts, and the rules of their preparation.

    Args:
        rules: `Rules`.
        paths: list of str. The files, relative to the folder of the corpus.
        settings: dict. All that decides the shards, as JSON holds it.
        parts: list of `Part`s; None before `read_parts`.
    """

    def __init__(self, rules, paths, settings, parts=None):
        self.rules, self.paths, self.settings, self.parts = rules, paths, settings, parts

    @property
    def out(self):
        return self.rules.out

    def work(self, name):
        """Return the path of a file that is needed until the corpus is complete."""
        return os.path.join(self.out, WORK, name)


def make_plan(options):
    """Look for the files of a corpus, and return a `Plan` without parts; nothing is written.

    Raises:
        ValueError: if there is no text, or `out` holds a corpus of other options or other files.
    """
    folder, paths = _find(options)
    sizes = [(path, os.path.getsize(os.path.join(folder, path))) for path in paths]
    settings = {
        **options.identity(),
        "version": PAIRS_VERSION if options.has_pairs else VERSION,
        "files": files.digest(*(f"{path} {size}" for path, size in sizes)),
    }
    # Of the bytes of files: those of JSON lines hold less text, those of compressed files more.
    share = min(1.0, options.sample * _BYTES / max(1, sum(size for _, size in sizes)))
    if options.tokenizer_file is not None:
        content = files.read(options.tokenizer_file)
        settings |= {"tokenizer": hashlib.sha256(content).hexdigest(), "vocabulary_size": None}
        share = 0.0
    rules = Rules(
        folder,
        PARALLEL_TEXT if options.source is not None else options.documents,
        options.fields,
        options.strict,
        options.valid,
        options.test,
        share,
        options.out,
    )
    plan = Plan(rules, paths, settings)
    check_out(plan)
    return plan


def _find(options):
    """Return the folder of the corpus and the paths of its files."""
    if options.source is not None:
        return find_pairs(options.data_dir, (options.source, options.target))
    folder, paths = find_files(options.data_dir)
    texts = [path for path in paths if not is_json_lines(path)]
    if texts and options.target_field is not None:
        raise ValueError(
            f"--target-field is for files .jsonl; --source and --target are for two files of "
            f"lines. Received: {texts[0]}."
        )
    return folder, paths


def read_parts(plan):
    """Return the plan with the parts that an earlier run has written, or divide the files.

    Parts follow from the files, which are read for places to divide them: a resumed run takes the
    places that were found.
    """
    path = plan.work(PLAN)
    if os.path.exists(path):
        rows = files.read_object(path, "delete it", "parts")["parts"]
        parts = [[Source(*source) for source in row] for row in rows]
    else:
        size = max(1, int(plan.settings["part"] * _BYTES))
        parts = divide(plan.rules.folder, plan.paths, plan.rules.documents, size)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write(path, json.dumps({"settings": plan.settings, "parts": parts}))
    parts = [Part(index, sources) for index, sources in enumerate(parts)]
    return Plan(plan.rules, plan.paths, plan.settings, parts)


def is_complete(plan):
    """Return True if the manifest is written."""
    return os.path.exists(os.path.join(plan.out, MANIFEST))


def check_out(plan):
    """Refuse a folder with another corpus, or with other files."""
    path = plan.work(PLAN)
    if is_complete(plan):
        _check_settings(plan, Manifest.read(plan.out).options)
    elif os.path.exists(path):
        _check_settings(plan, files.read_object(path, "delete it", "settings")["settings"])
    elif os.path.isfile(plan.out):
        raise ValueError(f"--out must be a folder. Received: --out {plan.out}, a file.")
    else:
        names = sorted(set(os.listdir(plan.out)) - {WORK}) if os.path.isdir(plan.out) else []
        if names:
            raise ValueError(
                f"The folder {plan.out} holds no preparation, but {', '.join(names[:5])}; "
                "give another --out."
            )


def _check_settings(plan, settings):
    """Raise a `ValueError` if a corpus was made with other settings; hashes are not printed."""
    names = sorted({*settings, *plan.settings})
    differing = [name for name in names if settings.get(name) != plan.settings.get(name)]
    if not differing:
        return
    if differing == ["files"]:
        what, received = "of files with other names or sizes", f"--data-dir {plan.rules.folder}"
    else:
        shown = (
            f"{name}={_shown(settings.get(name), 'a file')}, "
            f"now {_shown(plan.settings.get(name), 'another file')}"
            for name in differing
            if name != "files"  # which differ too if the options are those of other files
        )
        what, received = "with other options", ", ".join(shown)
    raise ValueError(
        f"The preparation in {plan.out} was made {what}; give another --out. Received: {received}."
    )


def _shown(value, file):
    return file if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else repr(value)
