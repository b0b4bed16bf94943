"""Decoders without gates: GPT-NeoX, GPT-J, Falcon, StarCoder2, OPT and BLOOM."""

from . import Family
from .more_rotary import EVEN
from .rotary import OPTIONS, ROPE, padded, rope

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
HEADS = {name: OPTIONS[name] for name in ("pad_token_id", "num_labels", "problem_type")}
TIED, UNTIED = ({"tie_word_embeddings": values} for values in ((True, False), (False, True)))


def all_classes(name, *endings):
    """Return the classes of a family that has answers."""
    endings = ("ForCausalLM", "ForSequenceClassification", "ForQuestionAnswering", *endings)
    return tuple(f"{name}{ending}" for ending in endings)


FAMILIES = {
    "gpt_neox": Family(
        classes=all_classes("GPTNeoX", "ForTokenClassification"),
        excluded=padded("GPTNeoX"),
        sizes=EVEN,
        options={
            **HEADS,
            **UNTIED,
            "hidden_act": (*ACTIVATIONS, "gelu_fast"),
            "layer_norm_eps": (1e-5, 1e-2),
            "attention_bias": (True, False),
            "use_parallel_residual": (True, False),
            "rotary_pct": (0.25, 1.0, 0.5),
            "rope_parameters": (*ROPE[:2], None, rope("default", partial_rotary_factor=0.75)),
        },
    ),
}
