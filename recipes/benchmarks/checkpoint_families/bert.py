"""BERT and the encoders that its code computes."""

from . import Family

LAYERS, HEADS = "num_hidden_layers", "num_attention_heads"
SIZES = (
    {
        **{"vocab_size": 61, "hidden_size": 12, "intermediate_size": 29, LAYERS: 1, HEADS: 2},
        "max_position_embeddings": 29,
    },
    {
        **{"vocab_size": 97, "hidden_size": 24, "intermediate_size": 24, LAYERS: 3, HEADS: 4},
        "max_position_embeddings": 40,
    },
    {
        **{"vocab_size": 131, "hidden_size": 48, "intermediate_size": 89, LAYERS: 4, HEADS: 6},
        "max_position_embeddings": 64,
    },
)
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "tanh")
OPTIONS = {
    "hidden_act": ACTIVATIONS,
    "layer_norm_eps": (1e-12, 1e-2),
    "type_vocab_size": (2, 1, 3),
    "num_labels": (2, 1, 5),
    "pad_token_id": (0, 3),
    "hidden_dropout_prob": (0.1, 0.0),
    "classifier_dropout": (None, 0.2),
    "tie_word_embeddings": (True, False),
    "problem_type": (None, "multi_label_classification", "regression"),
}
DECODER = ("is_decoder", {"is_decoder": True})


def classes(name, *endings):
    return tuple(f"{name}{ending}" for ending in endings)


HEADS_OF_ALL = ("ForMaskedLM", "Model", "ForSequenceClassification")
HEADS_OF_ALL += ("ForTokenClassification", "ForQuestionAnswering")


def answers(name):
    """Return the numbers of labels that a class of answers has no place for."""
    return tuple({"class": f"{name}ForQuestionAnswering", "num_labels": n} for n in (1, 5))


BIG_BIRD_ANSWERS = "answers", {"class": "BigBirdForQuestionAnswering"}
ROBERTA = {**OPTIONS, "pad_token_id": (1, 3, 0)}
FAMILIES = {
    "bert": Family(
        excluded=answers("Bert"),
        classes=classes("Bert", *HEADS_OF_ALL, "ForPreTraining"),
        sizes=SIZES,
        options=OPTIONS,
        refused=(DECODER, ("hidden_act", {"hidden_act": "gelu_10"})),
    ),
    "big_bird": Family(
        classes=classes("BigBird", *HEADS_OF_ALL[:-1], "ForPreTraining"),
        sizes=SIZES,
        options={
            **OPTIONS,
            "rescale_embeddings": (False, True),
            "attention_type": ("original_full", "block_sparse"),
            "block_size": (64, 16),
        },
        refused=(DECODER, ("use_bias", {"use_bias": False}), BIG_BIRD_ANSWERS),
    ),
    "distilbert": Family(
        excluded=answers("DistilBert"),
        classes=classes("DistilBert", *HEADS_OF_ALL),
        sizes=tuple(
            {
                **{"vocab_size": size["vocab_size"], "dim": size["hidden_size"]},
                **{"hidden_dim": size["intermediate_size"], "n_layers": size[LAYERS]},
                "n_heads": size[HEADS],
                "max_position_embeddings": size["max_position_embeddings"],
            }
            for size in SIZES
        ),
        options={
            "activation": ("gelu", "relu"),
            "sinusoidal_pos_embds": (False, True),
            "num_labels": (2, 1, 5),
            "problem_type": OPTIONS["problem_type"],
            "pad_token_id": (0, 3),
            "dropout": (0.1, 0.0),
        },
    ),
    "longformer": Family(
        # Answers ask for separators, which make tokens global.
        classes=classes("Longformer", *HEADS_OF_ALL[:-1]),
        sizes=SIZES,
        options={
            **{name: values for name, values in ROBERTA.items() if name != "hidden_act"},
            "attention_window": (
                lambda size: [4] * size[LAYERS],
                lambda size: [8, 4, 8, 4][: size[LAYERS]],
                6,
            ),
        },
        refused=(("hidden_act", {"hidden_act": "relu"}),),
    ),
    "roberta": Family(
        excluded=answers("Roberta"),
        classes=classes("Roberta", *HEADS_OF_ALL),
        sizes=SIZES,
        options=ROBERTA,
        refused=(DECODER,),
    ),
}
