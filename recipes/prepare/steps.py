"""The steps of a preparation on the cores of one machine, or of several that share a folder.

    1. first pass over each part: hashes of its documents, a sample for the tokenizer
    2. worker 0: which documents are kept, and the tokenizer
    3. second pass over each part: its shards
    4. worker 0: the manifest and the report

Worker w of n takes the parts w, w + n, .... Between steps it waits for files, not for messages.
Each file appears complete or not at all, and what exists is not made again: a run that is killed
anywhere resumes, and ends with the same bytes.
"""

import collections
import contextlib
import json
import os
import shutil
import time

import numpy as np

from keras_attn.files import atomic_file
from keras_attn.text.corpus.manifest import TOKENIZER, Shard

from ..common import files
from ..common.cli import sentence
from . import cleaning, encoding, passes
from .plan import PLAN, WORK, check_out, is_complete, read_parts
from .pool import Pool
from .problems import total
from .repeats import kept
from .report import write_report

_READY = "ready.json"
_POLL_SECONDS, _LOG_SECONDS = 0.5, 60


def prepare(plan, options, log=print):
    """Prepare a corpus, or what is left of it.

    Args:
        plan: `Plan`.
        options: `RecipeOptions`.
        log: function of a line of text.

    Returns:
        The `Pool`, with what its processes needed.
    """
    with Pool(options.processes) as pool:
        if not is_complete(plan):
            steps = _lead if options.worker == 0 else _follow
            with _report_failure(plan, options):
                try:
                    steps(plan, options, pool, log)
                except FileNotFoundError:
                    if not is_complete(plan):  # by worker 0, which has removed the work's files
                        raise
                    check_out(plan)
    return pool


class OtherWorkerError(ValueError):
    """Another worker has failed, so this one ends."""


@contextlib.contextmanager
def _report_failure(plan, options):
    """Leave the error of this worker for the others, which would wait for it."""
    path = _failure_path(plan, options.worker)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # of an earlier run
    try:
        yield
    except OtherWorkerError:
        raise
    except Exception as error:
        with contextlib.suppress(OSError):  # of a full disk, or of a work folder that is removed
            files.write(path, json.dumps({"message": sentence(error)}))
        raise


def _check_workers(plan, options):
    for worker in range(options.workers):
        path = _failure_path(plan, worker)
        with contextlib.suppress(FileNotFoundError):
            message = files.read_object(path, "delete it", "message")["message"]
            raise OtherWorkerError(
                f"Worker {worker} has ended, and must be started again first: {message}"
            )


def _failure_path(plan, worker):
    return plan.work(f"failed-{worker}.json")


def _lead(plan, options, pool, log):
    """Do the steps of worker 0."""
    plan = read_parts(plan)
    mine = plan.parts[:: options.workers]
    _first_passes(plan, mine, pool, log)
    firsts = [_first_path(plan, part) for part in plan.parts]
    _wait(plan, options, firsts, "the first pass", log)
    if not os.path.exists(plan.work(_READY)):
        choose_documents_and_tokenizer(plan, options, log)
    _second_passes(plan, mine, pool, log)
    seconds = [plan.work(f"{part.name}-second.json") for part in plan.parts]
    _wait(plan, options, seconds, "the second pass", log)
    if options.workers > 1:  # whose parts this worker has not checked
        _second_passes(plan, plan.parts, pool, log)
    finish(plan)


def _follow(plan, options, pool, log):
    """Do the steps of another worker."""
    _wait(plan, options, [plan.work(PLAN)], "the plan of worker 0", log)
    check_out(plan)
    plan = read_parts(plan)
    mine = plan.parts[options.worker :: options.workers]
    _first_passes(plan, mine, pool, log)
    _wait(plan, options, [plan.work(_READY)], "worker 0", log)
    _second_passes(plan, mine, pool, log)


def remove_work(plan):
    """Remove what a complete corpus does not need any more."""
    shutil.rmtree(os.path.join(plan.out, WORK), ignore_errors=True)


def first_to_files(rules, part, work):
    """Do the first pass over a part, and write what it found."""
    first = passes.first_pass(rules, part)
    path = os.path.join(work, part.name)
    with atomic_file(f"{path}-keys.npy") as temporary:
        np.save(temporary, first.keys)
    files.write(f"{path}-sample.json", json.dumps(first.sample))
    files.write(f"{path}-first.json", json.dumps(first.facts))


def second_to_files(rules, part, work):
    """Do the second pass over a part, and write the names of its shards.

    Shards that exist are kept if their hashes are valid.
    """
    path = os.path.join(work, f"{part.name}-second.json")
    if os.path.exists(path) and _have_valid_hashes(rules.out, files.read_object(path, "delete it")):
        return
    facts = files.read_object(os.path.join(work, f"{part.name}-first.json"), "delete it")
    mask = np.load(os.path.join(work, f"{part.name}-kept.npy"))
    files.write(path, json.dumps(passes.second_pass(rules, part, facts, mask)))


def choose_documents_and_tokenizer(plan, options, log=print):
    """Find the repeats of all parts and make the tokenizer."""
    facts = first_facts(plan)
    counts = [first["read"] for first in facts]
    mask = kept(counts, lambda index: np.load(plan.work(f"{plan.parts[index].name}-keys.npy")))
    for part, own in zip(plan.parts, np.split(mask, np.cumsum(counts)[:-1]), strict=True):
        with atomic_file(plan.work(f"{part.name}-kept.npy")) as temporary:
            np.save(temporary, own)
    check_splits(_count_splits(plan), options, total([first["problems"] for first in facts]))
    log(f"Documents: {len(mask):,}, of which {mask.sum():,} are kept")
    sample = []
    for part in plan.parts if plan.rules.sample else ():
        with open(plan.work(f"{part.name}-sample.json"), encoding="utf-8") as file:
            sample.extend(map(tuple, json.load(file)))
    content = tokenizer_content(options, sample)
    path = os.path.join(plan.out, TOKENIZER)
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
    encoding.Encoder(content, path)  # or its error
    files.write(plan.work(_READY), "{}")


def _count_splits(plan):
    """Return the number of documents of each split that are kept."""
    counts = collections.Counter()
    for part in plan.parts:
        keys, mask = (np.load(plan.work(f"{part.name}-{name}.npy")) for name in ("keys", "kept"))
        counts.update(cleaning.split_of(k, plan.rules.valid, plan.rules.test) for k in keys[mask])
    return counts


def check_splits(counts, options, problems):
    """Refuse a corpus of which a split would be empty.

    Args:
        counts: dict of split to its number of documents, for those that have some.
        options: `RecipeOptions`.
        problems: dict. What was left out, as `Problems.counts`.
    """
    places = [f"{kind} ({x['count']}, first {x['first'][0]})" for kind, x in problems.items()]
    left_out = f" Left out: {', '.join(places)}." if places else ""
    if not sum(counts.values()):
        raise ValueError(f"--data-dir has no document that can be used.{left_out}")
    shares = {"train": 1, "valid": options.valid, "test": options.test}
    for split, share in shares.items():
        if share and not counts.get(split):
            raise ValueError(
                f"No document falls to the split {split}; divide the texts into more documents by "
                f"--documents, or change its share, with another --out. Received: "
                f"{sum(counts.values())} documents, --documents {options.documents}, "
                f"--valid {options.valid}, --test {options.test}.{left_out}"
            )


def tokenizer_content(options, sample):
    """Return the file of the tokenizer: the one that is given, or one trained on a sample.

    Args:
        options: `RecipeOptions`.
        sample: list of pairs of a place in a random order and a text.
    """
    if options.tokenizer_file is not None:
        return files.read(options.tokenizer_file)
    texts, left = [], options.sample * 1_000_000
    for _, text in sorted(set(sample)):
        if left <= 0:
            break
        texts.append(text)
        left -= len(text.encode())
    return encoding.train(options.tokenizer, texts, options.vocabulary_size)


def finish(plan):
    """Write the report and the manifest."""
    names = [files.read_object(plan.work(f"{p.name}-second.json"), "delete it") for p in plan.parts]
    write_report(plan, first_facts(plan), names)


def first_facts(plan):
    """Return what the first pass found in each part."""
    return [files.read_object(_first_path(plan, part), "delete it") for part in plan.parts]


def _first_path(plan, part):
    return plan.work(f"{part.name}-first.json")


def _first_passes(plan, parts, pool, log):
    missing = [part for part in parts if not os.path.exists(_first_path(plan, part))]
    calls = [(plan.rules, part, plan.work("")) for part in missing]
    _show(pool.map(first_to_files, calls), len(calls), "First pass", log)


def _second_passes(plan, parts, pool, log):
    calls = [(plan.rules, part, plan.work("")) for part in parts]
    _show(pool.map(second_to_files, calls), len(calls), "Second pass", log)


def _have_valid_hashes(out, names):
    try:
        for name in names.values():
            for file in Shard.read(out, name).files(out):
                file.read(0, 1)
    except ValueError:
        return False
    return True


def _show(results, total, name, log):
    """Take all results, and log now and then how many there are."""
    logged = time.monotonic()
    for number, _ in enumerate(results, 1):
        if number == total or time.monotonic() - logged > _LOG_SECONDS:
            log(f"{name}: {number:,} of {total:,} parts")
            logged = time.monotonic()


def _wait(plan, options, paths, name, log):
    """Wait until all files exist.

    Raises:
        FileNotFoundError: if the corpus is complete, so that they will not exist again.
        OtherWorkerError: if another worker has failed.
    """
    logged, missing = time.monotonic(), paths
    while missing := [path for path in missing if not os.path.exists(path)]:
        if is_complete(plan):
            raise FileNotFoundError(missing[0])
        _check_workers(plan, options)
        if time.monotonic() - logged > _LOG_SECONDS:
            log(f"Waiting for {name}: {len(missing):,} of {len(paths):,} files are missing")
            logged = time.monotonic()
        time.sleep(_POLL_SECONDS)
