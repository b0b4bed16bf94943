"""Comparison of a directory's outputs in CTranslate2 with those of the model."""

import keras
import numpy as np
from keras import ops

from keras_attn.export._ctranslate2.specification import stacks_of
from keras_attn.export._ctranslate2.tokens import NUM_SPECIAL
from keras_attn.export.golden_outputs import outputs_match
from keras_attn.models import Classifier

# Of log-probabilities or features, relative to the greatest magnitude.
TOLERANCE = 1e-4


def check_outputs(library, model, directory, tokens, max_length):
    """Raise if CTranslate2 gives sequences of 3 and 5 tokens other outputs than the model does.

    The outputs are the log-probabilities of their tokens, or the features of an encoder.
    """
    generator, lengths = np.random.default_rng(0), [min(n, max_length - 1) for n in (3, 5)]
    size = min(len(tokens.names), len(tokens.source_names))
    ids = [i for i in range(min(NUM_SPECIAL, size - 1), size) if i != model.pad_id]
    rows = [generator.choice(ids, size=n).tolist() for n in lengths]
    named = [[tokens.names[i] for i in row] for row in rows]
    try:
        if "decoder" in stacks_of(model):
            pairs = _log_probabilities(library, model, directory, tokens, rows, named)
        else:
            pairs = _features(library, model, directory, rows, named)
    except RuntimeError as error:
        raise ValueError(f"CTranslate2 cannot run the model. Received: {error}") from error
    for name, expected, found in pairs:
        if not outputs_match(expected, found, TOLERANCE):
            raise ValueError(
                f"The {name} in CTranslate2 differ from the model's, so no directory was written."
            )


def _log_probabilities(library, model, directory, tokens, rows, named):
    """Return for each row its name and the log-probabilities of the model and of CTranslate2."""
    if model.reads_prompt:
        scored = library.Generator(directory).score_batch(named)
    else:
        sources = [[tokens.source_names[i] for i in row] for row in rows]
        scored = library.Translator(directory).score_batch(sources, named)
    return [
        ("log-probabilities", _scores(model, row, tokens), np.array(result.log_probs, "float32"))
        for row, result in zip(rows, scored, strict=True)
    ]


def _scores(model, row, tokens):
    """Return the log-probability of each token of a row, of a causal model of each but the first.

    The row is the source and the target.
    """
    if model.reads_prompt:
        logits, targets = model({"token_ids": np.array([row[:-1]])}), row[1:]
    else:
        source, target = np.array([[*row, tokens.eos_id]]), np.array([[tokens.bos_id, *row]])
        logits, targets = model({"source_ids": source, "target_ids": target}), [*row, tokens.eos_id]
    logs = ops.convert_to_numpy(ops.log_softmax(logits[0], axis=-1))
    return logs[np.arange(len(targets)), targets]


def _features(library, model, directory, rows, named):
    """Return the name of each output with those of the model and of CTranslate2.

    Segments alternate if the model reads them.
    """
    longest = max(map(len, rows))
    ids = np.array([row + [model.pad_id or 0] * (longest - len(row)) for row in rows])
    mask = np.arange(longest) < np.array([[len(row)] for row in rows])
    inputs, segments = {"token_ids": ids}, None
    if "segment_ids" in model.input:
        inputs["segment_ids"] = np.arange(ids.size).reshape(ids.shape) % model.segment.num_segments
        both = zip(inputs["segment_ids"].tolist(), rows, strict=True)
        segments = [row[: len(ids)] for row, ids in both]
    output = library.Encoder(directory).forward_batch(named, token_type_ids=segments)
    states = model.encoder.output
    if isinstance(model, Classifier):  # whose encoder may be that of another model, too
        states = keras.tree.flatten(model.get_layer("pool").input)[0]  # without its mask
    hidden = ops.convert_to_numpy(keras.Model(model.input, states)(inputs))
    found = [("hidden states", hidden[mask], output.last_hidden_state, mask)]
    if getattr(model, "pooler", None) is not None:
        pooled = ops.convert_to_numpy(model(inputs))
        found.append(("pooled features", pooled, output.pooler_output, slice(None)))
    return [(name, x, np.array(y)[where]) for name, x, y, where in found]
