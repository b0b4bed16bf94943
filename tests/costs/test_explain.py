"""`explain`: parameters, tables and errors."""

import json

import keras
import numpy as np
import pytest
from marks import slow

import keras_attn
from keras_attn import depth, layers, patterns, scores
from keras_attn.commands.explain import main
from keras_attn.compat.unallocated import without_values
from keras_attn.costs import layer_costs, products
from keras_attn.models.paper_sizes import PRESETS


def lengths(name):
    """Lengths at which a preset can be explained: those of an axial position are fixed."""
    return 65536 if name == "reformer_enwik8" else 64


@pytest.mark.slow
def test_the_parameters_of_two_layers_of_a_preset_of_each_builder_are_exact():
    """A layer that is left out or counted twice is found in two of them."""
    first_of_builder = {builder: name for name, (builder, _) in reversed(PRESETS.items())}
    for name in first_of_builder.values():
        _, sizes = PRESETS[name]
        num_layers = min(sizes["num_layers"], 2)
        with without_values():
            model = keras_attn.models.create(name, num_layers=num_layers)
        costs = keras_attn.explain(model, lengths(name))
        assert costs.total.parameters == sum(int(np.prod(w.shape)) for w in model.weights), name
        assert costs.total.forward_flops > 0, name


@pytest.mark.slow
def test_the_numbers_are_a_dict_that_json_can_write():
    costs = keras_attn.explain("transformer_tiny", 32, batch_size=3)
    numbers = json.loads(json.dumps(costs.to_dict()))
    assert numbers["batch_size"] == 3 and numbers["length"] == 32
    flops = sum(layer["forward_flops"] for layer in numbers["layers"])
    assert numbers["total"]["forward_flops"] == flops == costs.total.forward_flops


@pytest.mark.slow
def test_layers_that_are_alike_share_a_row_of_the_table(capsys):
    main(["llama3_2_1b", "--length", "512", "--precision", "mixed_bfloat16"])
    table = capsys.readouterr().out
    assert "16 x MultiHeadAttention" in table and "1.24 G" in table


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["transformer_tin", "--length", "5"], "did you mean 'transformer_tiny' or"),
        (["transformer_tiny", "--length", "0"], "`length` must be an integer of at least 1."),
        (["transformer_tiny", "--length", "5", "--precision", "float7"], "'float7'"),
        (
            ["bert_base", "--length", "513"],
            "the positions of 'bert_base'; for more call `explain(models.create(",
        ),
    ],
)
def test_the_command_line_refuses_in_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message.lower() in error.lower() and error.count("\n") == 1
    assert error.startswith("keras-attn explain: ")


@pytest.fixture(scope="module")
def small():
    return keras_attn.models.gpt(31, num_layers=1, num_heads=2, hidden_dim=8, max_length=7)


def test_a_model_is_unchanged_and_its_layers_are_not_run(small):
    ids = np.array([[3, 5, 7]])
    before = keras.ops.convert_to_numpy(small(ids))
    keras_attn.explain(small, 7, batch_size=10**9)
    np.testing.assert_array_equal(before, keras.ops.convert_to_numpy(small(ids)))
    assert "call" not in vars(small.depth)


class Unknown(keras.layers.Layer):
    def call(self, x):
        return keras.ops.matmul(x, keras.ops.swapaxes(x, -1, -2))


def test_a_layer_of_ones_own_without_kernels_is_named():
    x = inputs = keras.Input((None, 4))
    x = layers.MultiHeadAttention(2, 3)(x, x)
    costs = keras_attn.explain(keras.Model(inputs, Unknown()(x)), 5)
    assert "Unknown is not counted." in str(costs)


class Squared(scores.Score):
    def __call__(self, query, key, query_positions=None, key_positions=None):
        return keras.ops.matmul(query, keras.ops.swapaxes(key, -1, -2)) ** 2


class Counted(Squared):
    def products_of_tile(self, length, num_keys, head_dim, has_table):
        return 2 * length * num_keys * head_dim


def test_a_score_of_ones_own_that_counts_no_products_is_named():
    def notes_of(score):
        x = inputs = keras.Input((None, 4))
        outputs = layers.MultiHeadAttention(2, 3, score=score)(x, x)
        return keras_attn.explain(keras.Model(inputs, outputs), 5).notes

    expected = ["Squared is counted as a dot product."]
    capped = scores.SoftCap(Squared() + scores.ALiBi(), 5.0)
    assert notes_of(Squared()) == notes_of(capped) == expected
    assert notes_of(Counted()) == []


def test_a_length_that_a_layer_refuses_is_refused_in_its_words(small):
    with pytest.raises(ValueError, match="^`x` is longer than the table of positions"):
        keras_attn.explain(small, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transformer_tin", 8), "`model` must be one of .* Did you mean 'transformer_tiny'"),
        (("bert_base", 513), "`length` must be at most 512, the positions of 'bert_base'"),
        (("transformer_tiny", 0), "`length` must be an integer of at least 1. Received: length=0"),
        (("transformer_tiny", 2.5), "`length` must be an integer"),
        (("transformer_tiny", 8, 0), "`batch_size` must be an integer of at least 1"),
        ((keras.Sequential(), 8), "`model` must be the name of a preset, or a functional"),
        ((keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), 8), "that it calls"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.explain(*arguments)


def test_memory_of_weights_follows_from_their_number(small):
    count = sum(int(np.prod(w.shape)) for w in small.weights)
    costs = keras_attn.explain(small, 7)
    memory = costs.memory
    assert costs.total.parameters == count
    assert memory.weights == memory.gradients == 4 * count and memory.optimizer == 8 * count
    assert keras_attn.explain(small, 7, optimizer="sgd").memory.optimizer == 0


@pytest.mark.parametrize(("pattern", "slots"), [("causal", 11), (patterns.Local(5), 5)])
def test_a_cache_has_the_keys_and_values_that_the_pattern_reads(pattern, slots):
    x = inputs = keras.Input((None, 12))
    layer = layers.MultiHeadAttention(6, 5, 3, num_key_value_heads=2, pattern=pattern)
    costs = keras_attn.explain(keras.Model(inputs, layer(x, x)), 11, batch_size=7)
    caches = 7 * 2 * slots * (5 + 3) * 4
    assert costs.total.cache_bytes == caches
    assert costs.memory.decoding == costs.memory.weights + caches
    assert costs.memory.per_token == costs.memory.decoding // 7


def test_scores_are_kept_by_the_whole_matrix_only():
    def scores_of(implementation):
        x = inputs = keras.Input((None, 12))
        options = {"pattern": "causal", "implementation": implementation}
        layer = layers.MultiHeadAttention(3, 4, **options)
        return keras_attn.explain(keras.Model(inputs, layer(x, x)), 1031, 2).total.score_bytes

    assert scores_of("dense") == 2 * 3 * 1031 * 1031 * 4
    assert scores_of("blockwise") == 0


def block(index):
    attention = layers.MultiHeadAttention(2, 8, pattern="causal")
    return layers.TransformerBlock(attention, layers.FeedForward(64), residual="pre_norm")


@pytest.mark.slow
def test_recomputed_blocks_keep_less_than_others():
    def training(make):
        embedding = layers.TokenEmbedding(31, 16)
        model = keras_attn.models.CausalLanguageModel(embedding, make(block))
        return keras_attn.explain(model, 257, 3).memory.training

    plain = training(lambda block: depth.Stack(block, 5))
    remat = training(lambda block: depth.Stack(block, 5, remat=True))
    reversible = training(lambda block: depth.Reversible(block, 5))
    assert reversible < remat < plain / 2


def activations(model, length=257, batch_size=3):
    """Bytes of a training step but for weights, their gradients and the optimizer."""
    memory = keras_attn.explain(model, length, batch_size).memory
    return memory.training - memory.weights - memory.gradients - memory.optimizer


@pytest.mark.slow
def test_a_depth_that_is_called_twice_keeps_as_much_as_two():
    def model(*stacks):
        x = inputs = keras.Input((None, 16))
        for stack in stacks:
            x = stack(x)
        return keras.Model(inputs, x)

    shared = depth.Stack(block, 2, remat=True)
    others = [depth.Stack(block, 2, remat=True) for _ in range(2)]
    assert activations(model(shared, shared)) == activations(model(*others))


@pytest.mark.slow
def test_a_shared_block_that_is_recomputed_has_the_peak_of_as_many_blocks():
    embedding = layers.TokenEmbedding(31, 16)
    one, many = (
        activations(keras_attn.models.CausalLanguageModel(embedding, made))
        for made in (depth.Recurrent(block, 3, remat=True), depth.Stack(block, 3, remat=True))
    )
    assert one == many


@pytest.mark.slow
def test_any_head_keeps_its_logits():
    def model(head):
        embedding = layers.TokenEmbedding(2003, 16)
        return keras_attn.models.CausalLanguageModel(embedding, depth.Stack(block, 1), head=head)

    tied, untied = (activations(model(head)) for head in (None, keras.layers.Dense(2003)))
    assert tied == untied


class Pieces(keras.layers.Layer):
    vocabulary_size = 7

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], 5))

    def call(self, token_vectors):
        return token_vectors @ self.kernel


def test_a_layer_of_ones_own_names_its_argument_as_it_likes():
    x = inputs = keras.Input((None, 4))
    x = Pieces()(layers.MultiHeadAttention(2, 3)(x, x))
    assert keras_attn.explain(keras.Model(inputs, x), 5).total.parameters > 0


@pytest.mark.slow
def test_steps_of_a_shared_block_share_the_keys_of_the_other_sequence():
    def caches(num_steps):
        model = keras_attn.models.universal_transformer(31, num_steps, 2, 8, 16)
        return keras_attn.explain(model, 11, 2).total.cache_bytes

    one = 2 * 11 * 2 * 8 * 4  # rows, keys, keys and values, width, bytes
    assert [caches(n) for n in (1, 3)] == [2 * one, 4 * one]


def test_a_fused_kernel_keeps_no_scores(monkeypatch):
    x = inputs = keras.Input((None, 12))
    layer = layers.MultiHeadAttention(3, 4, pattern="causal", implementation="dense")
    model = keras.Model(inputs, layer(x, x))
    before = keras_attn.explain(model, 61).total

    def chosen(*arguments, choose=products.choose):
        return choose(*arguments).replace(implementation="fused")

    monkeypatch.setattr(products, "choose", chosen)
    fused = keras_attn.explain(model, 61).total
    assert fused.score_bytes == 0 < before.score_bytes
    assert fused.forward_flops == before.forward_flops


def test_layers_of_keras_that_are_not_counted_in_full_are_named():
    x = inputs = keras.Input((None, 4))
    x = layers.MultiHeadAttention(2, 3)(x, x)
    x = keras.layers.LSTM(4, return_sequences=True)(keras.layers.MultiHeadAttention(2, 3)(x, x))
    notes = keras_attn.explain(keras.Model(inputs, x), 5).notes
    assert "MultiHeadAttention of Keras is counted without its scores." in notes
    assert "LSTM is counted for a step or two, not for each position." in notes


def test_a_batch_of_the_model_is_that_of_the_costs():
    x = inputs = keras.Input((None, 4), batch_size=8)
    model = keras.Model(inputs, layers.MultiHeadAttention(2, 3)(x, x))
    with pytest.raises(ValueError, match="that of the model's inputs, 8. Received: batch_size=1"):
        keras_attn.explain(model, 5)
    assert keras_attn.explain(model, 5, batch_size=8).total.parameters > 0


def test_what_does_not_fit_is_named(small):
    needed = keras_attn.explain(small, 7).memory
    costs = keras_attn.explain(small, 7, memory=(needed.decoding + needed.training) / 2)
    assert "Training does not fit: it needs about" in str(costs)
    assert "Decoding does not fit" not in str(costs)
    assert not keras_attn.explain(small, 7, memory=24e9).notes
    with pytest.raises(ValueError, match="`memory` must be a number.* Received: memory='24 GB'"):
        keras_attn.explain(small, 7, memory="24 GB")


def reach_of(*chosen, length=37):
    x = inputs = keras.Input((None, 8))
    for pattern in chosen:
        x = layers.MultiHeadAttention(2, 4, pattern=pattern)(x, x)
    return keras_attn.explain(keras.Model(inputs, x), length)


@pytest.mark.slow
def test_windows_reach_further_layer_by_layer():
    """Table 1 of Vaswani et al.: a path of n / r layers, where a dense layer needs one."""
    window = patterns.Local(5)
    costs = reach_of(window, window, window)
    assert [layer.most_keys for layer in costs.layers] == [5, 5, 5]
    assert costs.reach == (1 + 3 * 4, 36 // 4, 3)
    assert reach_of("dense").reach == reach_of("causal").reach == (37, 1, 1)


def test_two_factors_connect_all_positions():
    """Section 4.2 of Child et al.: p + 1 positions, both ends included, for p = 2 factors."""
    factors = patterns.Strided(6, "column"), patterns.Strided(6, "local")
    assert reach_of(*factors).reach == (37, 2, 2)


@pytest.mark.slow
def test_keys_and_reach_are_those_of_the_layers():
    """Patches and a class token are the keys of an image; a memory's slots come before a text."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 7}
    image = keras_attn.models.vit(3, image_shape=(12, 12, 3), patch_size=4, **sizes)
    costs = keras_attn.explain(image, 4096)
    assert {layer.most_keys for layer in costs.layers} == {None, 3 * 3 + 1}
    assert costs.reach.receptive_field == 3 * 3 + 1
    text = keras_attn.models.transformer_xl(31, memory_length=12, **sizes)
    costs = keras_attn.explain(text, 4)
    assert {layer.most_keys for layer in costs.layers} == {None, 12 + 4}
    assert costs.reach.receptive_field == 12 + 4


def test_a_window_reads_a_memory_before_its_first_query():
    query, memory = keras.Input((4, 8)), keras.Input((12, 8))
    value = keras.layers.Concatenate(axis=1)([memory, query])
    attend = layers.MultiHeadAttention(2, 4, pattern=patterns.Local(7))
    costs = keras_attn.explain(keras.Model([query, memory], attend(query, value)), 4)
    assert [layer.most_keys for layer in costs.layers] == [7]


def test_the_reach_of_a_long_input_is_known():
    costs = reach_of(patterns.Local(67), patterns.Local(131), length=65_537)
    steps = 65_536 // (66 + 130) * 2 + 1  # 72 positions are left for one layer more
    assert costs.reach == (1 + 66 + 130, steps, 2) and "receptive field 197" in str(costs)
    assert [layer.most_keys for layer in costs.layers] == [67, 131]


def reach_by_matrices(chosen, length):
    """The receptive field and the longest path, from products of whole matrices."""
    at = np.arange(length, dtype="int32")
    pairs = [keras.ops.convert_to_numpy(pattern.allowed(at, at)) for pattern in chosen]
    pairs = [matrix.any(axis=tuple(range(matrix.ndim - 2))) for matrix in pairs]
    seen = np.eye(length, dtype=bool)[[0, length // 2, length - 1]]
    field, path = None, 0
    for step in range(1, 3 * length * len(pairs)):
        after = seen | (seen @ pairs[-step % len(pairs)])
        path, seen = (path if (after == seen).all() else step), after
        if step == len(pairs):
            field = int(seen.sum(axis=-1).max())
    return field, path


NARROW = patterns.Local(4) & patterns.Strided(3)
BOTH_SIDES = patterns.Local(3, causal=False)


@pytest.mark.parametrize(
    "chosen",
    [
        slow((patterns.Dilated(3, 5), NARROW)),
        (BOTH_SIDES, patterns.Strided(5, "column"), BOTH_SIDES),
        slow((patterns.PerHead([patterns.Local(2), patterns.Fixed(7, 2)]),)),
        slow((patterns.Local(3) | patterns.Global(2), patterns.Causal())),
        slow((patterns.BlockLocal1D(5, 2), patterns.Prefix(3))),
        slow((BOTH_SIDES | patterns.Random(4, 1, 79), NARROW)),
    ],
)
def test_the_reach_is_that_of_matrices(monkeypatch, chosen):
    monkeypatch.setattr(layer_costs, "QUERIES_AT_ONCE", 5)
    costs = layer_costs.reach_of(chosen, 79, 0)
    assert costs[:2] == reach_by_matrices(chosen, 79)
    at = np.arange(79, dtype="int32")
    for pattern in chosen:
        pairs = keras.ops.convert_to_numpy(pattern.allowed(at, at))
        pairs = pairs.any(axis=tuple(range(pairs.ndim - 2)))
        assert layer_costs.most_keys(pattern, 79, 79) == pairs.sum(axis=-1).max()


def test_a_functional_model_of_ones_own():
    """A mask argument of Keras's, another attention layer, and text as the input."""
    x = inputs = keras.Input((None, 12))
    pattern = patterns.Local(3, causal=False)
    attend = layers.MultiHeadAttention(2, 4, pattern=pattern)
    x = attend(keras.layers.Dense(12)(x), x, use_causal_mask=True)
    costs = keras_attn.explain(keras.Model(inputs, x), 17)
    assert costs.reach[:2] == (3, 8) and costs.layers[-1].most_keys == 3
    theirs = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 4)(inputs, inputs))
    costs = keras_attn.explain(theirs, 17)
    assert costs.total.parameters == theirs.count_params()
    assert costs.notes == ["MultiHeadAttention of Keras is counted without its scores."]
    words = keras.Input((None,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=["a", "b"])(words)
    x = keras.layers.Embedding(3, 12)(ids)
    x = keras.Model(words, layers.MultiHeadAttention(2, 4)(x, x))
    assert keras_attn.explain(x, 17).reach.receptive_field == 17


def test_the_loss_holds_the_logits_three_times():
    """The logits, their probabilities and their gradient, in float32."""

    def held(vocabulary_size):
        inputs = keras.Input((None, 12))
        x = layers.MultiHeadAttention(2, 4, pattern="causal")(inputs, inputs)
        return activations(keras.Model(inputs, keras.layers.Dense(vocabulary_size)(x)), 257, 3)

    assert held(5003) - held(3001) == 3 * (5003 - 3001) * 3 * 257 * 4
