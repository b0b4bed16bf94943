"""LiteRT files: their signatures run in LiteRT's interpreter as the models do in Python."""

import functools
import os
import sys

import keras
import numpy as np
import oracles
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_attn import depth, export, layers, models, patterns, text
from keras_attn.commands.export import main
from keras_attn.export._litert.files import read_record
from keras_attn.export.signatures.cached_steps import CachedSteps
from keras_attn.export.signatures.model_functions import ModelFunctions
from keras_attn.generation import Beam, Sample, complete, generate

V, L = 11, 7
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 13}
MODELS = {
    "gpt": lambda: models.gpt(V, **SIZES, max_length=64),
    "transformer": lambda: models.transformer(V, **SIZES),
    "bert": lambda: models.bert(V, **SIZES, max_length=16),
    "mistral": lambda: models.mistral(V, **SIZES, window=5),
    "transformer_xl": lambda: models.transformer_xl(V, **SIZES, memory_length=6),
    "compressive_transformer": lambda: models.compressive_transformer(
        V, **SIZES, memory_length=2, rate=2
    ),
    "image_transformer": lambda: models.image_transformer(V, (2, 3, 1), **SIZES, num_mixtures=2),
    "vit": lambda: models.vit(3, (4, 4, 1), 2, **SIZES),
}


def int32(x):
    return np.asarray(x, "int32")


# Rows of different lengths, with ids after them that are not read.
IDS = int32([[5, 7, 9, 10, 4], [8, 4, 1, 2, 7], [6, 1, 5, 1, 1]])
LENGTHS = int32([5, 2, 3])


@pytest.fixture(scope="module")
def made():
    """A function (name) -> model, built once."""

    @functools.cache
    def made(name):
        return vary(MODELS[name]())

    return made


def vary(model):
    """Give a model weights by which it generates different tokens, and return it."""
    oracles.scramble(model, seed=5, scale=0.7)
    for weight in model.weights:
        value = keras.ops.convert_to_numpy(weight)
        if weight.name == "beta" or "bias" in weight.path:
            weight.assign(0.1 * value)
        elif weight.name == "gamma":
            weight.assign(np.ones_like(value))
        elif weight.name == "table":
            weight.assign(value / np.linalg.norm(value, axis=-1, keepdims=True))
    return model


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    """A function (name, ...) -> path of the file with these signatures, written once."""
    folder = tmp_path_factory.mktemp("litert")

    @functools.cache
    def written(name, *signatures, **options):
        path = str(folder / f"{name}{len(os.listdir(folder))}.tflite")
        signatures = list(signatures) or None
        assert export.litert(made(name), path, signatures, max_length=L, **options) == path
        return path

    return written


def opened(path):
    """The file's signatures as functions of arrays by name, a dict."""
    interpreter = Interpreter(path)
    return {
        name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()
    }


def choose(logits):
    """The likeliest next tokens (B, 1) of logits (B, T, V)."""
    return int32(logits[:, -1].argmax(axis=-1)[:, None])


def ids_by_steps(file, inputs, most=L):
    """Ids (B, L) of the greedy loop that a client runs: a prompt, then step by step."""
    state = file["start"](**inputs)
    tokens = [choose(state.pop("logits"))]
    for _ in range(most - 1):
        outputs = file["step"](token_ids=tokens[-1], **state)
        tokens.append(choose(outputs.pop("logits")))
        state |= outputs
    return np.concatenate(tokens, axis=1)


def test_a_masked_model_gives_features_and_logits(made, written):
    model, path = made("bert"), written("bert")
    file = opened(path)
    assert set(file) == {"encode", "logits"}
    mask = np.arange(5) < LENGTHS[:, None]
    ids = np.where(mask, IDS, 0)
    expected = keras.ops.convert_to_numpy(model({"token_ids": ids}))[mask]
    logits = file["logits"](token_ids=IDS, lengths=LENGTHS)["logits"]
    np.testing.assert_allclose(logits[mask], expected, atol=1e-5)
    features = file["encode"](token_ids=IDS, lengths=LENGTHS)["features"]
    by_head = keras.ops.convert_to_numpy(model.head(features))[mask]
    np.testing.assert_allclose(by_head, expected, atol=1e-5)
    # LiteRT has no assertions: the nearest ids are read.
    outside = file["logits"](token_ids=int32([[-2, V + 3, 4]]), lengths=int32([3]))["logits"]
    nearest = file["logits"](token_ids=int32([[0, V - 1, 4]]), lengths=int32([3]))["logits"]
    np.testing.assert_array_equal(outside, nearest)


def test_inspect_reads_the_file_and_runs_its_examples(made, written, tmp_path, capsys):
    path = written("bert")
    inspection = export.inspect(path)
    assert inspection.signatures["encode"] == {
        "inputs": {"lengths": ("int32", (None,)), "token_ids": ("int32", (None, None))},
        "outputs": {"features": ("float32", (None, None, 8))},
    }
    assert inspection.outcomes == {"encode": "same", "logits": "same"} and not inspection.faults
    assert inspection.precision == "float32" and inspection.errors == {}
    assert inspection.ops["GATHER"] and not inspection.custom_ops
    table = keras.ops.convert_to_numpy(made("bert").embedding.table)
    assert inspection.file_bytes == os.path.getsize(path) > inspection.weight_bytes > table.nbytes
    other = tmp_path / "other.tflite"
    with open(path, "rb") as file:
        content = file.read()
    assert table.tobytes() in content
    other.write_bytes(content.replace(table.tobytes(), (table[::-1]).tobytes()))
    assert main(["inspect", str(other)]) == 1
    assert "differ from the recorded ones for encode, logits" in capsys.readouterr().err
    other.write_bytes(b"no model")
    with pytest.raises(ValueError, match="damaged, or it is not a LiteRT file"):
        export.inspect(other)


def test_unsuitable_models_and_arguments_are_refused(made, tmp_path, monkeypatch):
    path, bert = tmp_path / "x.tflite", made("bert")
    with pytest.raises(ValueError, match="one of 'encode', 'logits'. Received: signatures='step'"):
        export.litert(bert, path, ["logits", "step"])
    with pytest.raises(ValueError, match="`signatures` must be a list.*'logits'"):
        export.litert(bert, path, "logits")
    with pytest.raises(ValueError, match="`model` must be a `keras.Model`. Received: model=3"):
        export.litert(3, path)
    with pytest.raises(ValueError, match="max_length=0"):
        export.litert(bert, path, max_length=0)
    with pytest.raises(ValueError, match="one of None, 'float16', 'int8'.*quantize='int4'"):
        export.litert(bert, path, quantize="int4")
    with pytest.raises(ValueError, match="strategy='greedy'"):
        export.litert(bert, path, strategy="greedy")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = MODELS["bert"]()
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match="float32: load it under that policy. Received: bfloat16"):
        export.litert(half, path)
    adapted = MODELS["gpt"]()
    layers.add_lora(adapted, rank=2)
    with pytest.raises(ValueError, match="merge_lora"):
        export.litert(adapted, path)
    with monkeypatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: "jax")
        with pytest.raises(ValueError, match="TensorFlow backend.*backend='jax'"):
            export.litert(bert, path)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[litert\]'"):
        export.litert(bert, path)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[litert\]'"):
        path.write_bytes(b"")
        export.inspect(path)


def test_steps_of_rows_of_different_lengths_equal_one_pass(made):
    """The graph functions, before they are converted."""
    model, more = made("gpt"), int32([[3, 9, 1], [1, 2, 6], [10, 4, 4]])
    steps = CachedSteps(model)
    _, *state = steps.start(IDS, LENGTHS).values()
    logits, *state = steps.step(more[:, :1], *state).values()
    logits = np.concatenate([logits, steps.step(more[:, 1:], *state)["logits"]], axis=1)
    for row, length in enumerate(LENGTHS):
        whole = np.concatenate([IDS[row, :length], more[row]])[None]
        expected = keras.ops.convert_to_numpy(model({"token_ids": whole}))
        np.testing.assert_allclose(logits[row], expected[0, length:], atol=1e-4)


@pytest.mark.slow
def test_variables_that_the_file_lacks_are_noticed(made, tmp_path, monkeypatch):
    """With Keras's variables in the place of TensorFlow's, a file converts and gives NaN."""
    make_resources = ModelFunctions.make_resources

    def with_keras_variables(functions):
        resources = make_resources(functions)
        resources.weights = made("bert").weights
        return resources

    monkeypatch.setattr(ModelFunctions, "make_resources", with_keras_variables)
    path = tmp_path / "bert.tflite"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match="of the signature 'logits' .*, so no file was written"):
        export.litert(made("bert"), path, ["logits"])
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["bert.tflite"]


class Bits(keras.layers.Layer):
    """Layer with an operation that LiteRT lacks."""

    def call(self, x):
        bits = keras.ops.bitwise_and(keras.ops.cast(x, "int32"), 3)
        return x + keras.ops.cast(bits, x.dtype)


@pytest.mark.slow
def test_operations_that_litert_lacks_are_named(tmp_path):
    model = models.Classifier(
        layers.TokenEmbedding(V, 8),
        depth.Stack([layers.TransformerBlock(layers.MultiHeadAttention(2, 4), Bits())]),
        num_classes=2,
    )
    with pytest.raises(ValueError, match="cannot be converted to LiteRT. Received: BitwiseAnd."):
        export.litert(model, tmp_path / "new" / "x.tflite")
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "transformer", "mistral"])
def test_steps_give_the_tokens_of_the_loop_and_of_generate(name, made, written):
    model, file = made(name), opened(written(name, eos_id=-1))
    assert set(file) == {"logits", "start", "step", "generate"}
    names = ["token_ids", "lengths"] if model.reads_prompt else ["source_ids", "source_lengths"]
    inputs = dict(zip(names, (IDS, LENGTHS), strict=True))
    expected, scores = generate(model, IDS, max_length=L, lengths=LENGTHS, eos_id=-1)
    assert len(np.unique(expected)) > 2
    outputs = file["generate"](**inputs)
    np.testing.assert_array_equal(outputs["ids"], expected)
    np.testing.assert_allclose(outputs["score"], scores, rtol=1e-5)
    np.testing.assert_array_equal(ids_by_steps(file, inputs), expected)
    alone = dict(zip(names, (IDS[1:2, :2], LENGTHS[1:2]), strict=True))
    np.testing.assert_array_equal(file["generate"](**alone)["ids"], expected[1:2])
    np.testing.assert_array_equal(ids_by_steps(file, alone), expected[1:2])
    nothing = file["generate"](**{**inputs, names[1]: int32([0, 2, 0])})
    assert not nothing["ids"][[0, 2]].any() and nothing["score"][0] == 0
    np.testing.assert_array_equal(nothing["ids"][1], expected[1])


@pytest.mark.slow
def test_a_step_may_read_several_tokens(made, written):
    """Rows of different lengths continue at positions of their own."""
    model, file = made("gpt"), opened(written("gpt", eos_id=-1))
    state = file["start"](token_ids=IDS, lengths=LENGTHS)
    state.pop("logits")
    more = int32([[3, 9, 1], [1, 2, 6], [10, 4, 4]])
    logits = file["step"](token_ids=more, **state)["logits"]
    outside, nearest = int32([[-1], [V], [5]]), int32([[0], [V - 1], [5]])
    clipped = file["step"](token_ids=nearest, **state)["logits"]
    np.testing.assert_array_equal(file["step"](token_ids=outside, **state)["logits"], clipped)
    for row, length in enumerate(LENGTHS):
        whole = np.concatenate([IDS[row, :length], more[row]])[None]
        expected = keras.ops.convert_to_numpy(model({"token_ids": whole}))
        np.testing.assert_allclose(logits[row], expected[0, length:], atol=1e-4)
        again = file["logits"](token_ids=whole, lengths=int32([length + 3]))["logits"]
        np.testing.assert_allclose(again, expected, atol=1e-4)


@pytest.mark.slow
def test_logits_of_targets_are_those_of_the_model(made, written):
    model, file = made("transformer"), opened(written("transformer", eos_id=-1))
    targets = int32([[2, 9, 1, 5], [2, 2, 6, 4], [2, 4, 4, 8]])
    inputs = {"source_ids": IDS, "source_lengths": LENGTHS, "target_ids": targets}
    sources = np.where(np.arange(5) < LENGTHS[:, None], IDS, 0)
    expected = model({"source_ids": sources, "target_ids": targets})
    np.testing.assert_allclose(file["logits"](**inputs)["logits"], expected, atol=1e-4)
    outside = np.where(targets == 9, V + 2, np.where(targets == 1, -1, targets))
    nearest = np.where(targets == 9, V - 1, np.where(targets == 1, 0, targets))
    results = [
        file["logits"](**{**inputs, "target_ids": int32(ids)})["logits"]
        for ids in (outside, nearest)
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.slow
def test_sampling_reads_its_noise_and_beams_none(made, written):
    model, sample = made("gpt"), Sample(temperature=0.8, top_p=0.9, seed=5)
    noise = keras.ops.convert_to_numpy(sample.noise(L, 3))
    file = opened(written("gpt", "generate", strategy=sample))
    outputs = file["generate"](token_ids=IDS, lengths=LENGTHS, noise=noise)
    expected, scores = generate(model, IDS, sample, max_length=L, lengths=LENGTHS)
    np.testing.assert_array_equal(outputs["ids"], expected)
    np.testing.assert_allclose(outputs["score"], scores, rtol=1e-4)
    # Other numbers give other texts.
    others = file["generate"](token_ids=IDS, lengths=LENGTHS, noise=1 - noise)["ids"]
    assert (others != outputs["ids"]).any()
    beam = Beam(3)
    file = opened(written("transformer", "generate", strategy=beam))
    outputs = file["generate"](source_ids=IDS, source_lengths=LENGTHS)
    expected, scores = generate(made("transformer"), IDS, beam, max_length=L, lengths=LENGTHS)
    np.testing.assert_array_equal(outputs["ids"], expected)
    np.testing.assert_allclose(outputs["score"], scores, rtol=1e-4)


@pytest.mark.slow
def test_images_are_drawn_by_noise_and_scored(made, written):
    file, generator = opened(written("image_transformer")), export.ImageGenerator
    generator = generator(made("image_transformer"))
    shape = file["generate"].get_input_details()["noise"]["shape_signature"]
    noise = np.random.default_rng(0).uniform(size=(shape[0], 3, shape[2])).astype("float32")
    images = file["generate"](noise=noise)["images"]
    assert images.shape == (3, 2, 3, 1)
    np.testing.assert_array_equal(images, generator.images_by_noise(noise)["images"])
    bits = generator.score(images)["bits_per_dim"]
    np.testing.assert_allclose(file["score"](images=images)["bits_per_dim"], bits, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer_xl", "compressive_transformer"])
def test_steps_with_a_memory_equal_one_pass(name, made, written):
    """A segment may be longer than the memory, and rows may have different numbers of tokens."""
    model, file = made(name), opened(written(name))
    state, logits = file["initial_memory"](batch_size=int32(3)), []
    token_ids = int32(np.random.default_rng(1).integers(1, V, (3, 13)))
    in_python = model.initial_memory(3)
    for tokens in np.split(token_ids, (2, 11), axis=1):
        lengths = int32([tokens.shape[1]] * 3)
        outputs = file["step"](token_ids=tokens, lengths=lengths, **state)
        logits.append(outputs.pop("logits"))
        state = outputs
        expected = model({"token_ids": tokens, **in_python})
        np.testing.assert_allclose(logits[-1], expected.pop("logits"), atol=1e-4)
        in_python = expected


@pytest.mark.slow
def test_classifiers_give_probabilities_and_classes(made, written, tmp_path):
    images = np.random.default_rng(0).normal(size=(5, 4, 4, 1)).astype("float32")
    outputs = opened(written("vit"))["classify"](images=images)
    logits = keras.ops.convert_to_numpy(made("vit")(images))
    np.testing.assert_array_equal(outputs["class"], logits.argmax(axis=1))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    kinds = [(1, "regress", "value"), (None, "embed", "features"), (3, "classify", "probabilities")]
    for num_classes, name, output in kinds:
        block = layers.TransformerBlock(layers.MultiHeadAttention(2, 4), layers.FeedForward(13))
        embedding = layers.TokenEmbedding(V, 8)
        several = name == "classify"
        model = models.Classifier(
            embedding, depth.Stack([block]), num_classes=num_classes, multi_label=several
        )
        oracles.scramble(model)
        path = export.litert(model, tmp_path / f"{name}.tflite")
        run = opened(path)[name]
        values = run(token_ids=IDS, lengths=LENGTHS)[output]
        ids = np.where(np.arange(5) < LENGTHS[:, None], IDS, 0)
        expected = keras.ops.convert_to_numpy(model({"token_ids": ids}))
        expected = 1 / (1 + np.exp(-expected)) if several else expected
        np.testing.assert_allclose(values.ravel(), expected.ravel(), atol=1e-5)


@pytest.mark.slow
def test_a_model_of_ones_own_reads_ids(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, 8, mask_zero=True)(ids)
    for pattern in (patterns.Local(9, causal=False), "causal"):  # more keys than a head has units
        attention = layers.MultiHeadAttention(2, 4, pattern=pattern)
        x = layers.TransformerBlock(attention, layers.FeedForward(13))(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(ids, keras.layers.Dense(3)(x))
    oracles.scramble(model)
    path = export.litert(model, tmp_path / "own.tflite", kind="classify")
    outputs = opened(path)["classify"](token_ids=IDS, lengths=LENGTHS)
    logits = model.predict(np.where(np.arange(5) < LENGTHS[:, None], IDS, 0), verbose=0)
    np.testing.assert_array_equal(outputs["class"], logits.argmax(axis=1))
    expected = keras.ops.softmax(logits)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    with pytest.raises(ValueError, match="`kind` must be one of .*Received: kind='tag'"):
        export.litert(model, tmp_path / "own.tflite", kind="tag")
    with pytest.raises(ValueError, match="`strategy` must be None"):
        export.litert(model, tmp_path / "own.tflite", strategy="greedy")


@pytest.mark.slow
def test_actions_are_those_of_the_steps_of_an_episode(tmp_path):
    sizes = {**SIZES, "max_steps": 23}
    model = models.decision_transformer(3, 2, **sizes)
    oracles.scramble(model)
    run = opened(export.litert(model, tmp_path / "x.tflite"))["act"]
    random = np.random.default_rng(0)
    shapes = {"returns": (3, 5), "states": (3, 5, 3), "actions": (3, 5, 2)}
    episodes = {name: random.normal(size=n).astype("float32") for name, n in shapes.items()}
    actions = run(**episodes, lengths=LENGTHS)["actions"]
    for row, length in enumerate(LENGTHS):
        alone = {name: x[row : row + 1, :length] for name, x in episodes.items()}
        np.testing.assert_allclose(actions[row, :length], model(alone)[0], atol=1e-5)


@pytest.mark.slow
def test_weights_in_fewer_bits_tell_their_errors(tmp_path):
    model = models.bert(257, 1, 2, 32, 128, max_length=64)
    oracles.scramble(model)
    random = np.random.default_rng(3)
    ids, lengths = int32(random.integers(1, 257, (3, 40))), int32([40, 7, 23])
    mask = np.arange(40) < lengths[:, None]
    expected = keras.ops.convert_to_numpy(model({"token_ids": np.where(mask, ids, 0)}))[mask]
    sizes, worst = {}, {}
    for precision in (None, "float16", "int8"):
        path = export.litert(model, tmp_path / "x.tflite", ["logits"], quantize=precision)
        inspection = export.inspect(path)
        logits = opened(path)["logits"](token_ids=ids, lengths=lengths)["logits"][mask]
        error = np.abs(logits - expected).max() / np.abs(expected).max()
        sizes[precision] = inspection.weight_bytes
        assert inspection.precision == precision or precision is None
        if precision is not None:
            recorded = inspection.errors["logits"]["logits"]
            # Of other ids, so of the same size.
            assert recorded / 3 < error < 3 * recorded
            worst[precision] = error
    assert 1e-6 < worst["float16"] < 3e-3 < worst["int8"] < 0.2
    assert sizes["float16"] < 0.6 * sizes[None] and sizes["int8"] < 0.4 * sizes[None]


@pytest.mark.slow
def test_the_command_writes_files_that_measure_compares(tmp_path, capsys):
    tokenizer = text.Characters("abcdefg ")
    model = models.gpt(tokenizer.vocabulary_size, **SIZES, max_length=64)
    vary(model).save(tmp_path / "model.keras")
    tokenizer.save(tmp_path / "characters.model")
    path = str(tmp_path / "x.tflite")
    command = ["litert", str(tmp_path / "model.keras"), path, "--max-length", "5"]
    assert main([*command, "--signatures", "generate", "--quantize", "float16"]) == 0
    assert "generate: score" in capsys.readouterr().out
    assert main([*command, "--signatures", "generate"]) == 0
    decoding = {"search": "greedy", "beams": 1, "length_penalty": 0.0, "wrappers": []}
    assert read_record(path)[0]["decoding"] == {**decoding, "max_length": 5}
    lines = ["abc", "", "g f", "b"]
    (measured,) = export.measure(
        [path],
        lines,
        tokenizer=tmp_path / "characters.model",
        batch_sizes=[3],
        threads=[1],
        repetitions=1,
    )
    assert (measured.form, measured.decoding) == ("LiteRT float32", "greedy")
    continued = complete(model, tokenizer, [line for line in lines if line], max_length=5)
    assert measured.answers == [continued[0], "", *continued[1:]] and len(set(continued)) > 1
