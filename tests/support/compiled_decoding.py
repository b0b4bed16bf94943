"""Decoding that is compiled once, on any backend: counted traces, and results of constants."""

import keras
import numpy as np
from beam_rules import table_of
from keras import ops

from keras_attn import models
from keras_attn.generation import (
    Beam,
    Constrained,
    Forbidden,
    Forced,
    Greedy,
    NoRepeat,
    Sample,
    Speculative,
    compilation,
    generate,
)
from keras_attn.generation.loop import DecodingOptions, decode

V = 7
PROMPTS = np.array([[3, 5, 6], [1, 4, 6]], "int32")
# Any token but 0 may follow the tokens 1, 2, 3; after others only those three may.
TABLE = np.array([[-1, 0, 0, 0, 1, 1, 1], [-1, 0, 0, 0, -1, -1, -1]])


class Table:
    """A model whose next token depends on the last one only. It counts how often it is traced."""

    max_length, max_source_length, pad_id, supports_padding = None, None, 0, True

    def __init__(self, seed, reads_prompt=True):
        self.table = keras.Variable(table_of(seed, V))
        self.weights = [self.table]
        self.reads_prompt, self.traces = reads_prompt, 0

    def start(self, inputs, max_length, padding_mask):
        self.traces += 1
        return {}, ops.zeros((1, 1, 1))

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        if last is not None:
            token_ids = ops.take_along_axis(token_ids, last, axis=1)
        return ops.take(self.table, token_ids, axis=0), cache


class Mean(Table):
    """A model that reads the mean of all ids of a row, of padding too."""

    supports_padding = False

    def start(self, inputs, max_length, padding_mask):
        _, cache = super().start(inputs, max_length, padding_mask)
        mean = ops.mean(ops.cast(inputs, "float32"), axis=1, keepdims=True)
        return {"logits": -ops.abs(ops.arange(V, dtype="float32") - mean)}, cache

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        return ops.expand_dims(constants["logits"], 1), cache


DRAFT = Table(4)


def sample(number, seed=None):
    """Return a `Sample` with all options, whose numbers follow from one."""
    return Sample(
        temperature=0.5 + number,
        top_k=6,
        top_p=0.9 - number / 9,
        seed=round(100 * number) if seed is None else seed,
        min_p=number / 99,
        typical_p=0.95 - number / 9,
        repetition_penalty=1.1 + number,
    )


# Strategies whose numbers follow from one.
STRATEGIES = {
    "sample": sample,
    "beam": lambda number: Beam(3, number),
    "beam_power": lambda number: Beam(2, number, "power", early_stopping="never"),
    "constrained": lambda number: Constrained(sample(number), TABLE),
    "forced": lambda number: Forced(NoRepeat(sample(number), 2), 4, 5, min_length=2),
    "speculative": lambda number: Forbidden(Speculative(DRAFT, 2, sample(number)), [4]),
    "no_repeat": lambda number: NoRepeat(Beam(2, number), 1, counts_bos=True),
}


def check_one_trace(name, checked):
    """Check that ten numbers are traced once, and that results are those of constants.

    The lengths, the first and the last token of the calls change too, and then the weights.
    """
    model, calls = Table(3, reads_prompt=name != "no_repeat"), []
    for n in range(10):
        strategy, max_length = STRATEGIES[name](0.1 * (n + 1)), 6 - n % 3
        call = PROMPTS[:, : 3 - n % 2], strategy, max_length, 1 + n % 3, (3 - n % 3,)
        calls.append((call, decode_compiled(model, *call)))
    assert model.traces == 1
    for call, results in calls[:checked]:
        check_equal(results, decode_by_constants(model, *call))
    model.table.assign(table_of(8))
    model.traces = 0
    results = decode_compiled(model, *call)
    assert model.traces == 0
    check_equal(results, decode_by_constants(model, *call))


def check_lengths(traces):
    """Check the number of traces for prompts and targets of many lengths."""
    model, prompt = Table(3), np.resize([5, 6, 4], (1, 20))
    for length in range(1, 21):
        decode_compiled(model, prompt[:, :length], Greedy(), 4)
        assert decode_compiled(model, prompt[:, :3], Greedy(), length)[0].shape == (1, length)
    assert model.traces == traces


def check_rows_are_not_padded(**how):
    """Check the ids of a model that does not read `padding_mask`: the mean of its prompts."""
    prompts = np.array([[5, 6, 4], [1, 3, 2]])
    ids, _ = generate(Mean(3), prompts, "greedy", 4, eos_id=-1, **how)
    assert ops.convert_to_numpy(ids).tolist() == [[5] * 4, [2] * 4]


def check_loaded_weights(path):
    """Check that a function compiled before `load_weights` reads the weights of the file."""
    model, other = (models.gpt(V, 1, 2, 6, 7, max_length=8) for _ in range(2))
    other.save_weights(path)
    _, before = decode_compiled(model, PROMPTS, Greedy(), 1)
    model.load_weights(path)
    _, loaded = decode_compiled(model, PROMPTS, Greedy(), 1)
    (_,) = compilation._functions_of[model].values()  # it was not compiled again
    logits = other({"token_ids": PROMPTS})[:, -1]
    expected = ops.convert_to_numpy(ops.max(ops.log_softmax(logits), axis=-1))
    np.testing.assert_allclose(loaded, expected, rtol=1e-5)
    assert (before != loaded).all()


def check_fresh_noise():
    """Check that calls without a seed give different text, by the same function as with a seed."""
    model, prompts = Table(3), np.repeat(PROMPTS, 9, axis=0)
    texts = [decode_compiled(model, prompts, Sample(seed=seed), 6)[0] for seed in (None, None, 3)]
    assert (texts[0] != texts[1]).any()
    return model.traces


def decode_compiled(model, prompts, strategy, max_length, bos_id=2, ends=(-1,)):
    """Return ids and scores as arrays."""
    results = generate(model, prompts, strategy, max_length, bos_id=bos_id, eos_id=[*ends])
    return [ops.convert_to_numpy(x) for x in results]


def decode_by_constants(model, prompts, strategy, *options):
    """Return ids and scores of a loop whose numbers are constants, as arrays."""

    def run(ids):
        return decode(model, strategy, DecodingOptions(*options, False, options[0]), ids)

    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(run)  # each operation alone would be compiled for minutes
    return [ops.convert_to_numpy(x) for x in run(ops.array(prompts))]


def check_equal(results, expected):
    np.testing.assert_array_equal(results[0], expected[0])
    np.testing.assert_allclose(results[1], expected[1], rtol=1e-5)
