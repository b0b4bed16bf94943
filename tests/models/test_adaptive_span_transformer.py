import numpy as np
import oracles
import pytest
from marks import slow
from models import formulas
from models.builders import built as shared

from keras_attn.models import adaptive_span_transformer

SPAN, RAMP = 5, 2


def built(**arguments):
    sizes = {**formulas.SIZES, "max_span": SPAN, "ramp": RAMP, **arguments}
    return formulas.scrambled(adaptive_span_transformer(**sizes))


def set_spans(model, *spans):
    for block in model.depth.blocks:
        block.attention.pattern.span.assign(np.array(spans) / SPAN)


@pytest.fixture(scope="module")
def model():
    return built()


@pytest.fixture(scope="module")
def dynamic_model():
    return built(dynamic=True)


def formula(layer, x):
    """The paper's weights, pair by pair, from the spans of the layer's heads."""
    query, key = formulas.heads(layer, x, "query"), formulas.heads(layer, x, "key")
    vectors = oracles.numpy_of(layer.score.embeddings)  # (max_span, H)
    spans = oracles.numpy_of(layer.pattern.span) * SPAN
    batch, count, length, size = query.shape
    logits = np.full((batch, count, length, length), -np.inf)
    for n in range(count):
        for i in range(length):
            for j in range(max(0, i - SPAN + 1), i + 1):
                soft = min(max((RAMP + spans[n] - (i - j)) / RAMP, 0.0), 1.0)
                keys = key[:, n, j] + vectors[i - j]
                dot = np.sum(query[:, n, i] * keys, axis=-1) / np.sqrt(size)
                logits[:, n, i, j] = dot + (np.log(soft) if soft else -np.inf)
    return formulas.weigh(layer, x, logits, True)


@pytest.mark.parametrize("spans", [slow((0.0, 1.5)), (3.25, 5.0)])
def test_output_equals_the_formula(model, spans):
    set_spans(model, *spans)
    x, table = formulas.embedded(model, formulas.IDS)
    for layer in model.depth.blocks:
        x = formulas.post_norm(x, formulas.sublayers(layer, formula))
    one_pass = formulas.without_memory(model)({"token_ids": formulas.IDS})
    np.testing.assert_allclose(one_pass, x @ table.T, atol=2e-4)


@pytest.mark.slow
def test_the_memory_is_as_long_as_the_longest_span(model):
    set_spans(model, SPAN, 1)
    assert model.input["memory"].shape == (None, formulas.L, None, formulas.D)
    one_pass = formulas.without_memory(model)({"token_ids": formulas.IDS})
    np.testing.assert_allclose(formulas.read(model, (4, 7, 11)), one_pass, atol=2e-4)


def test_span_loss_is_added_in_every_layer():
    """The loss is `span_loss` per token of span, for the mean over heads, summed over layers."""
    model = built(span_loss=0.01)
    set_spans(model, 2.0, 5.0)
    np.testing.assert_allclose(sum(model.losses), formulas.L * 0.01 * 3.5, rtol=1e-5)


def test_span_summary_of_static_spans_needs_no_text(model):
    set_spans(model, 2.0, 5.0)
    summary = model.span_summary()
    assert len(summary) == formulas.L
    np.testing.assert_allclose(summary[1]["spans"], [2.0, 5.0], rtol=1e-5)


@pytest.mark.slow
def test_steps_with_dynamic_spans_equal_one_pass(dynamic_model):
    expected = np.asarray(formulas.without_memory(dynamic_model)({"token_ids": formulas.IDS}))
    constants, cache = dynamic_model.start({"token_ids": formulas.IDS}, max_length=formulas.T)
    for start, end in ((0, 5), (5, 6), (6, formulas.T)):
        places, tokens = np.arange(start, end, dtype="int32"), formulas.IDS[:, start:end]
        logits, cache = dynamic_model.step(tokens, constants, cache, places)
        np.testing.assert_allclose(logits, expected[:, start:end], atol=1e-3)


@pytest.mark.slow
def test_span_summary_of_dynamic_spans_is_measured_on_a_text(dynamic_model):
    """By the first layer's formula: z = max_span sigmoid(w x + b) of the embedded tokens."""
    model = dynamic_model
    summary = model.span_summary(formulas.IDS)
    assert len(summary) == formulas.L and np.all(summary[0]["spans"] != summary[1]["spans"])
    first = model.depth.blocks[0].attention.pattern
    expected = first.span_summary(model.embedding(formulas.IDS))
    np.testing.assert_allclose(summary[0]["spans"], expected["spans"], rtol=1e-6)
    with pytest.raises(ValueError, match="`token_ids`. Received: token_ids=None"):
        model.span_summary()
    for ids in (formulas.IDS[0], formulas.IDS[:, :0], {"token_ids": formulas.IDS}):
        with pytest.raises(ValueError, match=r"token ids \(B, T\), of at least one token"):
            model.span_summary(ids)
    from_lists = model.span_summary(formulas.IDS.tolist())
    np.testing.assert_array_equal(from_lists[0]["spans"], summary[0]["spans"])
    with pytest.raises(ValueError, match="pattern `AdaptiveSpan`.*Causal"):
        shared("gpt").span_summary()
