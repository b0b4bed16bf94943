"""Options of the recipe."""

import dataclasses
import math

from ..common.model_arguments import ModelArguments
from ..common.options import OptionError, RunOptions, SizeOptions, option
from ..text.options import TextOptions

WITH_MEMORY = ("transformer_xl", "compressive_transformer", "adaptive_span_transformer")
# Arguments with which every query attends to all keys before it.
FULL_ATTENTION = {
    "adaptive_span_transformer": {"span_loss": 0.0, "dynamic": False},
    "reformer": {"attention": ("full",)},
    "sparse_transformer": {"factors": "full"},
}
SPARSE = tuple(FULL_ATTENTION)
RECENT = ("llama", "mistral", "mixtral", "gpt_oss", "gemma")
MODELS = ("gpt", "deep_char_transformer", *WITH_MEMORY[:2], *SPARSE, *RECENT)
# Arguments of a preset that --context and --memory decide, and those that follow from them.
_LENGTHS = ("vocabulary_size", "max_length", "memory_length", "max_span")
_SHAPES = ("axial_shape", "image_shape")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    TextOptions,
    ModelArguments,
    SizeOptions,
    RunOptions,
    out="runs/language_model",
    num_layers={"": 6},
    num_heads={"": 4},
    hidden_dim={"": 256},
    intermediate_dim={"": 1024},
    context={"": 128},
):
    """Options of `recipes.language_model`."""

    DESCRIPTION = (
        "Trains a language model, evaluates it on held-out text in bits per character, exports it "
        "and writes a result card. Without --data-dir and --text the text is the source of "
        "Python's standard library. The same command with the same --out resumes a run."
    )

    model: str | None = option({"": "gpt"}, choices=MODELS)
    dropout: float | None = option({"": 0.1}, at_least=0, below=1)
    memory: int | None = option(
        None,
        "tokens before the segment that each layer remembers, and the longest span of "
        "adaptive_span_transformer (default: the context, or the preset's)",
        at_least=0,
    )
    auxiliary_losses: bool = option(
        True, "deep_char_transformer without them", flag="--no-auxiliary-losses"
    )
    full_attention: bool = option(
        False,
        "adaptive_span_transformer, reformer or sparse_transformer whose queries attend to all "
        "keys before them: the paper's baseline",
    )
    stride: int | None = option(
        None,
        "step from one window of the test to the next, for a model without a memory "
        "(default: half the context)",
        identity=False,
        at_least=1,
    )
    eval_memory: int | None = option(
        None, "memory of the test (default: that of training)", identity=False, at_least=0
    )
    max_length: int | None = option(
        None,
        "tokens that the sample and the export write (default: half the context)",
        identity=False,
        at_least=1,
    )
    temperature: float = option(0.8, "of generation", identity=False, above=0)

    def resolve(self):
        options = TextOptions.resolve(self._with_preset() if self.preset else self)
        half = max(1, options.context // 2)
        options = options.fill(memory=options.context, stride=half, max_length=half)
        return options.fill(eval_memory=options.memory)

    def check(self):
        super().check()
        if self.stride > self.context:
            raise OptionError(
                "--stride must be at most the context. "
                f"Received: --stride {self.stride} and --context {self.context}."
            )
        if self.max_length >= self.context and self.model not in WITH_MEMORY:
            raise OptionError(
                "--max-length must be less than the context, which also holds the prompt. "
                f"Received: --max-length {self.max_length} and --context {self.context}."
            )
        for name in ("memory", "eval_memory"):
            if self.model not in WITH_MEMORY and getattr(self, name) != self.context:
                raise OptionError(
                    f"--{name.replace('_', '-')} is for {', '.join(WITH_MEMORY)}. "
                    f"Received: --model {self.model}."
                )
        if self.full_attention and self.model not in SPARSE:
            raise OptionError(
                f"--full-attention is for {', '.join(SPARSE)}. Received: --model {self.model}."
            )
        decided = FULL_ATTENTION[self.model] if self.full_attention else ()
        for assignment in self.more:
            name = assignment.partition("=")[0]
            if name in decided:
                raise OptionError(
                    f"--full-attention sets `{name}` of {self.model}: leave out one of them. "
                    f"Received: --full-attention and --with {assignment}."
                )

    def _with_preset(self):
        """Return a copy with the preset's model, sizes and arguments where none are given."""
        build, preset = self.find_preset(lambda model, x: model in MODELS and "scaling" not in x)
        self.check_model_of(build)
        memory = preset.get("memory_length", preset.get("max_span"))
        sizes = {name: preset[name] for name in (*self.sizes(), "dropout") if name in preset}
        replaced = {*self.sizes(), "dropout", *_LENGTHS}
        if self.full_attention:
            replaced.update(FULL_ATTENTION.get(build, ()))
        context = self.context
        if context is None:
            shape = next((preset[name] for name in _SHAPES if name in preset), None)
            context = math.prod(shape) if shape else preset.get("max_length")
            context = context or min(memory or 512, 512)
        else:
            replaced.update(_SHAPES)
        others = [f"{name}={value!r}" for name, value in preset.items() if name not in replaced]
        options = dataclasses.replace(
            self, model=build, context=context, more=(*others, *self.more)
        )
        return options.fill(**sizes, memory=memory)
