"""Exported steps read a stream of any length with a state of constant size."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow_but

from keras_attn import depth, export, feed_forward, layers, memory, models, positions, scores
from keras_attn.commands import export as command
from keras_attn.patterns import Causal, Local, Sinks

V, D, L, N, H = 17, 8, 2, 3, 4
G, W = 2, 4
B, T = 3, 10 * W
IDS = np.random.default_rng(0).integers(1, V, (B, T)).astype("int32")


def stream_model(
    pattern=None, make_feed=lambda: layers.FeedForward(7), score="scaled_dot", **arguments
):
    pattern = [pattern or Sinks(G, W)] * L if not isinstance(pattern, list) else pattern

    def block(index):
        how = {"pattern": pattern[index], "score": score}
        attention = layers.MultiHeadAttention(N, H, position="rotary", **how)
        return layers.TransformerBlock(attention, make_feed())

    stack = depth.Stack(block, L)
    model = models.CausalLanguageModel(layers.TokenEmbedding(V, D), stack, **arguments)
    oracles.scramble(model, scale=0.8)
    return model


@pytest.mark.slow
def test_the_command_exports_a_stream(tmp_path, assert_warmup_records_match):
    stream_model().save(tmp_path / "model.keras")
    arguments = ["saved_model", str(tmp_path / "model.keras"), str(tmp_path / "stream")]
    assert command.main([*arguments, "--stream"]) == 0
    directory = str(tmp_path / "stream" / "1")
    signatures = tf.saved_model.load(directory).signatures
    assert set(signatures) == {"initial_state", "step", "end_tokens", "serving_default"}
    ends = signatures["end_tokens"](batch_size=tf.constant(2))["token_ids"]
    assert ends.numpy().tolist() == [[3], [3]]
    assert_warmup_records_match(directory, signatures)


def test_a_stream_reads_ten_windows_as_the_whole_pass(assert_ids_are_checked):
    model = stream_model()
    stream = export.TokenStream(model)
    state, logits, start = stream.initial_state(B), [], 0
    request = {"token_ids": IDS[:, :2], **state}
    assert_ids_are_checked(stream.step, V, request, lengths=None)
    for length in (3, 9, *[1] * (T - 12)):
        state = stream.step(IDS[:, start : start + length], **state)
        logits.append(state.pop("logits"))
        start += length
        assert state["key"].shape == state["value"].shape == (B, L, N, G + W, H)
    assert int(state["index"]) == T
    np.testing.assert_allclose(np.concatenate(logits, axis=1), model({"token_ids": IDS}), atol=2e-4)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: stream_model(Causal()), r"`Sinks\(4, window=1020\)`. Received: pattern=Causal"),
        (lambda: stream_model([Local(5), Local(7)]), "caches of one shape.*5, 4.*7, 4"),
        (lambda: stream_model(memory=memory.SegmentMemory(3)), "without a memory"),
        (
            lambda: stream_model(
                make_feed=lambda: feed_forward.SeparableConvTransition(7, causal=True)
            ),
            "of attention only.*feed_forward",
        ),
    ],
)
def test_models_whose_state_would_grow_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        export.TokenStream(make())


MOST = 11
OF_ALL_KEYS = {
    "gpt": lambda: models.gpt(V, L, 2, D, 7, max_length=MOST),
    "windows of two widths": lambda: stream_model(
        [Local(5), Causal()], position=positions.Learned(MOST)
    ),
    "one window": lambda: stream_model(Local(5), position=positions.Learned(MOST)),
    "rotary": lambda: stream_model(Causal()),
    "sums": lambda: stream_model(Causal(), score=scores.Kernel()),
}


@pytest.mark.parametrize("name", slow_but(["gpt"], OF_ALL_KEYS))
def test_a_stream_of_a_model_that_keeps_all_keys_ends_at_its_positions(name):
    model = OF_ALL_KEYS[name]()
    oracles.scramble(model, scale=0.8)
    stream = export.TokenStream(model, max_length=None if model.max_length else MOST)
    assert stream.max_positions(2)["max_positions"].numpy().tolist() == [MOST] * 2
    state, logits, start = stream.initial_state(B), [], 0
    for length in (3, 2, *[1] * (MOST - 5)):
        state = stream.step(IDS[:, start : start + length], **state)
        logits.append(state.pop("logits"))
        start += length
    expected = model({"token_ids": IDS[:, :MOST]})
    np.testing.assert_allclose(np.concatenate(logits, axis=1), expected, atol=2e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"at most {MOST} tokens.*{MOST + 1}"):
        stream.step(IDS[:, :1], **state)
