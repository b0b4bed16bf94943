"""Options of the recipe."""

import dataclasses

from ..common.options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option

SEQUENCES = ("copy", "reverse", "addition")
MODELS = {
    **dict.fromkeys(SEQUENCES, ("universal_transformer", "transformer")),
    "parity": ("act_rnn", "rnn"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    SizeOptions, ScheduleOptions, RunOptions, out="runs/algorithmic", num_heads=4, hidden_dim=64
):
    """Options of `recipes.algorithmic`."""

    DESCRIPTION = (
        "Trains a model to copy, to reverse or to add sequences of digits, or to compute the "
        "parity of some numbers; tests it on examples never trained on, also longer ones; exports "
        "it and writes a result card. The same command with the same --out resumes a run."
    )

    task: str = option("copy", choices=tuple(MODELS))
    model: str | None = option(
        None,
        "universal_transformer (default) or transformer; of parity act_rnn (default) or rnn",
        choices=tuple(sorted({name for names in MODELS.values() for name in names})),
    )
    depth: str | None = option(
        None, "of universal_transformer (default: act)", choices=("act", "recurrent")
    )
    train_length: int | None = option({"": 10, "parity": 16}, "the longest in training", at_least=1)
    test_lengths: tuple[int, ...] | None = option(
        None, "besides all trained ones (default: 1.5 and 2 times the longest; of parity none)"
    )
    max_offset: int | None = option(
        None,
        "most padding before a training example (default: as much as the longest test is longer)",
        at_least=0,
    )
    curriculum: float = option(
        0.0,
        "share of the steps in which the longest length grows to --train-length",
        at_least=0,
        at_most=1,
        metavar="SHARE",
    )
    num_layers: int | None = changed(
        SizeOptions, "num_layers", {"": 4, "parity": 20}, "layers, or most steps"
    )
    intermediate_dim: int | None = changed(
        SizeOptions, "intermediate_dim", None, "default: 4 times the hidden"
    )
    dropout: float = option(0.0, at_least=0, below=1)
    residual: str = option("post_norm", choices=("post_norm", "pre_norm"))
    ponder_loss: float | None = option(
        {"": 0.01, "parity": 0.001}, "weight of ACT's ponder loss", at_least=0
    )
    halting_bias: float = option(1.0, "ACT's initial halting bias")
    batch_size: int | None = option({"": 64, "parity": 128}, "examples of a step", at_least=1)
    steps: int | None = changed(
        ScheduleOptions, "steps", {"": 10_000, "parity": 20_000}, "training steps"
    )
    test_examples: int = option(
        500, "drawn of each length; those drawn again are left out", identity=False, at_least=1
    )

    @property
    def case(self):
        return self.task

    def resolve(self):
        self._check_model()
        model, inner = MODELS[self.task][0], 4 * self.hidden_dim
        options = super().resolve().fill(model=model, intermediate_dim=inner)
        if options.model == "universal_transformer":
            options = options.fill(depth="act")
        length = options.train_length
        longer = () if self.task == "parity" else (length * 3 // 2, length * 2)
        options = options.fill(test_lengths=longer).divide(options.steps)
        return options.fill(
            max_offset=max([0, *(n - length for n in options.test_lengths)]),
            warmup_steps=options.steps // 20,
        )

    def check(self):
        if self.task == "parity":  # whose networks have no heads
            super(SizeOptions, self).check()
        else:
            super().check()
        shortest = 3 if self.task == "addition" else 1  # two digits and a plus
        lengths = [("--test-lengths", length) for length in self.test_lengths]
        for name, value in (("--train-length", self.train_length), *lengths):
            if value < shortest:
                wanted = f"at least {shortest} for {self.task}"
                raise OptionError(f"{name} must be {wanted}. Received: {name} {value}.")

    def _check_model(self):
        """Refuse options that are for other models, as they are given."""
        fitting = MODELS[self.task]
        if self.model not in (None, *fitting):
            wanted = f"one of {', '.join(fitting)} for {self.task}"
            raise OptionError(f"--model must be {wanted}. Received: --model {self.model}.")
        if self.task == "parity" and (self.test_lengths or self.max_offset):
            raise OptionError(
                "--test-lengths and --max-offset are not for parity, whose inputs have one width."
            )
        model = self.model or fitting[0]
        if self.depth and model != "universal_transformer":
            raise OptionError("--depth is for universal_transformer.")
        if self.task == "parity":
            transformer_options = "num_heads", "intermediate_dim", "dropout", "residual"
            self._check_default(transformer_options, "parity, whose networks are no transformers")
            # Of the two vectors of one number one may be held out.
            self._check_default(("curriculum",), "parity, whose shortest vectors are too few")
        if model in ("rnn", "transformer") or self.depth == "recurrent":
            self._check_default(("ponder_loss", "halting_bias"), "models without ACT")

    def _check_default(self, names, reason):
        """Refuse options of other values than their defaults."""
        for name in names:
            if getattr(self, name) != getattr(type(self), name):
                flag, value = f"--{name.replace('_', '-')}", getattr(self, name)
                raise OptionError(f"{flag} is not for {reason}. Received: {flag} {value}.")
