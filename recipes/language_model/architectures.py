"""Models by name, with the arguments of their papers beside the sizes."""

from keras_attn import models
from keras_attn.memory import CompressiveMemory

from ..common.model_arguments import build_model, grid
from .options import FULL_ATTENTION


def build(options, vocabulary_size):
    """Build the model `options.model`.

    Raises:
        ValueError: if `--with` does not fit the model.
    """
    arguments = {
        "vocabulary_size": vocabulary_size,
        **options.sizes(),
        "dropout": options.dropout,
        **_OWN[options.model](options),
        **(FULL_ATTENTION[options.model] if options.full_attention else {}),
    }
    model = build_model(getattr(models, options.model), arguments, options.more)
    if options.full_attention and options.model == "adaptive_span_transformer":
        for pattern in _span_patterns(model):
            pattern.span.assign([1.0] * options.num_heads)
            pattern.span.trainable = False
    return model


def span_summaries(model, ids, context):
    """Return the `span_summary` of each layer of an `adaptive_span_transformer`.

    A dynamic span is a function of the query: it is measured where the model reads the ids (n,), in
    segments of `context` tokens.
    """
    patterns = _span_patterns(model)
    if not patterns[0].dynamic:
        return [pattern.span_summary() for pattern in patterns]
    state = model.initial_memory(1)
    for start in range(0, min(len(ids), patterns[0].max_span), context):
        outputs = model({"token_ids": ids[start : start + context][None], **state})
        state = {name: outputs[name] for name in state}
    # The memory holds the inputs of each block, from which it makes its queries.
    inputs = state["memory"][:, :, -int(state["memory_length"][0]) :]
    return [pattern.span_summary(inputs[:, layer]) for layer, pattern in enumerate(patterns)]


def _span_patterns(model):
    return [block.attention.pattern for block in model.depth.blocks]


def with_memory(model, memory_length):
    """Return a model of the same weights with a memory of another length."""
    parts = {name: getattr(model, name) for name in model.parts}
    config = {**model.memory.get_config(), "memory_length": memory_length}
    other = models.CausalLanguageModel(**{**parts, "memory": model.memory.from_config(config)})
    if isinstance(other.memory, CompressiveMemory):  # all other layers are shared
        other.memory.set_weights(model.memory.get_weights())
    return other


def factor_pair(context):
    """Return the two factors of a length that are nearest its square root, the greater one first.

    Raises:
        ValueError: if the length is a prime or 1.
    """
    row, num_rows = grid(context)
    if row == 1:
        rule = "--context must not be a prime or 1 for a model that reads rows"
        raise ValueError(f"{rule}. Received: --context {context}.")
    return num_rows, row


def _sparse(options):
    num_rows, row = factor_pair(options.context)
    # A quarter of a row, as the paper's 32 of 128 on enwik8.
    return {"image_shape": (num_rows, row, 1), "summary": max(1, row // 4)}


def _windowed(options):
    # Two blocks read the whole context.
    return {"window": options.context // 2 + 1}


def _gpt_oss(options):
    # An eighth of the experts works for a token, as in the paper, but at least two.
    experts = {"num_experts": 8, "top_k": 2}
    return {**_windowed(options), **experts, "key_dim": options.hidden_dim // options.num_heads}


_OWN = {
    "gpt": lambda options: {"max_length": options.context},
    "deep_char_transformer": lambda options: {"max_length": options.context},
    "transformer_xl": lambda options: {"memory_length": options.memory},
    "compressive_transformer": lambda options: {"memory_length": options.memory},
    "adaptive_span_transformer": lambda options: {"max_span": options.memory},
    "reformer": lambda options: {"axial_shape": factor_pair(options.context)},
    "sparse_transformer": _sparse,
    "llama": lambda options: {},
    "mistral": _windowed,
    "mixtral": lambda options: {},
    "gpt_oss": _gpt_oss,
    "gemma": _windowed,
}
