"""Exported steps read a stream of any length with a state of constant size."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, export, feed_forward, layers, memory, models, text
from keras_attn.export import __main__ as command
from keras_attn.patterns import Causal, Local, Sinks

V, D, L, N, H = 17, 8, 2, 3, 4
G, W = 2, 4
B, T = 3, 10 * W
IDS = np.random.default_rng(0).integers(1, V, (B, T)).astype("int32")


def stream_model(pattern=None, make_feed=lambda: layers.FeedForward(7), **arguments):
    pattern = [pattern or Sinks(G, W)] * L if not isinstance(pattern, list) else pattern

    def block(index):
        attention = layers.MultiHeadAttention(N, H, pattern=pattern[index], position="rotary")
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
            lambda: models.gpt(V, num_layers=1, num_heads=2, hidden_dim=8, max_length=9),
            "at most 9 positions",
        ),
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


def test_a_stream_with_a_tokenizer_is_refused(tmp_path):
    tokenizer = text.Characters("abc")
    with pytest.raises(ValueError, match="A stream reads no text.*Characters"):
        export.saved_model(stream_model(), tmp_path, stream=True, tokenizer=tokenizer)
