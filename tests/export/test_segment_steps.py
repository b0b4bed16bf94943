"""Signatures of models with a memory: the client holds the memory."""

import keras
import numpy as np
import oracles
import pytest
import segments
import tensorflow as tf
from segments import B, D, T

from keras_attn import export, models, text
from keras_attn.layers import TokenEmbedding
from keras_attn.memory import CompressiveMemory, SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel

V, L = 17, 1
IDS = np.random.default_rng(1).integers(1, V, (B, T)).astype("int32")
COUNTS = np.array([[4, 1, 0, 6], [2, 2, 5, 2], [0, 7, 1, 3]])


def random_model():
    memory = SegmentMemory(T + 2)
    model = CausalLanguageModel(TokenEmbedding(V, D), segments.built(layers=L), memory=memory)
    oracles.scramble(model, scale=0.8)
    return model


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def whole(model):
    return np.asarray(CausalLanguageModel(model.embedding, model.depth)({"token_ids": IDS}))


@pytest.fixture(scope="module")
def steps(model):
    return export.SegmentSteps(model)


def requests():
    """Segments as a server batches them, padded with the first token, and their lengths."""
    for (ids, real), lengths in zip(segments.spread(IDS, COUNTS), COUNTS.T, strict=True):
        yield {
            "token_ids": np.where(real, ids, max(ids[0, 0], 1)).astype("int32"),
            "lengths": lengths.astype("int32"),
        }


def test_steps_equal_one_pass(steps, whole):
    state, logits = steps.initial_memory(B), []
    for request in requests():
        state = steps.step(*request.values(), **state)
        logits.append(state.pop("logits"))
    np.testing.assert_allclose(segments.gather(logits, COUNTS), whole, atol=2e-4)
    assert state["memory_length"].numpy().tolist() == [T] * B


@pytest.mark.slow
def test_signatures_of_an_export_are_named_and_dynamic(
    model, tmp_path, assert_warmup_records_match
):
    path = export.saved_model(StatefulSegments(model, batch_size=B), tmp_path)
    signatures = tf.saved_model.load(path).signatures
    assert_warmup_records_match(path, signatures)
    assert set(signatures) == {"initial_memory", "step", "end_tokens", "serving_default"}
    for name in ("step", "serving_default"):
        inputs = signatures[name].structured_input_signature[1]
        assert {name: (x.dtype, x.shape.as_list()) for name, x in inputs.items()} == {
            "token_ids": (tf.int32, [None, None]),
            "lengths": (tf.int32, [None]),
            "memory": (tf.float32, [None, L, None, D]),
            "memory_length": (tf.int32, [None]),
        }
        outputs = signatures[name].structured_outputs
        assert {name: (x.dtype, x.shape.as_list()) for name, x in outputs.items()} == {
            "logits": (tf.float32, [None, None, V]),
            "memory": (tf.float32, [None, L, T + 2, D]),
            "memory_length": (tf.int32, [None]),
        }


def test_ids_outside_the_vocabulary_are_refused(steps, assert_ids_are_checked):
    def step(token_ids, lengths, **state):
        return steps.step(token_ids, lengths, **state)

    request = {"token_ids": [[5, 7, 9]], "lengths": [3], **steps.initial_memory(1)}
    assert_ids_are_checked(step, V, request)


def test_a_memory_without_slots_and_one_row_work(steps, whole):
    nothing = {"memory": np.zeros((1, L, 0, D)), "memory_length": [0]}
    outputs = steps.step(IDS[:1, :4], [4], **nothing)
    np.testing.assert_allclose(outputs["logits"], whole[:1, :4], atol=2e-4)
    again = steps.step(IDS[:1, 4:], [T - 4], outputs["memory"], outputs["memory_length"])
    np.testing.assert_allclose(again["logits"], whole[:1, 4:], atol=2e-4)


@pytest.mark.slow
def test_steps_of_a_compressive_memory_equal_the_model():
    memory = CompressiveMemory(2, 3, rate=2)
    model = CausalLanguageModel(TokenEmbedding(V, D), segments.built(layers=L), memory=memory)
    oracles.scramble(model, scale=0.8)
    steps = export.SegmentSteps(model)
    state, kept = steps.initial_memory(B), model.initial_memory(B)
    for request in requests():
        real = np.arange(request["token_ids"].shape[1]) < request["lengths"][:, None]
        outputs = steps.step(
            **{"segment": request["token_ids"], "lengths": request["lengths"]}, **state
        )
        kept = model({"token_ids": np.where(real, request["token_ids"], 0), **kept})
        expected, logits = kept.pop("logits"), outputs.pop("logits")
        np.testing.assert_allclose(logits[real], expected[real], atol=1e-4)
        state = outputs
    assert state["compressed_memory_length"].numpy().tolist() == [3, 3, 3]


@pytest.mark.slow
def test_outputs_are_float32_under_every_dtype_policy():
    model = random_model()
    keras.config.set_dtype_policy("mixed_bfloat16")
    steps = export.SegmentSteps(random_model())
    outputs = steps.step(IDS, [T] * B, **steps.initial_memory(B))
    assert outputs["memory"].dtype == outputs["logits"].dtype == tf.float32
    expected = export.SegmentSteps(model).step(IDS, [T] * B, **steps.initial_memory(B))
    far = np.abs(outputs["memory"] - expected["memory"]).max()
    assert 0 < far < 0.05 * np.abs(expected["memory"]).max()


def test_a_tokenizer_that_does_not_fit_is_refused(model, tmp_path):
    tokenizer = text.Characters("ab")
    with pytest.raises(ValueError, match="vocabularies of the same size. Received: 17 and 6."):
        export.saved_model(model, tmp_path / "export", tokenizer=tokenizer)
    states = models.gtrxl(5, None, 1, 2, 8, 16, memory_length=6)
    with pytest.raises(ValueError, match="model of states reads no text: export it without"):
        export.saved_model(states, tmp_path / "export", tokenizer=tokenizer)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_text_becomes_tokens_and_back(model):
    steps = export.SegmentSteps(model, text.Characters("abcdefghijklm"))
    outputs = steps.tokenize(["", "bad", "ax"])
    assert outputs["lengths"].numpy().tolist() == [0, 3, 2]
    assert outputs["token_ids"].numpy().tolist() == [[0, 0, 0], [5, 4, 7], [4, 1, 0]]
    texts = steps.detokenize([[5, 4, 3, 7], [4, 0, 0, 0]])["text"]  # 3 ends a text
    assert texts.numpy().tolist() == [b"bad", b"a"]
    assert sorted(steps.signatures) == [
        *("detokenize", "end_tokens", "initial_memory", "serving_default", "step", "tokenize")
    ]


def test_a_tokenizer_without_an_id_of_padding_reads_and_writes_text(model):
    """Such as that of GPT-2, in which id 0 is a letter."""
    tokenizer = text.Characters("abcdefghijklm")
    tokenizer.pad_id, tokenizer.eos_id, tokenizer.template = None, 7, text.Template(end=(7,))
    steps = export.SegmentSteps(model, tokenizer)
    outputs = steps.tokenize(["bac", "a"])
    rows = zip(outputs["token_ids"].numpy(), outputs["lengths"].numpy(), strict=True)
    assert [row[:n].tolist() for row, n in rows] == [[5, 4, 6], [4]]
    texts = steps.detokenize([[5, 7, 4, 6], [4, 7, 7, 7]])["text"]
    assert texts.numpy().tolist() == [b"bac", b"a"]


def test_end_tokens_are_those_of_the_tokenizer_or_given(model):
    tokenizer = text.Characters("abcdefghijklm")
    modules = {
        "default": export.SegmentSteps(model),
        "given": export.SegmentSteps(model, tokenizer, eos_id=[5, 7]),
    }
    tokenizer.eos_id = 7
    modules["tokenizer"] = export.SegmentSteps(model, tokenizer)
    tokenizer.eos_id = None
    modules["none"] = export.SegmentSteps(model, tokenizer)
    ends = {name: steps.end_tokens(2)["token_ids"].numpy() for name, steps in modules.items()}
    expected = {"default": [3], "given": [5, 7], "tokenizer": [7], "none": [-1]}
    assert {name: rows.tolist() for name, rows in ends.items()} == {
        name: [row, row] for name, row in expected.items()
    }


def test_detokenize_leaves_out_the_end_tokens(model):
    steps = export.SegmentSteps(model, text.Characters("abcdefghijklm"), eos_id=[5, 7])
    assert steps.detokenize([[4, 5, 6, 7, 3, 4]])["text"].numpy().tolist() == [b"aca"]
