"""Options that recipes share, and what is checked of all."""


def add_run_options(add):
    """Adds, by a parser's `add_argument`, what every run has."""
    add("--checkpoint-steps", type=int, help="checkpoints also every so many steps")
    add("--export-version", type=int, help="by default one more than the highest there is")
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16", "mixed_float16"])
    add("--strategy", default="none", choices=["none", "mirrored"])
    add("--seed", type=int, default=0)


def check_at_least(parser, options, least, *names):
    """Ends the program where one of the options is given and too small."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")


def check_learning_rate(parser, options):
    if not options.learning_rate > 0:
        parser.error("--learning-rate must be above 0")
