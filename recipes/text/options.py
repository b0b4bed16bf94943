"""Options of recipes that learn from a text, and defaults that follow from them."""

import dataclasses
import math
import os

from ..common import files
from ..common.options import OptionError, Options, ScheduleOptions, changed, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Options):
    """Tokenizer."""

    tokenizer: str = option(
        "characters", "a prepared corpus has its own", choices=("characters", "bpe", "unigram")
    )
    vocabulary_size: int | None = option(
        None, "largest number of tokens (default: all characters; 4000 subwords)", at_least=1
    )
    prepare: bool = option(
        False, "only tokenise the data, for training in several processes", identity=False
    )

    def check(self):
        super().check()
        if self.prepare and self.dry_run:
            raise OptionError("--dry-run and --prepare exclude each other.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(TokenizerOptions, ScheduleOptions):
    """Text and training budget."""

    data_dir: str | None = option(
        None,
        "directory with a prepared corpus, or with train, valid and test: each a file .txt or "
        ".jsonl [.gz|.zst], or a folder of such files",
        identity=False,
    )
    text: str | None = option(None, "one file, of which the last tenth is held out", identity=False)
    context: int | None = option(128, "tokens of a segment", at_least=1)
    batch_size: int = option(16, "segments of a step", at_least=1)
    train_tokens: int = option(4_000_000, "tokens to train on", identity=False, at_least=1)
    steps: int | None = changed(ScheduleOptions, "steps", None, "in place of --train-tokens")
    valid_tokens: int = option(100_000, "tokens of a validation", identity=False, at_least=1)

    def resolve(self):
        options = super().resolve()
        steps = options.steps or math.ceil(
            options.train_tokens / options.batch_size / options.context
        )
        options = options.divide(steps)
        subwords = None if options.tokenizer == "characters" else 4000
        return options.fill(warmup_steps=options.steps // 20, vocabulary_size=subwords)

    def check_files(self):
        if not self.data_dir and not self.text:
            return
        from .text_files import find_text  # not for --help, which answers at once

        if self.text:
            next(files.blocks(self.text))
        elif not os.path.isfile(os.path.join(self.data_dir, "manifest.json")):
            for split in files.SPLITS:
                find_text(self.data_dir, split)

    def check(self):
        super().check()
        if self.data_dir and self.text:
            raise OptionError("--data-dir and --text exclude each other.")
