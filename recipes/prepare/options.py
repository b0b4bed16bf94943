"""Options of the recipe."""

import dataclasses
import os

from ..common.machine import cores
from ..common.options import CommandOptions, OptionError, option

DOCUMENTS = ("file", "blank_lines", "lines")  # what a `.txt` holds
KINDS = ("characters", "bpe", "unigram")
ENGINES = ("cores", "beam")
SUBWORDS = 32_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(CommandOptions):
    """Options of `recipes.prepare`."""

    DESCRIPTION = (
        "Prepares a corpus for training: cleans its documents, drops repeats, divides them into "
        "train, valid and test, tokenizes them and writes files that `keras_attn.text.TokenFiles` "
        "reads. The same command with the same --out resumes a preparation. With --engine beam, "
        "options that are not listed here are those of Apache Beam, such as --runner."
    )

    data_dir: str = option(
        None, "folder with files .txt, .jsonl, .gz or .zst, or one file", identity=False
    )
    out: str = option("runs/corpus", "folder of the prepared corpus", identity=False)
    documents: str = option(
        "file", "a document of a .txt: the file, a paragraph or a line", choices=DOCUMENTS
    )
    field: str = option("text", "of the objects of a .jsonl, which holds the document")
    target_field: str | None = option(
        None,
        "of the same objects, which holds the translation: the corpus then has pairs, for "
        "`keras-attn translate` (default: none)",
    )
    source: str | None = option(
        None,
        "language of parallel text: lines of NAME.SOURCE and NAME.TARGET are pairs, for "
        "`keras-attn translate` (default: none)",
    )
    target: str | None = option(None, "language of the translations (default: none)")
    valid: float = option(0.05, "share of the documents for validation", at_least=0, at_most=1)
    test: float = option(0.05, "share of the documents for the test", at_least=0, at_most=1)
    tokenizer: str = option("unigram", "to train", choices=KINDS)
    vocabulary_size: int | None = option(
        None, f"of the tokenizer (default: all characters; {SUBWORDS} subwords)", at_least=5
    )
    tokenizer_file: str | None = option(
        None, "one that exists, in place of --tokenizer", identity=False
    )
    sample: float = option(
        10.0, "MB to train the tokenizer on, counted in bytes of the files", above=0
    )
    part: float = option(
        64.0, "MB of files that are prepared together, and of a large file's parts", above=0
    )
    strict: bool = option(False, "end at the first problem in the texts")
    processes: int | None = option(
        None, "processes of this machine (default: its cores)", identity=False, at_least=1
    )
    worker: int = option(0, "number of this one of several machines", identity=False, at_least=0)
    workers: int = option(1, "machines that share the work", identity=False, at_least=1)
    engine: str = option(
        "cores",
        "the cores of this machine, or a pipeline of Apache Beam",
        identity=False,
        choices=ENGINES,
    )
    beam: tuple[str, ...] = ()

    @property
    def fields(self):
        """Names of the fields of a document's sides."""
        return (self.field,) if self.target_field is None else (self.field, self.target_field)

    @property
    def has_pairs(self):
        return self.source is not None or self.target_field is not None

    @classmethod
    def take_others(cls, parser, values, others):
        if values.get("engine") != "beam":
            super().take_others(parser, values, others)
        values["beam"] = tuple(others)

    def resolve(self):
        subwords = None if self.tokenizer == "characters" else SUBWORDS
        return super().resolve().fill(vocabulary_size=subwords, processes=cores())

    def check(self):
        super().check()
        if self.data_dir is None:
            raise OptionError("--data-dir is missing.")
        self._check_languages()
        if self.valid + self.test >= 1:
            raise OptionError(
                "--valid and --test must leave a share for training. "
                f"Received: --valid {self.valid} --test {self.test}."
            )
        if self.worker >= self.workers:
            raise OptionError(
                f"--worker must be below --workers {self.workers}. "
                f"Received: --worker {self.worker}."
            )
        if self.engine == "beam" and self.workers > 1:
            raise OptionError("--engine beam and --workers exclude each other.")
        data, out = (os.path.realpath(path) for path in (self.data_dir, self.out))
        if f"{out}/".startswith(f"{data}/"):
            raise OptionError("--out must not be within --data-dir, whose files are the corpus.")

    def _check_languages(self):
        flags = {"--source": self.source, "--target": self.target}
        flags = {name: language for name, language in flags.items() if language is not None}
        if not flags:
            return
        if len(set(flags.values())) == 1 or "" in flags.values():
            raise OptionError(
                "--source and --target are two languages, and belong together. "
                f"Received: {' '.join(f'{name} {language!r}' for name, language in flags.items())}."
            )
        others = {"--documents": "documents", "--field": "field", "--target-field": "target_field"}
        for name, attribute in others.items():
            if getattr(self, attribute) != getattr(type(self), attribute):
                raise OptionError(f"--source and {name} exclude each other.")
