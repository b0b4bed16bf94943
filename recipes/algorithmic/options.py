"""Options of the recipe."""

import dataclasses

from ..options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option

SEQUENCES = ("copy", "reverse", "addition")
MODELS = {
    **dict.fromkeys(SEQUENCES, ("universal_transformer", "transformer")),
    "parity": ("act_rnn", "rnn"),
}
# Length of the shortest example.
_SHORTEST = {"addition": 3}
_SEQUENCE_DEFAULTS = {
    "train_length": 10,
    "num_layers": 4,
    "batch_size": 64,
    "steps": 10_000,
    "ponder_loss": 0.01,
}
_PARITY_DEFAULTS = {
    "train_length": 16,
    "num_layers": 20,
    "batch_size": 128,
    "steps": 20_000,
    "ponder_loss": 0.001,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(SizeOptions, ScheduleOptions, RunOptions):
    """Options of `recipes.algorithmic`."""

    DESCRIPTION = (
        "Trains a model to copy, to reverse or to add sequences of digits, or to compute the "
        "parity of some numbers; tests it on examples never trained on, also longer ones; exports "
        "it and writes a result card. The same command with the same --out resumes a run."
    )

    out: str = changed(RunOptions, "out", "runs/algorithmic")
    task: str = option("copy", choices=tuple(MODELS))
    model: str | None = option(
        None,
        "universal_transformer (default) or transformer; of parity act_rnn (default) or rnn",
        choices=tuple(sorted({name for names in MODELS.values() for name in names})),
    )
    depth: str | None = option(
        None, "of universal_transformer (default: act)", choices=("act", "recurrent")
    )
    train_length: int | None = option(
        None, "the longest in training (default: 10; of parity 16)", at_least=1
    )
    test_lengths: tuple[int, ...] | None = option(
        None, "besides all trained ones (default: 1.5 and 2 times the longest; of parity none)"
    )
    max_offset: int | None = option(
        None,
        "most padding before a training example (default: as much as the longest test is longer)",
        at_least=0,
    )
    num_layers: int | None = changed(
        SizeOptions, "num_layers", None, "layers, or most steps (default: 4; of parity 20)"
    )
    num_heads: int = changed(SizeOptions, "num_heads", 4)
    hidden_dim: int = changed(SizeOptions, "hidden_dim", 64)
    intermediate_dim: int | None = changed(
        SizeOptions, "intermediate_dim", None, "default: 4 times the hidden"
    )
    dropout: float = option(0.0, at_least=0)
    residual: str = option("post_norm", choices=("post_norm", "pre_norm"))
    ponder_loss: float | None = option(
        None, "weight of ACT's ponder loss (default: 0.01; of parity 0.001)", at_least=0
    )
    halting_bias: float = option(1.0, "ACT's initial halting bias")
    batch_size: int | None = option(
        None, "examples of a step (default: 64; of parity 128)", at_least=1
    )
    steps: int | None = changed(
        ScheduleOptions, "steps", None, "training steps (default: 10000; of parity 20000)"
    )
    test_examples: int = option(
        500,
        "of each length, fewer where fewer are held out",
        identity=False,
        at_least=1,
    )

    def resolve(self):
        is_parity = self.task == "parity"
        self._check_model()
        options = (
            super()
            .resolve()
            .fill(
                **(_PARITY_DEFAULTS if is_parity else _SEQUENCE_DEFAULTS),
                model=MODELS[self.task][0],
                intermediate_dim=4 * self.hidden_dim,
            )
        )
        if options.model == "universal_transformer":
            options = options.fill(depth="act")
        length = options.train_length
        longer = () if is_parity else (length * 3 // 2, length * 2)
        options = options.fill(test_lengths=longer).divide(options.steps)
        return options.fill(
            max_offset=max([0, *(n - length for n in options.test_lengths)]),
            warmup_steps=options.steps // 20,
        )

    def check(self):
        if self.task != "parity":  # whose networks have no heads
            super().check()
        shortest = _SHORTEST.get(self.task, 1)
        lengths = [("--test-lengths", length) for length in self.test_lengths]
        for name, value in (("--train-length", self.train_length), *lengths):
            if value < shortest:
                raise OptionError(
                    f"{name} must be at least {shortest} for {self.task}. Received: {name} {value}."
                )

    def _check_model(self):
        """Refuse options that are for other models, as they are given."""
        fitting = MODELS[self.task]
        if self.model not in (None, *fitting):
            raise OptionError(
                f"--model must be one of {', '.join(fitting)} for {self.task}. "
                f"Received: --model {self.model}."
            )
        if self.task == "parity" and (self.test_lengths or self.max_offset):
            raise OptionError(
                "--test-lengths and --max-offset are not for parity, whose inputs have one width."
            )
        if self.depth and (self.model or fitting[0]) != "universal_transformer":
            raise OptionError("--depth is for universal_transformer.")
