"""Wrong inputs of a newcomer: each error says what is wrong, what to do, and what was received."""

import functools
import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from each import check_each
from keras import ops

from keras_attn import (
    callbacks,
    depth,
    generation,
    losses,
    memory,
    models,
    optimizers,
    patterns,
    positions,
    residuals,
    scores,
    testing,
    text,
    viz,
)
from keras_attn.hints import closest
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.patterns import Causal, Local, Pattern, PerHead

X = np.ones((2, 3, 8), "float32")
RAGGED_IDS = tf.ragged.constant([[1], [3, 4, 5]])
RAGGED = tf.RaggedTensor.from_tensor(X, [1, 3])
PADDED = "pad a ragged tensor by `x.to_tensor()`, and pass `tf.sequence_mask(x.row_lengths())`"
FOLD = "(-1, *{}.shape[-2:]))`."
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}


def attention(**arguments):
    return MultiHeadAttention(2, 4, **arguments)


def block(**arguments):
    return TransformerBlock(attention(), FeedForward(16), **arguments)


@functools.cache
def gpt():
    return models.gpt(vocabulary_size=20, **SIZES, max_length=32)


def message_of(make):
    with pytest.raises(ValueError) as caught:
        make()
    # Keras adds the call and colours around an error of a layer.
    return re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))


VALUES = [
    (lambda: patterns.get("local"), "`patterns.Local(window=...)`? Received: pattern='local'."),
    (lambda: patterns.get("locl"), "Did you mean `patterns.Local(window=...)`?"),
    (lambda: attention(pattern="causl"), "Did you mean 'causal'? Received: pattern='causl'."),
    (lambda: attention(pattern="Causal"), "Did you mean 'causal'?"),
    (lambda: attention(pattern="sliding_window"), "Did you mean `patterns.Local(window=...)`?"),
    (lambda: attention(pattern="full"), "Did you mean 'dense'?"),
    (lambda: attention(pattern=Local), "not a class: pass `patterns.Local(window=...)`."),
    (lambda: attention(score="learned_relative"), "`scores.LearnedRelative(max_distance=...)`?"),
    (
        lambda: attention(score="causal"),
        "Unknown score. `patterns.Causal()` belongs to another axis.",
    ),
    (lambda: attention(position="relative"), "`scores.Relative()` belongs to another axis."),
    (lambda: attention(position="sinusoidal"), "must act on heads, as 'rotary' does"),
    (lambda: block(residual="prenorm"), "Did you mean 'pre_norm'? Received: residual='prenorm'."),
    (lambda: block(residual=residuals.Gate), "not a class: pass `residuals.Gate()`."),
    (lambda: depth.Recurrent(block(), 3, position="timesteps"), "Did you mean 'timestep'?"),
    (lambda: PerHead([Causal(), "locl"]), "`patterns.Local(window=...)`? Received: patterns[1]="),
    (lambda: Local(3) & "causl", "Did you mean 'causal'? Received: second='causl'."),
    (lambda: "causl" | Local(3), "Did you mean 'causal'? Received: first='causl'."),
    (lambda: viz.plot_pattern("local", 4), "Did you mean `patterns.Local(window=...)`?"),
    (lambda: residuals.Gate(kind="gruu"), "Did you mean 'gru'? Received: kind='gruu'."),
    (
        lambda: models.create("image_transformer_2d", pattern="local"),
        "Did you mean `patterns.Local(window=...)`? Received: pattern='local'.",
    ),
    (
        lambda: models.create("universal_transformer_tiny", depth="acts"),
        "Did you mean 'act'? Received: depth='acts'.",
    ),
    (lambda: models.create("gpt2"), "Did you mean 'gpt2_small'? Received: name='gpt2'."),
    (lambda: generation.generate(gpt(), [[4]], "beem"), "Did you mean 'beam'?"),
    (lambda: generation.generate(gpt(), [[4]], generation.Beam), "pass `generation.Beam()`."),
    (lambda: generation.generate(gpt(), [[4]], Causal()), "an instance of Strategy."),
]

# Names of other things, whose letters are a little like those of ours.
OTHERS = [
    ("rate", "remat"),
    ("batch_size", "block_size"),
    ("num_experts", "num_layers"),
    ("use_cache", "use_gate"),
    ("groups", "drop"),
    ("attn", "pattern"),
    ("flash", "LSH"),
    ("linear", "learned"),
    ("mixed", "Fixed"),
    ("group_norm", "PreNorm"),
    ("batch_norm", "SandwichNorm"),
]
TYPOS = [
    ("causla", "causal"),
    ("iwndow", "window"),
    ("cause", "causal"),
    ("clamp", "clamp_length"),
    ("causal_mask", "causal"),
    ("num_head", "num_heads"),
]


def test_only_a_misspelled_name_gets_a_hint():
    assert {name: closest(name, [known]) for name, known in OTHERS} == dict.fromkeys(dict(OTHERS))
    assert {name: closest(name, [known]) for name, known in TYPOS} == dict(TYPOS)


KEYWORDS = [
    (lambda: attention(patternn="causal"), "no argument `patternn`. Did you mean `pattern`?"),
    (lambda: attention(attention_axes=(1, 2)), FOLD.format("x") + " Received: attention_axes=(1,"),
    (lambda: attention(sliding_window=4), "Use `pattern=patterns.Local(window=...)`."),
    (lambda: attention(causal=True), 'Use `pattern="causal"`. Received: causal=True.'),
    (lambda: attention(zebra=1), "Its arguments are num_heads, key_dim,"),
    (lambda: MultiHeadAttention(num_heads=2, head_dim=4), "Use `key_dim`. Received: head_dim=4."),
    (lambda: FeedForward(units=16), "no argument `units`. Use `intermediate_dim`."),
    (lambda: attention(embed_dim=8), "Use `key_dim`, the size of a head: the width divided by"),
    (
        lambda: TransformerBlock(num_heads=2, intermediate_dim=16),
        "Use `attention=MultiHeadAttention(num_heads=..., key_dim=...)`. Received: num_heads=2.",
    ),
    (lambda: FeedForward(16, rate=0.1), "Use `dropout`. Received: rate=0.1."),
    (lambda: TokenEmbedding(input_dim=10, output_dim=8), "Use `vocabulary_size`."),
    (lambda: block(norm_first=True), 'Use `residual="pre_norm"`. Received: norm_first=True.'),
    (lambda: Local(windw=3), "`Local` has no argument `windw`. Did you mean `window`?"),
    (lambda: positions.Learned(length=4), "Use `max_length`. Received: length=4."),
    (lambda: positions.Rotary(bas=4), "Its arguments are max_wavelength,"),
    (lambda: scores.Relative(clamp=3), "Did you mean `clamp_length`? Received: clamp=3."),
    (lambda: patterns.AdaptiveSpan(8, rampe=2), "Did you mean `ramp`? Received: rampe=2."),
    (lambda: memory.KVCache(length=4), "Use `max_length`. Received: length=4."),
    (lambda: generation.Sample(k=3), "Use `top_k`. Received: k=3."),
    (lambda: losses.LabelSmoothedCrossentropy(smoothing=0.1), "Did you mean `label_smoothing`?"),
    (lambda: losses.LabelSmoothedCrossentropy(from_logits=True), "`y_pred` is always logits."),
    (lambda: optimizers.Noam(d_model=8), "Use `hidden_dim`. Received: d_model=8."),
    (lambda: optimizers.Adam(lr=3), "Use `learning_rate`. Received: lr=3."),
    (lambda: callbacks.Resume("run", every=3), "Did you mean `every_steps`? Received: every=3."),
    (lambda: models.create("gpt2_small", num_layer=3), "`gpt` has no argument `num_layer`."),
    (lambda: models.create("gpt2_small", vocab_size=3), "Use `vocabulary_size`."),
]

BOOLEANS = [
    (lambda: attention(use_bias="no"), "use_bias='no'"),
    (lambda: attention(sinks=1), "sinks=1"),
    (lambda: Local(3, "yes"), "causal='yes'"),
    (lambda: Local(3, causal=None), "causal=None"),
    (lambda: scores.DotProduct("false"), "scaled='false'"),
    (lambda: scores.T5Bias(bidirectional="no"), "bidirectional='no'"),
    (lambda: FeedForward(16, use_bias=[]), "use_bias=[]"),
    (lambda: depth.Stack(block, 2, remat="all"), "remat='all'"),
    (lambda: TokenEmbedding(10, 8, "no"), "scaled='no'"),
    (lambda: callbacks.Bleu(*[None] * 3, lowercase="no"), "lowercase='no'"),
]


def test_a_boolean_must_be_one():
    for make, received in BOOLEANS:
        name = received.partition("=")[0]
        assert message_of(make) == f"`{name}` must be True or False. Received: {received}."


def test_booleans_of_numpy_and_arguments_of_other_packages_are_taken():
    class Own(FeedForward):
        def __init__(self, use_bias=True, **kwargs):
            super().__init__(16, use_bias=use_bias == "yes", **kwargs)

    assert Local(3, np.bool_(False)).causal == np.bool_(False)
    assert not Own("no").use_bias and Own(use_bias="yes").use_bias


ARGUMENTS = [
    (lambda: FeedForward(16, activation="swiglu"), "GatedFeedForward(activation='silu')"),
    (lambda: FeedForward(16, activation="geglu"), "GatedFeedForward(activation='gelu')"),
    (lambda: FeedForward(16, activation="GELU"), "Did you mean 'gelu'?"),
    (lambda: FeedForward(16, activation=3), "a function or a name of `keras.activations`."),
    (lambda: TransformerBlock(FeedForward(16), attention()), "the order is `TransformerBlock("),
    (lambda: TransformerBlock(attention(), attention()), "`feed_forward` must be a layer that is"),
    (
        lambda: TransformerBlock(keras.layers.MultiHeadAttention(2, 4), FeedForward(16)),
        "of which cache, key_positions, query_positions are missing",
    ),
    (lambda: depth.Stack(lambda: block(), 3), "such as `lambda index: TransformerBlock(...)`."),
    (lambda: depth.Recurrent(lambda: block(), 3), "`lambda index: TransformerBlock(...)`."),
    (lambda: memory.KVCache(3).initial(FeedForward(16), 2), "`attention` must be a `MultiHead"),
    (
        lambda: models.sparse_transformer(20, **SIZES, image_shape=(2, 4, 1), stride=0),
        "`stride` must be an integer of at least 1. Received: stride=0.",
    ),
    (
        lambda: models.image_transformer(258, (2, 3), **SIZES),
        "`image_shape` must be three integers of at least 1. Received: image_shape=(2, 3).",
    ),
    (lambda: generation.Sample(temperature="1"), "a number above 0. Received: temperature='1'."),
    (lambda: generation.Sample(top_p="a"), "`top_p` must be a number. Received: top_p='a'."),
    (
        lambda: models.CausalLanguageModel(TokenEmbedding(10, 8), depth="stack"),
        "`depth` must be a Keras layer. Received: depth='stack'.",
    ),
    (
        lambda: models.CausalLanguageModel(TokenEmbedding(10, 8), gpt().depth, memory=4),
        "`memory` must be a memory, such as `memory.SegmentMemory(...)`. Received: memory=4.",
    ),
    (lambda: optimizers.Noam("512"), "must be a number above 0. Received: hidden_dim='512'."),
    (lambda: callbacks.Resume(3), "`directory` must be a path, a string. Received: directory=3."),
    (lambda: callbacks.AverageCheckpoints(None), "must be a path, a string. "),
    (lambda: callbacks.Bleu("a", "b", list), "`source` must be a list of sentences."),
    (lambda: callbacks.Bleu(["a"], ["b"], None), "`translate` must be a function of a"),
]

CALLS = [
    (lambda: gpt().depth(X, cache={}), "`cache` must come from the depth's `initial_cache`"),
    (
        lambda: attention()(X[0], X[0]),
        "give a single sequence a batch axis. Received: shape=(3, 8)",
    ),
    (lambda: gpt()(np.ones((1, 33), "int32")), "make the table, or the model, for more positions."),
    (lambda: gpt()(np.array([["a word"]])), "`encode` of a tokenizer turns text into token ids."),
    (lambda: models.transformer(20, **SIZES)(np.ones((1, 3))), "the keys source_ids, target_ids."),
    (
        lambda: models.transformer_xl(20, memory_length=4, **SIZES)(np.ones((1, 3), "int32")),
        "`memory.StatefulSegments(model)` passes it on in `fit`. Received: one array.",
    ),
    (lambda: text.TokenBatches(["a"], ["b"]), "`encode_as_lists` of a tokenizer makes them of"),
    (lambda: testing.check_attention(MultiHeadAttention), "a Keras layer, an object, not a class."),
    (lambda: attention()(X), "for self-attention call the layer with `(x, x)`. Received:"),
    (lambda: attention()(keras.Input((3, 8))), "for self-attention call the layer with `(x, x)`."),
    (lambda: attention()(None, None), "`query` must be a tensor of shape (batch, length, width)."),
    (lambda: block()(None), "`x` must be a tensor of shape (batch, length, width)."),
    (lambda: FeedForward(16)(None), "`x` must be a tensor of shape (batch, length, width)."),
    (lambda: FeedForward(16)(X[0, 0]), "must be of shape (..., length, width)."),
    (lambda: attention()(X[None], X[None]), FOLD.format("query") + " Received: shape="),
    (lambda: block()(X[None]), FOLD.format("query")),
    (
        lambda: attention()(X, X, attention_mask=np.zeros((3, 3))),
        "by `attention_mask = additive_mask > -1`. Received: attention_mask of floating-point",
    ),
    (lambda: block()(X, cache={}), "`cache` must have the caches of attention, as a"),
    (lambda: Local(3).allowed(3, 2), "`query_positions` must be of shape (T,) or (B, T)"),
    (lambda: attention()(RAGGED, RAGGED), PADDED),
    (lambda: FeedForward(16)(RAGGED), PADDED),
    (lambda: block()(RAGGED), PADDED),
    (lambda: positions.Sinusoidal()(RAGGED), PADDED),
    (lambda: gpt()(RAGGED_IDS), PADDED),
    (lambda: gpt().predict(RAGGED_IDS, verbose=0), PADDED),
    (
        lambda: generation.generate(gpt(), RAGGED_IDS, lengths=np.array([1, 3])),
        "`lengths` must be None for rows of different lengths.",
    ),
    (lambda: generation.generate(gpt(), "hello"), "`encode` of a tokenizer turns text into ids."),
    (lambda: generation.generate(gpt(), [[4, 5], []]), "padded with 0, or lists of different"),
    (lambda: generation.generate(gpt(), np.zeros((1, 0), int)), "Received: shape=(1, 0),"),
    (
        lambda: generation.generate(gpt(), [[25]]),
        "must be ids of the vocabulary, in [0, 20). Use the tokenizer that the model was made for.",
    ),
    (
        lambda: generation.generate(gpt(), ops.convert_to_tensor([[4, 25]])),
        "Received: inputs from 4 to 25.",
    ),
    (
        lambda: generation.generate(gpt(), [[5, 6], [0, 0]]),
        "Received: a row of nothing but the padding 0.",
    ),
    (
        lambda: generation.generate(models.transformer(20, 1, 2, 8, 16), [[4]], bos_id=101),
        "`bos_id` must be a token of the model's 20. Received: bos_id=101.",
    ),
    (lambda: generation.generate(gpt(), [[4]], eos_id=None), "`eos_id` must be an integer of"),
]


def check(make, sentence):
    assert sentence in message_of(make)


def test_an_unknown_value_of_an_axis_names_the_closest():
    check_each(check, VALUES)


def test_an_unknown_keyword_names_the_argument_that_is_meant():
    check_each(check, KEYWORDS)


def test_a_wrong_argument_names_the_remedy():
    check_each(check, ARGUMENTS)


def test_a_wrong_call_names_the_remedy():
    check_each(check, CALLS)


def test_a_name_stands_for_a_pattern_inside_others():
    assert PerHead(["causal", Local(3)]) == PerHead([Causal(), Local(3)])
    assert Local(3) & "causal" == Local(3) & Causal()
    assert "causal" | Local(3) == Causal() | Local(3)
    assert "causal" & PerHead([Local(3)]) == PerHead([Local(3) & Causal()])
    saved = keras.saving.serialize_keras_object(PerHead(["causal", "dense"]))
    assert repr(keras.saving.deserialize_keras_object(saved)) == "PerHead([Causal(), Dense()])"
    figure = viz.plot_pattern("causal", 4)
    assert figure.axes[0].get_title() == "Causal()"


def test_closest_ignores_case_and_signs():
    expected = {
        "locl": "local",
        "BLOCK-LOCAL 1D": "block_local_1d",
        "window": "local",  # another library's word
        "banana": None,
    }
    assert {x: closest(x, ["local", "block_local_1d", "causal"]) for x in expected} == expected


def test_help_shows_the_arguments_of_the_constructor():
    assert list(inspect.signature(callbacks.Resume).parameters) == [
        "directory",
        "every_steps",
        "keep",
    ]
    assert "beta_1" in inspect.signature(optimizers.Adam).parameters


def test_a_subclass_may_take_keywords_of_its_own():
    class Mine(MultiHeadAttention):
        def __init__(self, *args, **kwargs):
            self.colour = kwargs.pop("colour", None)
            super().__init__(*args, **kwargs)

    assert Mine(2, 4, colour="red").colour == "red"

    class Narrow(Pattern):
        def __init__(self, colour):
            self.colour = colour

    assert "`Narrow` has no argument `color`. Did you mean `colour`?" in message_of(
        lambda: Narrow(color="red")
    )
