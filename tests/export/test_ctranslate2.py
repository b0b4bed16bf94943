"""Exports for CTranslate2, compared with the same models in Python."""

import os
import sys

import ctranslate2
import keras
import numpy as np
import oracles
import pytest
from each import check_each

from keras_attn import export, models, norms, patterns, positions, residuals, scores, text
from keras_attn.commands.export import main
from keras_attn.depth import Reversible, Stack
from keras_attn.export._ctranslate2 import specification
from keras_attn.generation import generate
from keras_attn.layers import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    TokenEmbedding,
    TokenHead,
    TransformerBlock,
)
from keras_attn.patterns import Local

V, LONGEST = 23, 7
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 19}


ONE_LAYER = {**SIZES, "num_layers": 1}


@pytest.fixture(scope="module")
def translator():
    return oracles.scramble_decoder(models.transformer(V, **ONE_LAYER))


def words(ids):
    return [str(i) for i in ids]


def until_end(row):
    row = row.tolist()
    return row[: row.index(3)] if 3 in row else row


@pytest.mark.slow
def test_continuations_are_those_of_python(tmp_path):
    model = oracles.scramble_decoder(models.gpt(V, **SIZES, max_length=16))
    path = export.ctranslate2(model, tmp_path / "ct2")
    prompts = np.random.default_rng(1).integers(4, V, size=(50, 5))
    ids, _ = generate(model, prompts, "greedy", LONGEST)
    engine = ctranslate2.Generator(path)
    results = engine.generate_batch(
        [words(prompt) for prompt in prompts], max_length=LONGEST, include_prompt_in_result=False
    )
    names = [*text.Tokenizer.default_special_tokens, *words(range(4, V))]
    expected = [[names[i] for i in until_end(row)] for row in np.asarray(ids)]
    assert [result.sequences[0] for result in results] == expected
    assert len(set(map(tuple, expected))) > 2


@pytest.mark.slow
def test_tokens_are_those_of_the_tokenizer(tmp_path):
    sentences = ["the cat sat", "the cat ran", "a cat", "that hat"]
    tokenizer = text.SentencePiece.train(sentences, vocabulary_size=V)
    model = oracles.scramble_decoder(models.transformer(tokenizer.vocabulary_size, **ONE_LAYER))
    path = export.ctranslate2(model, tmp_path / "ct2", tokenizer)
    again = text.load(os.path.join(path, "tokenizer.model"))
    tokens = again.vocabulary()
    rows = again.encode_as_lists(sentences)
    joined = "".join(tokens[i] for i in rows[0])
    assert joined.replace("\u2581", " ").strip() == sentences[0]
    engine = ctranslate2.Translator(path)
    results = engine.translate_batch(
        [[tokens[i] for i in row] for row in rows], beam_size=1, max_decoding_length=LONGEST
    )
    written = [
        again.decode(np.array([[*map(tokens.index, result.hypotheses[0])]])).numpy()[0]
        for result in results
    ]
    expected, _ = export.Translator(model, tokenizer, "greedy", LONGEST).translate(sentences)
    assert [line.decode() for line in written] == expected


@pytest.mark.slow
def test_int8_is_smaller_and_nearly_the_same(tmp_path):
    model = models.transformer(499, **{**SIZES, "hidden_dim": 64, "intermediate_dim": 257})
    source, target = [words([5, 9, 11])], [words([4, 8, 20, 77])]
    sizes, scores = {}, {}
    for kind in (None, "int8"):
        path = export.ctranslate2(model, tmp_path / str(kind), quantize=kind)
        sizes[kind] = os.path.getsize(os.path.join(path, "model.bin"))
        engine = ctranslate2.Translator(path, compute_type="int8" if kind else "float32")
        scores[kind] = np.array(engine.score_batch(source, target)[0].log_probs)
    # Positions stay float32.
    table = 2 * 4 * 1024 * 64
    assert sizes["int8"] - table < 0.3 * (sizes[None] - table)
    # CTranslate2's sums of bytes overflow on processors without VNNI.
    assert 0 < np.abs(scores["int8"] - scores[None]).max() < 0.1 * np.abs(scores[None]).max()


@pytest.mark.slow
def test_other_log_probabilities_are_refused(tmp_path, translator, monkeypatch):
    fill = specification._fill_norm

    def wrong(spec, norm):
        fill(spec, norm)
        spec.gamma = spec.gamma * 1.01

    monkeypatch.setattr(specification, "_fill_norm", wrong)
    with pytest.raises(ValueError, match="differ from the model"):
        export.ctranslate2(translator, tmp_path / "ct2")
    assert not list(tmp_path.iterdir())


def causal(depth=Stack, feed_forward=FeedForward, residual="pre_norm", head=None, **attention):
    """A model of one block, whose parts other cases replace."""

    def block(index):
        layer = MultiHeadAttention(2, 8, **{"pattern": "causal", **attention})
        return TransformerBlock(layer, feed_forward(5), residual=residual)

    embedding = TokenEmbedding(V, 16, logits_cap=None if head else 3.0)
    return models.CausalLanguageModel(embedding, depth(block, 1), head=head)


def rotary(**options):
    return positions.Rotary(100.0, **options)


def gemma_3():
    """Layers that differ in their rotary positions, as in Gemma 3."""
    places = rotary(layout="half"), rotary(layout="half", scaling=positions.Interpolation(4))

    def block(index):
        options = {"position": places[index], "qk_norm": norms.RMSNorm(1e-6, offset=1.0)}
        layer = MultiHeadAttention(4, 6, pattern="causal", num_key_value_heads=2, **options)
        residual = residuals.SandwichNorm(norms.RMSNorm(1e-6, offset=1.0))
        return TransformerBlock(layer, GatedFeedForward(5), residual=residual)

    return models.CausalLanguageModel(TokenEmbedding(V, 16), Stack(block, 2))


DECODERS = {
    "llama": lambda: models.llama(V, **SIZES, num_key_value_heads=1),
    "gemma 3": gemma_3,
    "fraction": lambda: causal(position=rotary(fraction=0.5), feed_forward=GatedFeedForward),
    "unscaled": lambda: causal(score="dot", residual=residuals.PostNorm("rms_norm")),
    "window": lambda: causal(pattern=Local(64), use_bias=False),
    "t5 bias": lambda: causal(score=scores.DotProduct() + scores.T5Bias(6, 20)),
    "biased head": lambda: causal(head=keras.layers.Dense(V, dtype="float32")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_log_probabilities_are_those_of_python(tmp_path, name):
    """The export itself compares those of 3 and 5 tokens only."""
    model = oracles.scramble_decoder(DECODERS[name]())
    engine = ctranslate2.Generator(export.ctranslate2(model, tmp_path / "ct2", max_length=64))
    row = np.random.default_rng(0).integers(4, V, size=61)
    logs = np.asarray(keras.ops.log_softmax(model({"token_ids": row[None, :-1]})[0], axis=-1))
    expected = logs[range(60), row[1:]]
    (score,) = engine.score_batch([words(row)])
    np.testing.assert_allclose(score.log_probs, expected, atol=1e-4)
    assert expected.std() > 0.1


@pytest.mark.slow
def test_other_ids_of_the_first_and_the_last_token(tmp_path):
    """Ids that the tokenizer lacks have names, so the target may have one."""
    embedding = TokenEmbedding(V, 16, pad_id=None)
    base = models.transformer(V, **ONE_LAYER)
    parts = {"position": base.position, "encoder": base.encoder, "decoder": base.decoder}
    head = TokenHead(embedding)
    model = oracles.scramble_decoder(
        models.EncoderDecoder(None, **parts, head=head, norm=norms.LayerNorm())
    )
    letters = text.Characters("abcdefghijk")
    path = export.ctranslate2(model, tmp_path / "ct2", letters, bos_id=0, eos_id=7)
    source, target = [5, 9, 11], [4, V - 1, 8]
    inputs = {"source_ids": [[*source, 7]], "target_ids": [[0, *target]]}
    logits = model({name: np.array(ids) for name, ids in inputs.items()})[0]
    logs = np.asarray(keras.ops.log_softmax(logits, axis=-1))[range(4), [*target, 7]]
    names = [*letters.vocabulary(), *(f"<unused:{i}>" for i in range(15, V))]
    named = [[names[i] for i in row] for row in (source, target)]
    (score,) = ctranslate2.Translator(path).score_batch(named[:1], named[1:])
    np.testing.assert_allclose(score.log_probs, logs, atol=1e-4)


@pytest.mark.slow
def test_t5_translates_as_in_python(tmp_path):
    options = {"num_buckets": 8, "max_distance": 13, "tied": False, "gated": True}
    model = oracles.scramble_decoder(models.t5(V, **SIZES, **options))
    path = export.ctranslate2(model, tmp_path / "ct2")
    generator = np.random.default_rng(0)
    source, target = generator.integers(4, V, size=(2, 41))
    inputs = {"source_ids": [[*source, 3]], "target_ids": [[2, *target]]}
    logits = model({name: np.array(ids) for name, ids in inputs.items()})[0]
    logs = np.asarray(keras.ops.log_softmax(logits, axis=-1))
    (score,) = ctranslate2.Translator(path).score_batch([words(source)], [words(target)])
    np.testing.assert_allclose(score.log_probs, logs[range(42), [*target, 3]], atol=1e-4)


REFUSED = {
    "depth": (lambda: causal(Reversible), "a `Stack`.*Reversible"),
    "window": (lambda: causal(pattern=Local(3)), "windows of at least max_length=1024"),
    "pattern": (lambda: causal(pattern=patterns.Strided(3)), "`Causal`, or a `Local` window"),
    "scaling": (
        lambda: causal(position=rotary(scaling=positions.Llama3(8, 16))),
        "`Rotary` positions, with `Interpolation`",
    ),
    "score": (
        lambda: causal(score=scores.SoftCap(scores.DotProduct(), 50.0)),
        "with dot products, without sinks",
    ),
    "sinks": (lambda: causal(sinks=True), "with dot products, without sinks"),
    "direction": (
        lambda: causal(score=scores.DotProduct() + scores.T5Bias(8, 13, bidirectional=True)),
        "`bidirectional` in encoders only",
    ),
    "norm of heads": (
        lambda: causal(qk_norm="rms_norm", qk_norm_axis="heads"),
        "an `RMSNorm` of each head's queries and keys",
    ),
    "experts": (
        lambda: causal(feed_forward=lambda width: MixtureOfExperts(FeedForward(width), 3)),
        "feed-forward layers, with a gate or not",
    ),
    "memory": (
        lambda: models.transformer_xl(V, **ONE_LAYER, memory_length=5),
        "of text without a memory",
    ),
    "images": (
        lambda: models.vit(3, (4, 4, 1), 2, **ONE_LAYER),
        "models of text without a memory",
    ),
    "gate": (
        lambda: models.transformer(V, **ONE_LAYER, residual="gate"),
        "`PostNorm`, `PreNorm` or `SandwichNorm`",
    ),
}


def test_parts_that_ctranslate2_lacks_are_refused(tmp_path):
    def check(make, sentence):
        with pytest.raises(ValueError, match=f"CTranslate2 lacks this part.*{sentence}"):
            export.ctranslate2(make(), tmp_path / "ct2")

    check_each(check, REFUSED)
    assert not list(tmp_path.iterdir())


def test_unsuitable_arguments_are_refused(tmp_path, translator):
    letters = text.Characters("abcdefghijklmnopqrstuvwxyz")
    with pytest.raises(ValueError, match=f"one of at most {V} ids"):
        export.ctranslate2(translator, tmp_path / "ct2", letters)
    with pytest.raises(ValueError, match=f"`eos_id` must be one of the {V} ids.*eos_id={V}"):
        export.ctranslate2(translator, tmp_path / "ct2", eos_id=V)
    with pytest.raises(
        ValueError, match="`max_length` must be an integer of at least 2.*max_length=1"
    ):
        export.ctranslate2(translator, tmp_path / "ct2", max_length=1)
    with pytest.raises(ValueError, match="int5"):
        export.ctranslate2(translator, tmp_path / "ct2", quantize="int5")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="exists and is not overwritten"):
        export.ctranslate2(translator, tmp_path)
    keras.config.set_dtype_policy("mixed_bfloat16")
    with pytest.raises(ValueError, match="must compute in float32.*bfloat16"):
        export.ctranslate2(models.transformer(V, **ONE_LAYER), tmp_path / "ct2")


def test_a_missing_package_is_named(tmp_path, translator, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[ctranslate2\]'"):
        export.ctranslate2(translator, tmp_path / "ct2")


@pytest.mark.slow
def test_the_command_writes_a_quantized_model(tmp_path, capsys):
    model, path = tmp_path / "model.keras", tmp_path / "ct2"
    models.gpt(V, **ONE_LAYER, max_length=16).save(model)
    assert main(["ctranslate2", str(model), str(path), "--quantize", "int8"]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert ctranslate2.contains_model(str(path))
    assert main(["ctranslate2", str(model), str(path)]) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
