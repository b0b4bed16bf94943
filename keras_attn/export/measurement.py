"""Measurement of the forms of an export, side by side on the user's own lines."""

import contextlib
import dataclasses
import os
import pathlib
import statistics

from keras_attn.callbacks import corpus_bleu
from keras_attn.export.decoding_record import Decoding
from keras_attn.export.measured_process import ExportProcess, decoding_of, form_of
from keras_attn.ops.checks import check_numbers, check_paths, check_sizes, check_that
from keras_attn.text.tokenizers.tokenizer import check_strings

_NOT_RECORDED = "not recorded"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """An export as it answered on this machine.

    Attributes:
        path: str. The export.
        form: str. "SavedModel", "compiled SavedModel", "ONNX", "LiteRT" or "CTranslate2", with the
            precision where the engine or the file tells it.
        threads: int. Number of threads of its engine.
        file_bytes: int. Size of all its files.
        seconds_to_open: float. Time until the first line was answered.
        seconds: dict of a batch size and the seconds for a line, a median of all turns.
        answers: list of str. The answers in requests of the last of the batch sizes.
        same: int. Number of lines that it answers as the first export that answered.
        bleu: float or None. BLEU of the answers, where there are references.
        failure: str or None. The reason why it did not answer.
        decoding: str. The way it chooses tokens, "greedy" or "4 beams"; "not recorded" for a
            SavedModel that an earlier version wrote.
    """

    path: str
    form: str
    threads: int
    file_bytes: int
    seconds_to_open: float = float("nan")
    seconds: dict = dataclasses.field(default_factory=dict)
    answers: list = dataclasses.field(default_factory=list)
    same: int = 0
    bleu: float | None = None
    failure: str | None = None
    decoding: str = _NOT_RECORDED

    @property
    def quality(self):
        """BLEU, or without references the share of equal answers in percent."""
        return 100 * self.same / len(self.answers) if self.bleu is None else self.bleu


def measure(
    exports,
    lines,
    *,
    references=None,
    tokenizer=None,
    batch_sizes=(1, 32),
    threads=None,
    max_length=None,
    repetitions=5,
):
    """Time the forms of a model on this machine, on lines of one's own.

        seconds = median over turns of (time for all lines) / (number of lines)

    Each export is opened in a process of its own, once for each number of threads. In each turn
    every one answers all lines, so that a change of the machine's speed affects all alike. All are
    in memory at once.

    Only exports with the same search and number of beams are compared: the first export that holds
    its decoding, any but one for CTranslate2, says which, and one that holds others is not
    measured. Wrappers such as `NoRepeat` are listed, not compared; CTranslate2 runs without them.
    It decodes as the first one does, greedily or with as many beams and the same length penalty, by
    its own formula of the score, and with the precision of its files.

    Args:
        exports: list of paths: SavedModels that read text, ONNX files of `what="greedy"`, LiteRT
            files with the signature "generate", and directories for CTranslate2. Their answers are
            compared with the first one's.
        lines: list of str, such as a hundred real requests.
        references: list of str. A good answer to each line, for BLEU; needs sacrebleu.
        tokenizer: path of the tokenizer's file, for exports that read ids.
        batch_sizes: list of ints. Numbers of lines in a request; all lines at most.
        threads: list of ints, by default 1 and the number of cores.
        max_length: int. Longest answer in tokens of CTranslate2; the others have theirs. By default
            that of the first SavedModel, or 64.
        repetitions: int. Number of turns.

    Returns:
        A list of `Measurement`s.

    Raises:
        ValueError: if a path holds no export, a list is empty, or there is not one reference for
            each line.
        ImportError: if there are references and sacrebleu is not installed.

    Example:
        >>> import keras_attn, tempfile
        >>> tokenizer = keras_attn.text.Characters.train(["ab"])
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, 1, 2, 8, 16, max_length=8)
        >>> path = keras_attn.export.saved_model(
        ...     model, tempfile.mkdtemp(), tokenizer=tokenizer, max_length=4)
        >>> (measured,) = keras_attn.export.measure(
        ...     [path], ["ab", "b"], batch_sizes=[2], threads=[1], repetitions=2)
        >>> measured.form, measured.same, measured.seconds[2] > 0
        ('SavedModel', 2, True)

    Reference: [Post, 2018](https://arxiv.org/abs/1804.08771), section 3, for BLEU.
    """
    cores = os.cpu_count() or 1
    threads = sorted({1, cores}) if threads is None else threads
    lines, references = _checked_texts(lines, references)
    _check_lists(exports=exports, lines=lines, batch_sizes=batch_sizes, threads=threads)
    if tokenizer is not None:
        check_paths(tokenizer=tokenizer)
        tokenizer = os.path.abspath(os.fspath(tokenizer))
    check_sizes(repetitions=repetitions)
    if max_length is not None:
        check_sizes(max_length=max_length)
    batch_sizes = list(dict.fromkeys(min(size, len(lines)) for size in batch_sizes))
    forms = [form_of(os.path.abspath(path)) for path in exports]
    names = [os.fspath(path) for path in exports]
    decodings = [decoding_of(path, form) for path, form in forms]
    common = next(filter(None, decodings), Decoding())
    lengths = [decoding.max_length for decoding in decodings if decoding and decoding.max_length]
    max_length = max_length or next(iter(lengths), 64)
    with contextlib.ExitStack() as stack:
        runs = []
        for name, (path, form), decoding in zip(names, forms, decodings, strict=True):
            for count in threads:
                run = _Run(name, path, form, decoding, count)
                stack.callback(run.stop)
                run.open(lines, common, tokenizer, max_length)
                runs.append(run)
        for _ in range(repetitions):
            for run in runs:
                run.turn(lines, batch_sizes)
    first = next((run.answers for run in runs if run.failure is None), [])
    return [run.measurement(first, references) for run in runs]


def _check_lists(*, exports, **lists):
    """Refuse lists that are empty or hold something else: paths, texts and sizes."""
    check_that(not isinstance(exports, (str, os.PathLike)), "a list of paths", exports=exports)
    for name, values in {"exports": exports, **lists}.items():
        is_list = isinstance(values, (list, tuple)) and len(values) > 0
        check_that(is_list, "a list that is not empty", **{name: values})
    for name in ("batch_sizes", "threads"):
        for value in lists[name]:
            check_sizes(**{name: value})
    for path in exports:
        check_paths(exports=path)


def _checked_texts(lines, references):
    """Return both as lists; there is one reference for each line, or none at all."""
    lines = check_strings(lines=lines)
    check_that(all(isinstance(line, str) for line in lines), "a list of str", lines=lines)
    if references is not None:
        references = check_strings(references=references)
        number, wanted = len(references), len(lines)
        check_that(number == wanted, f"one for each of {wanted} lines", references=number)
        corpus_bleu(references, references)  # raises without sacrebleu
    return lines, references


class _Run:
    """An export with a number of threads, and the seconds of its turns."""

    def __init__(self, name, path, form, decoding, threads):
        self.name, self.path, self.form, self.decoding = name, path, form, decoding
        self.threads, self.process = threads, None
        self.failure, self.answers, self.turns, self.seconds_to_open = None, [], {}, 0.0

    def open(self, lines, common, tokenizer, max_length):
        """Open the export, and answer the first line, if it decodes as the `common` one."""
        with self._failure():
            if self.form == "CTranslate2":
                self.decoding = self._of_ctranslate2(common)
            if self.decoding is not None and not self.decoding.has_same_search(common):
                raise ValueError(
                    f"It decodes otherwise ({self.decoding}) than the first export that holds its "
                    f"decoding ({common}): export it alike."
                )
            search = common.beams, common.length_penalty
            options = self.path, self.form, self.threads, tokenizer, max_length, *search
            self.process = ExportProcess(*options)
            opened = self.process.read()
            if opened["precision"] is not None:
                self.form = f"{self.form} {opened['precision']}"
            _, seconds = self.process.ask(lines[:1])
            self.seconds_to_open = opened["seconds"] + seconds

    def turn(self, lines, batch_sizes):
        if self.failure is not None:
            return
        with self._failure():
            for size in batch_sizes:
                batches = [lines[i : i + size] for i in range(0, len(lines), size)]
                if size not in self.turns:  # the first calls trace and compile
                    for batch in batches:
                        self.process.ask(batch)
                pairs = [self.process.ask(batch) for batch in batches]
                self.answers = [answer for answers, _ in pairs for answer in answers]
                total = sum(seconds for _, seconds in pairs)
                self.turns.setdefault(size, []).append(total / len(lines))

    def measurement(self, first, references):
        own = pathlib.Path(self.path)
        files = [own] if own.is_file() else [x for x in own.rglob("*") if x.is_file()]
        known = {
            "path": self.name,
            "form": self.form,
            "threads": self.threads,
            "file_bytes": sum(file.stat().st_size for file in files),
            "decoding": _NOT_RECORDED if self.decoding is None else str(self.decoding),
        }
        if self.failure is not None:
            return Measurement(**known, failure=self.failure)
        return Measurement(
            **known,
            seconds_to_open=self.seconds_to_open,
            seconds={size: statistics.median(turns) for size, turns in self.turns.items()},
            answers=self.answers,
            same=sum(a == b for a, b in zip(self.answers, first, strict=True)),
            bleu=None if references is None else corpus_bleu(self.answers, references)[0],
        )

    def stop(self):
        if self.process is not None:
            self.process.stop()

    @staticmethod
    def _of_ctranslate2(common):
        """Return what CTranslate2 does where another export decodes so."""
        if common.search not in ("greedy", "beam"):
            return Decoding()
        return dataclasses.replace(common, wrappers=[])

    @contextlib.contextmanager
    def _failure(self):
        try:
            yield
        except ValueError as error:
            self.failure = str(error)


def choose(measurements, batch_size, loss=0.5):
    """Return the fastest of the exports whose answers are good enough, and the fastest of all.

    Args:
        measurements: list, as `measure` returns it, of which at least one has answered.
        batch_size: int. One of the measured.
        loss: float. The points of BLEU that an export may lose against the best, or, without
            references, the percentage of lines that it may answer otherwise than the first.
    """
    check_numbers(0, loss=loss)
    answered = [one for one in measurements if one.failure is None]
    best = max(one.quality for one in answered)
    good = [one for one in answered if one.quality >= best - loss]

    def speed(one):
        return one.seconds[batch_size]

    return min(good, key=speed), min(answered, key=speed)


def format_measurements(measurements, loss=0.5):
    """Return the lines that `keras-attn measure` prints."""
    answered = [one for one in measurements if one.failure is None]
    sizes = list(answered[0].seconds) if answered else []
    failures = dict.fromkeys(  # an export that fails alike with each number of threads fails once
        f"{one.path}, {one.form}, did not answer: {one.failure}"
        for one in measurements
        if one.failure is not None
    )
    table = _table(answered, sizes) if answered else []
    unknown = dict.fromkeys(one.path for one in answered if one.decoding == _NOT_RECORDED)
    remarks = [
        f"How {path} decodes is not recorded: export it again to compare it with other forms."
        for path in unknown
        if len({one.path for one in answered}) > 1
    ]
    return [*table, *failures, *remarks, "", *(_advice(answered, size, loss) for size in sizes)]


def _table(answered, sizes):
    """Return the lines of a table of measurements, in columns."""
    has_bleu = answered[0].bleu is not None
    rows = [
        ["export", "form", "decoding", "threads", "MB", "s to open"]
        + [_size_name(size) + ", ms a line" for size in sizes]
        + ["same answers", *(["BLEU"] if has_bleu else [])]
    ]
    for one in answered:
        times = [f"{1e3 * one.seconds[size]:.2f}" for size in sizes]
        score = [f"{one.bleu:.2f}"] if has_bleu else []
        same = f"{one.same} of {len(one.answers)}"
        known = [one.path, one.form, one.decoding, str(one.threads), f"{one.file_bytes / 1e6:.1f}"]
        rows.append([*known, f"{one.seconds_to_open:.1f}", *times, same, *score])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(x.ljust(n) for x, n in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]


def _advice(answered, size, loss):
    good, fastest = choose(answered, size, loss)
    milliseconds = f"{1e3 * good.seconds[size]:.2f} ms for a line"
    text = f"Of {_size_name(size)} serve {_describe(good)}: {milliseconds}."
    if good is fastest:
        return text
    ratio = good.seconds[size] / fastest.seconds[size]
    lost = max(one.quality for one in answered) - fastest.quality
    unit = "% of the answers differ" if fastest.bleu is None else "points of BLEU are lost"
    return f"{text} {_describe(fastest)} is {ratio:.2f} times as fast, and {lost:.2g} {unit}."


def _size_name(size):
    return "one line" if size == 1 else f"{size} lines"


def _describe(one):
    plural = "" if one.threads == 1 else "s"
    return f"{one.path} ({one.form}) on {one.threads} thread{plural}"
