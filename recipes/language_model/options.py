"""The command line of the recipe."""

import argparse
import math

from ..options import (
    add_page_option,
    add_run_options,
    add_size_options,
    check_at_least,
    check_learning_rate,
    set_missing,
)
from ..text.options import (
    add_budget_options,
    add_text_options,
    check_text_options,
    fill_budget,
)

WITH_MEMORY = ("transformer_xl", "adaptive_span_transformer")
SPARSE = ("adaptive_span_transformer", "reformer", "sparse_transformer")
MODELS = ("gpt", "deep_char_transformer", "transformer_xl", *SPARSE)
# Sizes without a preset.
SIZES = {
    "num_layers": 6,
    "num_heads": 4,
    "hidden_dim": 256,
    "intermediate_dim": 1024,
    "dropout": 0.1,
}
# What a preset says of lengths, which --context and --memory stand for.
_LENGTHS = ("vocabulary_size", "max_length", "memory_length", "max_span")
_SHAPES = ("axial_shape", "image_shape")


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m recipes.language_model",
        description="Trains a language model, evaluates it on held-out text in bits per "
        "character, exports it and writes a result card. Without --data-dir and --text the text "
        "is the source of Python's standard library. Started again with the same --out, a run "
        "goes on where it stopped.",
    )
    add = parser.add_argument
    add_text_options(add, tokenizer="characters")
    add("--out", default="runs/language_model", help="the run's directory (default: %(default)s)")
    add("--model", default="gpt", choices=MODELS)
    add("--preset", help="a paper's sizes, in place of --model and the following")
    add_size_options(add, SIZES)
    add("--context", type=int, help="tokens of a segment (default: 128, or the preset's)")
    add(
        "--memory",
        type=int,
        help="tokens before the segment that each layer remembers, and the longest span of "
        "adaptive_span_transformer (default: the context, or the preset's)",
    )
    add(
        "--no-auxiliary-losses",
        dest="auxiliary_losses",
        action="store_false",
        help="deep_char_transformer without them",
    )
    add(
        "--full-attention",
        action="store_true",
        help="adaptive_span_transformer, reformer or sparse_transformer whose queries meet all "
        "keys before them: what the paper compares with",
    )
    add_page_option(add, "span_loss=1e-5")
    add_budget_options(add)
    add(
        "--stride",
        type=int,
        help="by which the windows of the test move, for a model without a memory "
        "(default: half the context)",
    )
    add("--eval-memory", type=int, help="the memory of the test (default: that of the training)")
    add(
        "--max-length",
        type=int,
        help="tokens that the sample and the export write (default: half the context)",
    )
    add("--temperature", type=float, default=0.8, help="of the writing (default: %(default)s)")
    add_run_options(add)
    options = parser.parse_args(arguments)
    check_text_options(parser, options)
    if options.preset:
        _fill_from_preset(parser, options)
    set_missing(options, {**SIZES, "context": 128})
    check_at_least(
        *(parser, options, 1),
        *("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim"),
        *("context", "batch_size", "train_tokens", "steps", "epochs", "valid_tokens", "stride"),
        *("max_length", "checkpoint_steps", "export_version"),
    )
    check_at_least(parser, options, 0, "memory", "eval_memory", "warmup_steps", "dropout")
    check_learning_rate(parser, options)
    _fill(options)
    if not options.temperature > 0:
        parser.error("--temperature must be above 0")
    if options.stride > options.context:
        parser.error("--stride must be at most the context")
    if options.max_length >= options.context and options.model not in WITH_MEMORY:
        parser.error("--max-length must leave room for a prompt in the context")
    if options.full_attention and options.model not in SPARSE:
        parser.error(f"--full-attention is for {', '.join(SPARSE)}")
    if options.hidden_dim % options.num_heads:
        parser.error("--num-heads must divide --hidden-dim")
    return options


def _fill_from_preset(parser, options):
    """The model, its sizes and its other arguments, but for what the command line gives."""
    from keras_attn.models import PRESETS  # not for --help, which is to be quick

    known = [name for name, (page, _) in PRESETS.items() if page.__name__ in MODELS]
    if options.preset not in known:
        parser.error(f"--preset must be one of {', '.join(known)}")
    page, preset = PRESETS[options.preset]
    options.model = page.__name__
    shape = next((preset[name] for name in _SHAPES if name in preset), None)
    memory = preset.get("memory_length", preset.get("max_span"))
    left_out = {*SIZES, *_LENGTHS}
    if options.context is None:
        options.context = (
            math.prod(shape) if shape else preset.get("max_length") or min(memory, 512)
        )
    else:
        left_out.update(_SHAPES)
    for name, value in {**preset, "memory": memory}.items():
        if name in (*SIZES, "memory") and getattr(options, name) is None:
            setattr(options, name, value)
    others = [f"{name}={value!r}" for name, value in preset.items() if name not in left_out]
    options.more = others + options.more


def _fill(options):
    """Defaults that depend on other options."""
    fill_budget(options)
    half = max(1, options.context // 2)
    memory = options.context if options.memory is None else options.memory
    defaults = {
        "memory": memory,
        "eval_memory": memory,
        "stride": half,
        "max_length": half,
    }
    set_missing(options, defaults)
