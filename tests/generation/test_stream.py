"""`stream`: the pieces of a text, joined, are what `complete` returns."""

import gc
import types
import weakref

import oracles
import pytest
from marks import slow_but
from other_backend import needs_jax, run_on
from scripted_model import SIZE, ScriptedModel
from small_tokenizers import HARD_TEXTS, MAKERS, tokenizer_of

from keras_attn import depth, layers, models, scores
from keras_attn.generation import (
    Beam,
    Constrained,
    Forced,
    Greedy,
    NoRepeat,
    Sample,
    Speculative,
    complete,
    stream,
)
from keras_attn.generation.compilation import CompiledTasks

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
PROMPTS = ["the cat", "", "a", "one line and"]
MAX_LENGTH = 9


def joined(pieces):
    """Return the pieces of each text as one, and the number of steps."""
    pieces = list(pieces)
    return ["".join(row) for row in zip(*pieces, strict=True)], len(pieces)


SCRIPTED = {reads_prompt: ScriptedModel(reads_prompt) for reads_prompt in (False, True)}


@pytest.mark.parametrize("reads_prompt", SCRIPTED)
@pytest.mark.parametrize("name", MAKERS)
def test_hard_texts_come_whole(name, reads_prompt):
    tokenizer, model = tokenizer_of(name), SCRIPTED[reads_prompt]
    model.write(tokenizer, HARD_TEXTS)
    arguments = model, tokenizer, ["the cat"] * len(HARD_TEXTS)
    texts, steps = joined(stream(*arguments, max_length=99))
    rows, (prompt,) = map(tokenizer.encode_as_lists, (HARD_TEXTS, ["the cat"]))
    prompt = prompt if reads_prompt else []
    before, *whole = tokenizer.decode_as_strings([prompt, *([*prompt, *row] for row in rows)])
    assert [before + text for text in texts] == whole
    assert steps == max(map(len, rows)) + 1  # it stops when all texts have ended
    assert complete(*arguments, max_length=99) == texts
    cut, steps = joined(stream(*arguments, max_length=11))
    assert (cut, steps) == (complete(*arguments, max_length=11), 11)


def test_pieces_come_as_soon_as_their_characters_are_known():
    tokenizer, model = tokenizer_of("byte-level bpe"), SCRIPTED[True]
    model.write(tokenizer, ["a cat é"])
    pieces = ["a", " cat", " ", "", "é", ""]
    assert list(stream(model, tokenizer, ["the"])) == [[piece] for piece in pieces]
    assert list(stream(model, tokenizer, "the")) == pieces
    assert list(stream(model, tokenizer, "the", max_length=4)) == [*pieces[:3], "\ufffd"]
    assert list(stream(model, tokenizer, "the", eos_id=[tokenizer.eos_id, 256])) == pieces
    assert list(stream(model, tokenizer, [])) == list(stream(model, tokenizer, "")) == []


STRATEGIES = {
    "greedy": Greedy(),
    "sample": Sample(temperature=1.4, seed=3),
    "penalties": NoRepeat(Sample(top_k=7, repetition_penalty=1.3, seed=2), 2),
    "forced": Forced("greedy", first_id=9, last_id=5, min_length=3),
    "table": Constrained("greedy", [[-1] * 5 + [1] + [-1] * (SIZE - 6), [0] * SIZE]),
}


@pytest.mark.parametrize("name", slow_but(["forced"], ["penalties", "forced", "table"]))
def test_wrappers_and_penalties_choose_as_in_complete(name):
    tokenizer, model = tokenizer_of("characters"), SCRIPTED[True]
    model.write(tokenizer, HARD_TEXTS[:2])
    arguments = model, tokenizer, ["a cat", "the"], STRATEGIES[name], MAX_LENGTH
    texts, _ = joined(stream(*arguments))
    assert texts == complete(*arguments) and all(texts)


def sums(size):
    attention = layers.MultiHeadAttention(2, 3, pattern="causal", score=scores.Kernel())
    block = layers.TransformerBlock(attention, layers.FeedForward(7))
    embedding = layers.TokenEmbedding(size, 6)
    return models.CausalLanguageModel(embedding, depth.Stack([block]), "sinusoidal")


MODELS = {
    "gpt": ("sample", lambda size: models.gpt(size, max_length=40, **SIZES)),
    "transformer": ("penalties", lambda size: models.transformer(size, **SIZES)),
    "transformer_xl": ("greedy", lambda size: models.transformer_xl(size, **SIZES)),
    "mistral": ("sample", lambda size: models.mistral(size, 1, 2, 8, 7, window=4)),
    "t5": ("greedy", lambda size: models.t5(size, 1, 2, 6, 7, key_dim=3)),
    "sums": ("sample", sums),
}


@pytest.mark.parametrize("name", slow_but(["gpt"], MODELS))
def test_pieces_are_those_of_complete(name):
    tokenizer, (strategy, build) = tokenizer_of("characters"), MODELS[name]
    model = build(tokenizer.vocabulary_size)
    oracles.scramble(model, scale=0.8)
    (end,) = tokenizer.encode_as_lists(["e"])[0]
    arguments = model, tokenizer, PROMPTS, STRATEGIES[strategy]
    how = {"max_length": MAX_LENGTH, "eos_id": [tokenizer.eos_id, int(end)]}
    texts, steps = joined(stream(*arguments, **how))
    assert texts == complete(*arguments, **how) and any(texts) and texts[1] == ""
    assert steps <= MAX_LENGTH


class Recorded(Sample):
    """A strategy of a user's own, whose numbers are constants."""

    def noise(self, length, batch_size):
        self.drawn = [*getattr(self, "drawn", []), length]
        return super().noise(length, batch_size)


def test_noise_is_drawn_once_for_a_stream():
    tokenizer, model = tokenizer_of("characters"), SCRIPTED[True]
    model.write(tokenizer, HARD_TEXTS[:2])
    strategy = Recorded(temperature=1.4, seed=3)
    arguments = model, tokenizer, ["a cat", "the"]
    texts, steps = joined(stream(*arguments, strategy, MAX_LENGTH))
    assert strategy.drawn == [MAX_LENGTH] and steps > 2
    assert texts == complete(*arguments, STRATEGIES["sample"], MAX_LENGTH)


class Counted(ScriptedModel):
    traces = 0

    def step(self, *arguments, **more):
        self.traces += 1
        return super().step(*arguments, **more)


def test_a_model_is_compiled_once_for_the_prompt_and_once_for_a_step():
    tokenizer = tokenizer_of("characters")
    model = Counted.of_texts(tokenizer, HARD_TEXTS[:2], reads_prompt=True)
    for prompt, max_length, temperature in (("a", 5, 0.7), ("the cat and", 9, 0.8), ("an", 7, 1.0)):
        strategy = Sample(temperature, seed=max_length, top_p=temperature)
        assert len(list(stream(model, tokenizer, [prompt] * 2, strategy, max_length))) == max_length
        assert model.traces == 2
    list(stream(model, tokenizer, ["an"] * 2, "greedy"))
    assert model.traces == 4


@pytest.mark.parametrize("ends_by", ["close", "an error"])
def test_an_iterator_that_ends_early_keeps_no_cache(monkeypatch, ends_by):
    tokenizer, model, caches = tokenizer_of("characters"), SCRIPTED[True], []
    model.write(tokenizer, HARD_TEXTS[:1])
    run = CompiledTasks.run

    def recorded(self, *arguments, **options):
        outputs = run(self, *arguments, **options)
        state = outputs if hasattr(outputs, "cache") else outputs[1]
        caches.append(weakref.ref(state.cache["count"]))
        return outputs

    monkeypatch.setattr(CompiledTasks, "run", recorded)

    def consume():
        pieces = stream(model, tokenizer, ["a"])
        for _ in pieces:
            if ends_by == "an error":
                raise KeyError
            assert caches[0]() is not None
            pieces.close()

    if ends_by == "an error":
        pytest.raises(KeyError, consume)
    else:
        consume()
    gc.collect()
    assert len(caches) == 1 and caches[0]() is None


@pytest.mark.parametrize(
    "strategy",
    ["beam", Beam(2), NoRepeat(Beam(2), 2), Speculative(ScriptedModel())],
    ids=["name", "beam", "wrapped", "speculative"],
)
def test_strategies_without_a_next_token_are_refused_at_once(strategy):
    tokenizer, model = tokenizer_of("characters"), SCRIPTED[True]
    model.write(tokenizer, ["a"])
    with pytest.raises(ValueError, match="`strategy` of a stream must .* Received: strategy="):
        stream(model, tokenizer, "a", strategy)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"texts": 3}, "`texts` must be a list of strings. Received: texts=3"),
        ({"max_length": 0}, "`max_length` must be an integer of at least 1"),
        ({"model": types.SimpleNamespace()}, "`model` must be an `EncoderDecoder`"),
        ({"bos_id": 999}, "`bos_id` must be a token of the model's"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_piece(changed, message):
    tokenizer = tokenizer_of("characters")
    model = ScriptedModel.of_texts(tokenizer, ["a"])
    with pytest.raises(ValueError, match=message):
        stream(**{"model": model, "tokenizer": tokenizer, "texts": ["a"], **changed})


ON_JAX = """
import json
from keras_attn import models, text
from keras_attn.generation import Sample, complete, stream

tokenizer, traces = text.Characters("abcdefgh "), []

class Model(models.CausalLanguageModel):
    supports_padding = True

    def step(self, *arguments, **more):
        traces.append(1)
        return super().step(*arguments, **more)

gpt = models.gpt(tokenizer.vocabulary_size, 1, 2, 6, 7, max_length=40)
model = Model(gpt.embedding, gpt.depth, gpt.position)
same = []
for texts, seed in ((["abc", "", "ha"], 3), (["a bed", "c", "fg"], 5)):
    strategy = Sample(seed=seed, temperature=seed / 3)
    pieces = list(stream(model, tokenizer, texts, strategy, 5 + seed % 2))
    counted = len(traces)
    joined = ["".join(row) for row in zip(*pieces, strict=True)]
    same.append(joined == complete(model, tokenizer, texts, strategy, 5 + seed % 2) != ["", "", ""])
    traces.clear()

class Recorded(Sample):
    drawn = []

    def noise(self, length, batch_size):
        self.drawn.append(length)
        return super().noise(length, batch_size)

for _ in stream(model, tokenizer, ["abc"], Recorded(), 3):
    pass
print(json.dumps([same, counted, Recorded.drawn]))
"""


@pytest.mark.slow
@needs_jax
def test_pieces_on_jax_are_those_of_complete_and_lengths_share_a_bucket():
    same, traces_of_the_second, drawn = run_on("jax", ON_JAX)
    assert same == [True, True] and traces_of_the_second == 0
    assert drawn == [3]  # of a strategy that is decoded in place
