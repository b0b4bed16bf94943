"""Options of recipes that learn from a text, and what follows from them."""

import math


def add_text_options(add, tokenizer):
    """What to read, and as what."""
    add("--data-dir", help="directory with train.txt, valid.txt and test.txt, each [.gz]")
    add("--text", help="one file, of which the last tenth is held out")
    add(
        "--tokenizer",
        default=tokenizer,
        choices=["characters", "bpe", "unigram"],
        help="default: %(default)s",
    )
    add("--vocabulary-size", type=int, help="most tokens (default: all characters; 4000 subwords)")


def add_budget_options(add):
    """How much to train, and how fast."""
    add("--batch-size", type=int, default=16, help="segments of a step (default: %(default)s)")
    add("--train-tokens", type=int, default=4_000_000, help="to train on (default: %(default)s)")
    add("--steps", type=int, help="in place of --train-tokens")
    add(
        "--epochs",
        type=int,
        default=10,
        help="equal parts of the training, each ended by validation and a checkpoint "
        "(default: %(default)s)",
    )
    add("--learning-rate", type=float, default=0.001, help="the peak (default: %(default)s)")
    add("--warmup-steps", type=int, help="up to the peak (default: a twentieth of all steps)")
    add("--clip-norm", type=float, default=1.0, help="of the whole gradient (default: %(default)s)")
    add("--valid-tokens", type=int, default=100_000, help="of a validation (default: %(default)s)")


def check_text_options(parser, options):
    if options.data_dir and options.text:
        parser.error("--data-dir and --text exclude each other")


def fill_budget(options):
    """Defaults of the above that depend on each other and on `context`."""
    steps = options.steps or math.ceil(options.train_tokens / options.batch_size / options.context)
    # Whole steps in whole epochs.
    options.epochs = min(options.epochs, steps)
    options.steps = math.ceil(steps / options.epochs) * options.epochs
    if options.warmup_steps is None:
        options.warmup_steps = options.steps // 20
    if options.vocabulary_size is None and options.tokenizer != "characters":
        options.vocabulary_size = 4000
