"""ONNX files: parts of models that convert, with the outputs that they give in Python."""

import functools
import os
import sys

import keras
import numpy as np
import onnx as onnx_files
import onnxruntime
import oracles
import pytest
import tensorflow as tf
from marks import slow_but

from keras_attn import export, models, text
from keras_attn.commands.export import main
from keras_attn.export._onnx import conversion
from keras_attn.export._onnx.op_handlers import handlers
from keras_attn.export._saved_model import quantization
from keras_attn.generation import generate

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
V, SHAPE = 11, (2, 3, 1)
LENGTHS = {"max_length": 5, "max_source_length": 7}
FLOAT = onnx_files.TensorProto.FLOAT
# Models and parts of them that convert.
TABLE = {
    "transformer": (
        lambda: models.transformer(V, **SIZES),
        ["encoder", "step", "greedy"],
    ),
    "universal_transformer": (
        lambda: models.universal_transformer(V, **SIZES, depth="act"),
        ["step"],
    ),
    "convolution": (
        lambda: models.universal_transformer(V, **SIZES, transition="separable_conv"),
        ["encoder"],
    ),
    "bert": (lambda: models.bert(V, **SIZES, max_length=16), ["encoder"]),
    "gpt": (lambda: models.gpt(V, **SIZES, max_length=16), ["step", "greedy"]),
    "mixture": (lambda: models.image_transformer(V, SHAPE, **SIZES, num_mixtures=2), ["step"]),
    "sparse_transformer": (
        lambda: models.sparse_transformer(V, **SIZES, image_shape=(2, 8, 1)),
        ["step"],
    ),
    "reformer": (
        lambda: models.reformer(V, **SIZES, axial_shape=(4, 4)),
        ["step"],
    ),
    "transformer_xl": (
        lambda: models.transformer_xl(V, **SIZES, memory_length=6, cutoffs=(4,)),
        ["step"],
    ),
    "compressive_transformer": (
        lambda: models.compressive_transformer(V, **SIZES, memory_length=2, rate=2),
        ["step"],
    ),
    "decision": (lambda: models.decision_transformer(3, 2, **SIZES, max_steps=17), ["act"]),
    "gtrxl": (lambda: models.gtrxl(5, {"policy": 4}, **SIZES, memory_length=6), ["step"]),
}


@pytest.fixture(scope="module")
def made():
    """A function (name) -> model, built once."""

    @functools.cache
    def made(name):
        model = TABLE[name][0]()
        oracles.scramble(model, scale=0.5)
        if name == "transformer":
            make_outputs_vary(model)
        return model

    return made


def make_outputs_vary(model):
    """Zero the biases and normalise the table, so that not one token is always generated."""
    random = np.random.default_rng(2)
    for weight in model.weights:
        if "gamma" in weight.path:
            weight.assign(np.ones(weight.shape))
        elif len(weight.shape) == 1 or "bias" in weight.path:
            weight.assign(np.zeros(weight.shape))
        else:
            weight.assign(random.normal(0.0, 1.0, weight.shape))
    table = model.embedding.table.numpy()
    model.embedding.table.assign(table / np.linalg.norm(table, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    """A function (name, part) -> path of the file, written once."""
    folder = tmp_path_factory.mktemp("onnx")

    @functools.cache
    def written(name, what):
        path = folder / f"{name}_{what}.onnx"
        ends = {"eos_id": ENDS.get(name)}
        assert export.onnx(made(name), path, what, **LENGTHS, **ends) == str(path)
        return str(path)

    return written


def opened(path):
    """The file as a function of arrays by name, and the session."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(**inputs):
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run, session


def int32(x):
    return np.asarray(x, "int32")


ENDS = {"gpt": [3, 6]}  # end tokens; of the others the default


@pytest.mark.parametrize("name", slow_but(["bert"], TABLE))
def test_parts_of_the_model_convert(name, written):
    """`export.onnx` compares the outputs of each file with the model's, as tested below."""
    for what in TABLE[name][1]:
        assert os.path.exists(written(name, what))


def test_operations_that_onnx_lacks_are_named(tmp_path):
    x = [tf.TensorSpec([None], tf.float32, "x")]
    function = tf.function(lambda x: {"y": tf.math.lgamma(x)}, x)
    with pytest.raises(ValueError, match="cannot be converted to ONNX. Received: Lgamma."):
        conversion._convert(function, str(tmp_path / "x.onnx"))
    assert os.listdir(tmp_path) == []


def test_a_tokenizer_in_the_process_makes_no_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    tokenizer = text.Characters("abc")  # its table is eager
    function = tf.function(lambda x: {"y": x + 1}, [tf.TensorSpec([None], tf.float32, "x")])
    conversion._convert(function, str(tmp_path / "x.onnx"))
    assert tokenizer.vocabulary_size == 7 and not caplog.messages


def test_operations_that_tf2onnx_gets_wrong_are_converted(tmp_path):
    inputs = {
        "ints": np.arange(-7, 8, dtype="int32"),
        "floats": np.linspace(-7, 7, 15, dtype="float32"),
        "bools": np.arange(15) % 2 == 0,
    }

    def run(ints, floats, bools):
        return {
            "floor_div": ints // 3,
            "floor_mod": ints % 3,
            "float_div": floats // 1.5,
            "float_mod": floats % 1.5,
            "erfc": tf.math.erfc(floats),
            "padded": tf.pad(floats, [[2, 1]], constant_values=-3.0),
            "padded_by_true": tf.pad(bools, [[2, 1]], constant_values=True),
            "new_axes": ints[..., None, :, None],
            "reversed": ints[:, None][::-1],
        }

    specs = [tf.TensorSpec([None], x.dtype, name) for name, x in inputs.items()]
    conversion._convert(tf.function(run, specs, autograph=False), str(tmp_path / "x.onnx"))
    written, _ = opened(str(tmp_path / "x.onnx"))
    outputs = written(**inputs)
    for name, y in run(*map(tf.constant, inputs.values())).items():
        np.testing.assert_allclose(outputs[name], y, atol=1e-6, strict=True, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_greedy_ids_are_those_of_python(name, made, written):
    """For batches of two sizes and lengths, padded with valid ids."""
    model = made(name)
    run, session = opened(written(name, "greedy"))
    names = [x.name for x in session.get_inputs()]
    random, rows = np.random.default_rng(5), []
    for batch, length in ((1, 1), (100, 7)):
        ids = int32(random.integers(1, V, (batch, length)))
        lengths = int32(random.integers(1, length, batch, endpoint=True))
        outputs = run(**dict(zip(names, (ids, lengths), strict=True)))
        real = np.arange(length) < lengths[:, None]
        prompts, ends = np.where(real, ids, 0), ENDS.get(name, 3)
        expected, scores = generate(model, prompts, "greedy", LENGTHS["max_length"], eos_id=ends)
        np.testing.assert_array_equal(outputs["ids"], expected)
        np.testing.assert_allclose(outputs["score"], scores, atol=1e-4)
        rows += outputs["ids"].tolist()
    assert len(set(map(tuple, rows))) > 9
    nothing = run(**dict(zip(names, (ids[:2], int32([0, 2])), strict=True)))
    assert not nothing["ids"][0].any() and nothing["score"][0] == 0


def zeros(session, batch, prefix="past"):
    """Zeros for the inputs whose names begin with the prefix."""
    return {
        x.name: np.zeros([batch, *x.shape[1:]], "float32")
        for x in session.get_inputs()
        if x.name.startswith(prefix)
    }


def in_steps(run, past, token_ids, cuts, **inputs):
    """The logits of all tokens, some tokens a step."""
    logits, index = [], 0
    for tokens in np.split(token_ids, cuts, axis=1):
        outputs = run(token_ids=tokens, index=int32(index), **past, **inputs)
        logits.append(outputs.pop("logits"))
        past = {name.replace("present", "past"): x for name, x in outputs.items()}
        index += tokens.shape[1]
    return np.concatenate(logits, axis=1)


@pytest.mark.slow
def test_encoder_and_steps_equal_one_pass(made, written):
    """Sources have different lengths and are padded with valid ids."""
    model, random = made("transformer"), np.random.default_rng(1)
    source_ids, target_ids = (int32(random.integers(1, V, (3, n))) for n in (4, 5))
    lengths = int32([4, 1, 2])
    encode, _ = opened(written("transformer", "encoder"))
    run, session = opened(written("transformer", "step"))
    context = encode(source_ids=source_ids, source_lengths=lengths)
    past = zeros(session, 3)
    logits = in_steps(run, past, target_ids, (1, 4), source_lengths=lengths, **context)
    sources = np.where(np.arange(4) < lengths[:, None], source_ids, 0)
    expected = model({"source_ids": sources, "target_ids": target_ids})
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_masked_model_gives_features_and_logits(made, written):
    model, token_ids = made("bert"), int32([[3, 1, 4, 1], [5, 9, 2, 6]])
    run, _ = opened(written("bert", "encoder"))
    outputs = run(token_ids=token_ids, lengths=int32([4, 2]))
    ids = np.where([[True] * 4, [True, True, False, False]], token_ids, 0)
    real = ids != 0
    expected = keras.ops.convert_to_numpy(model({"token_ids": ids}))
    np.testing.assert_allclose(outputs["logits"][real], expected[real], atol=1e-4)
    logits = keras.ops.convert_to_numpy(model.head(outputs["features"]))
    np.testing.assert_allclose(logits[real], expected[real], atol=1e-4)
    # ONNX has no assertions: ids and lengths are clipped.
    outside, nearest = int32([[-2, V + 3, 4, 1]]), int32([[0, V - 1, 4, 1]])
    clipped = run(token_ids=nearest, lengths=int32([4]))["logits"]
    np.testing.assert_array_equal(run(token_ids=outside, lengths=int32([9]))["logits"], clipped)


def own_model():
    """A Keras model of one's own, with logits of three classes."""
    ids = keras.Input((None,), dtype="int32", name="words")
    x = keras.layers.Embedding(V, 6, mask_zero=True)(ids)
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.MultiHeadAttention(2, 3)(x, x))
    return keras.Model(ids, keras.layers.Dense(3)(x))


def encoder_of(num_classes):
    bert = models.bert(V, **SIZES, max_length=140)
    axes = {"position": bert.position, "segment": bert.segment, "norm": bert.norm}
    return models.Classifier(bert.embedding, bert.encoder, num_classes, pooling="mean", **axes)


@pytest.mark.slow
def test_classes_and_features_are_those_of_each_row_alone(tmp_path):
    """Files of classifiers, sentence encoders and models of one's own are right at any length."""
    makers = {"classify": lambda: encoder_of(3), "embed": lambda: encoder_of(None)}
    for what, make in (*makers.items(), ("classify", own_model)):
        model = make()
        oracles.scramble(model, scale=0.5)
        path = export.onnx(model, tmp_path / "x.onnx", what, max_source_length=140)
        run, _ = opened(path)
        for length in (5, 40, 130):
            ids = int32(np.random.default_rng(length).integers(1, V, (3, length)))
            lengths = int32([length, 3, length - 2])
            outputs = run(token_ids=ids, lengths=lengths)
            for row, n in enumerate(lengths):
                expected = np.asarray(model(ids[row : row + 1, :n]), "float64")[0]
                if what == "classify":
                    assert outputs["class"][row] == expected.argmax()
                    expected = np.exp(expected) / np.exp(expected).sum()
                output = outputs["features" if what == "embed" else "probabilities"][row]
                np.testing.assert_allclose(output, expected, atol=1e-4)


@pytest.mark.slow
def test_classes_of_images_are_those_of_python(tmp_path):
    model = models.vit(3, (4, 4, 1), 2, **SIZES)
    oracles.scramble(model, scale=0.5)
    run, _ = opened(export.onnx(model, tmp_path / "vit.onnx"))
    images = oracles.random(5, 4, 4, 1)
    logits = np.asarray(model(images), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(run(images=images)["probabilities"], expected, atol=1e-5)
    several = models.Classifier.from_config({**model.get_config(), "multi_label": True})
    several.set_weights(model.get_weights())
    run, _ = opened(export.onnx(several, tmp_path / "several.onnx"))
    outputs = run(images=images)
    assert outputs.keys() == {"probabilities"}
    np.testing.assert_allclose(outputs["probabilities"], 1 / (1 + np.exp(-logits)), atol=1e-5)


@pytest.mark.slow
def test_steps_with_a_memory_equal_one_pass(made, written):
    model, token_ids = made("transformer_xl"), int32([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    run, session = opened(written("transformer_xl", "step"))
    memory, length = np.zeros((2, 1, 6, 8), "float32"), int32([0, 0])
    logits = []
    for tokens in np.split(token_ids, (2,), axis=1):
        lengths = int32([tokens.shape[1]] * 2)
        outputs = run(token_ids=tokens, lengths=lengths, memory=memory, memory_length=length)
        logits.append(outputs["logits"])
        memory, length = outputs["next_memory"], outputs["next_memory_length"]
    whole = model({"token_ids": token_ids, **model.initial_memory(2)})["logits"]
    np.testing.assert_allclose(np.concatenate(logits, axis=1), whole, atol=1e-4)


def test_dynamic_sizes_are_named(written):
    _, session = opened(written("bert", "encoder"))
    shapes = {x.name: x.shape for x in (*session.get_inputs(), *session.get_outputs())}
    assert shapes == {
        "token_ids": ["batch", "length_of_token_ids"],
        "lengths": ["batch"],
        "features": ["batch", "length_of_features", 8],
        "logits": ["batch", "length_of_logits", V],
    }


@pytest.mark.slow
def test_a_file_with_other_outputs_is_not_written(made, tmp_path, monkeypatch):
    """tf2onnx alone gets remainders of negative numbers wrong; the existing file stays."""
    path = tmp_path / "step.onnx"
    path.write_bytes(b"before")
    all_handlers = handlers()
    del all_handlers["FloorMod"]
    monkeypatch.setattr(conversion, "handlers", lambda: all_handlers)
    with pytest.raises(ValueError, match="output 'present_0.*' in ONNX Runtime differs"):
        export.onnx(made("gpt"), path, "step", max_length=5)
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["step.onnx"]


@pytest.mark.slow
def test_a_loop_reads_its_weights_from_outside(written):
    """As states of the loop they would be no constants, which ONNX Runtime prepares once."""
    (body,) = bodies_of_loops(written("gpt", "greedy"))
    carried = {x.name for x in body.input[2:]}
    assert carried and not carried & {x.name for x in body.output}


@pytest.mark.slow
def test_an_int8_file_computes_with_rounded_weights(made, tmp_path, monkeypatch):
    monkeypatch.setattr(quantization, "MIN_SIZE", 37)
    to_arrays, restore = quantization.FORMATS["int8"]
    model, token_ids = made("gpt"), int32(np.random.default_rng(1).integers(1, V, (3, 5)))
    paths = {kind: str(tmp_path / f"{kind}.onnx") for kind in (None, "int8")}
    for kind, path in paths.items():
        export.onnx(model, path, "step", max_length=5, quantize=kind)
    rounded, count = onnx_files.load(paths[None]), 0
    for tensor in rounded.graph.initializer:
        weight = onnx_files.numpy_helper.to_array(tensor)
        if quantization.is_large(weight):
            array = np.asarray(restore(*to_arrays(weight), weight.shape))
            tensor.CopyFrom(onnx_files.numpy_helper.from_array(array, tensor.name))
            count += 1
    onnx_files.save(rounded, paths[None])
    by_kind = []
    for path in paths.values():
        run, session = opened(path)
        by_kind.append(in_steps(run, zeros(session, 3), token_ids, (2, 3, 4)))
    np.testing.assert_allclose(*by_kind, rtol=0, atol=1e-5)
    exact = keras.ops.convert_to_numpy(model({"token_ids": token_ids}))
    assert 1e-4 < np.abs(by_kind[0] - exact).max() / np.abs(exact).max() < 0.05
    graph = onnx_files.load(paths["int8"]).graph
    assert sum(x.data_type == onnx_files.TensorProto.INT8 for x in graph.initializer) == count > 5


@pytest.mark.slow
def test_an_int8_file_stores_the_weights_of_its_loop_in_bytes(made, tmp_path, monkeypatch):
    monkeypatch.setattr(quantization, "MIN_SIZE", 37)
    path = str(tmp_path / "greedy.onnx")
    export.onnx(made("gpt"), path, max_length=5, quantize="int8")
    graphs = [onnx_files.load(path).graph, *bodies_of_loops(path)]
    weights = [x for graph in graphs for x in graph.initializer if x.data_type == FLOAT]
    assert not [x.name for x in weights if len(x.dims) == 2 and 1 not in x.dims]


def bodies_of_loops(path):
    loops = [x for x in onnx_files.load(path).graph.node if x.op_type == "Loop"]
    return [attribute.g for loop in loops for attribute in loop.attribute]


def test_unsuitable_models_and_arguments_are_refused(made, tmp_path, monkeypatch):
    path, gpt = tmp_path / "x.onnx", made("gpt")
    with pytest.raises(ValueError, match="one of 'greedy', 'step'. Received: what='encoder'"):
        export.onnx(gpt, path, "encoder")
    with pytest.raises(ValueError, match="max_length=0"):
        export.onnx(gpt, path, max_length=0)
    with pytest.raises(ValueError, match="one of None, 'int8'.*quantize='int4'"):
        export.onnx(gpt, path, quantize="int4")
    with pytest.raises(ValueError, match="`model` must be an `EncoderDecoder`.*Dense"):
        export.onnx(keras.layers.Dense(2), path)
    with pytest.raises(ValueError, match="`inputs` must be None, but for a `keras.Model` of your"):
        export.onnx(gpt, path, inputs={"token_ids": "token_ids"})
    with pytest.raises(ValueError, match="one of 'embed'. Received: what='encoder'"):
        export.onnx(own_model(), path, "encoder")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = TABLE["gpt"][0]()
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match="float32: load it under that policy. Received: bfloat16"):
        export.onnx(half, path)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[onnx\]'"):
        export.onnx(gpt, path)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_the_command_writes_the_first_part(made, tmp_path, capsys):
    model, path = made("bert"), str(tmp_path / "bert.onnx")
    model.save(tmp_path / "model.keras")
    arguments = ["onnx", str(tmp_path / "model.keras"), path]
    assert main(arguments) == 0
    assert capsys.readouterr().out.split()[-1] == path
    assert [x.name for x in opened(path)[1].get_outputs()] == ["features", "logits"]
    assert main([*arguments, "--what=step"]) == 2
    assert "`what` must be one of 'encoder'." in capsys.readouterr().err
