"""SavedModel, LiteRT and ONNX of each pattern, score, depth and model: right, size, time.

    python -m recipes.benchmarks.ways_out [--cases NAME ...]

With names, other rows of the card stay as they are. All of them take an hour on two cores.
"""

import contextlib
import functools
import json
import logging
import os
import pathlib
import statistics
import tempfile
import time
import warnings
from importlib.metadata import version

import keras
import numpy as np

from keras_attn import depth, export, feed_forward, layers, models, patterns, positions, scores
from keras_attn.backend.loops import without_tile_loops
from keras_attn.export._onnx.graphs import parts_of

from .card import card_parser, execute, new_card

LENGTHS = (5, 40, 130)
V, WIDTH = 50, 16
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": WIDTH, "intermediate_dim": 24}
# Opsets that are tried: the default one of Keras, and the first with all operations of LSH.
OPSETS = (None, 18)
TOLERANCE = 1e-5
LIBRARIES = "keras", "tensorflow", "ai-edge-litert", "tf2onnx", "onnxruntime"
METHOD = (
    "Each row is a model of width {width}, with random weights, exported for any batch and length. "
    "**SavedModel** and **Keras's ONNX** are `model.export`, **LiteRT** is a conversion of the "
    "model's graph to built-in operations, run in `ai-edge-litert`, and **our ONNX** is "
    "`export.onnx`. Two rows of {lengths} positions, the second padded, are compared with the "
    "model in Python: the cell has the greatest difference over the greatest output, then the size "
    "of the file, and the time at {longest} positions over the SavedModel's. **wrong** is a "
    "difference above {tolerance:.0e} without an error, **refused** an error, and - a part that "
    "the way does not have. Parts of a layer stand in a `MaskedLanguageModel` of one block. Parts "
    "of one size, such as images, are compared once. Keras's ONNX is tried by its default opset, "
    "then by 18, which the cell names."
)


def block(feed=None, residual="post_norm", **attention):
    attention = layers.MultiHeadAttention(2, WIDTH // 2, **{"pattern": "causal", **attention})
    feed = layers.FeedForward(24, "gelu") if feed is None else feed
    return layers.TransformerBlock(attention, feed, residual=residual)


def model_of(encoder):
    """Return a model that reads padded ids, with a layer of the depth axis or one block."""
    embedding = layers.TokenEmbedding(V, WIDTH)
    if isinstance(encoder, layers.TransformerBlock):
        encoder = depth.Stack([encoder])
    return models.MaskedLanguageModel(embedding, "sinusoidal", None, None, encoder, None)


PATTERNS = {
    "AdaptiveSpan": lambda: patterns.AdaptiveSpan(16, ramp=4),
    "BlockLocal1D": lambda: patterns.BlockLocal1D(7, lookback=1),
    "BlockLocal2D": lambda: patterns.BlockLocal2D((16, 16), (4, 4), (2, 2)),
    "Both": lambda: patterns.Local(13) & patterns.Strided(3),
    "Causal": lambda: "causal",
    "Dense": lambda: "dense",
    "Dilated": lambda: patterns.Dilated(3, 2),
    "Either": lambda: patterns.Local(7) | patterns.Strided(5, "column"),
    "Fixed": lambda: patterns.Fixed(8, 2),
    "Global": lambda: patterns.Global(3),
    "LSH": lambda: patterns.LSH(8, num_rounds=2),
    "LSH, fixed buckets": lambda: patterns.LSH(8, num_buckets=6, causal=False),
    "LSH, wrapped": lambda: patterns.LSH(8, 2, across_buckets=True, wrap=True),
    "Local": lambda: patterns.Local(7),
    "Local, to both sides": lambda: patterns.Local(7, causal=False),
    "Local, wide": lambda: patterns.Local(50),
    "Local or Global": lambda: patterns.Local(7) | patterns.Global(2),
    "PerHead": lambda: patterns.PerHead([patterns.Local(7), patterns.Causal()]),
    "Prefix": lambda: patterns.Prefix(5) & "causal",
    "Random": lambda: patterns.Random(8, 1, 160, causal=True),
    "Sinks": lambda: patterns.Sinks(2, 7),
    "Strided": lambda: patterns.Strided(5),
}
SCORES = {
    "ALiBi": lambda: scores.DotProduct() + scores.ALiBi(),
    "Additive": lambda: "additive",
    "Cosine": scores.Cosine,
    "Disentangled": lambda: scores.Disentangled(8, 40),
    "DotProduct": lambda: "scaled_dot",
    "FAVOR": lambda: scores.FAVOR(5),
    "Kernel": scores.Kernel,
    "LearnedRelative": lambda: scores.LearnedRelative(12),
    "Relative": lambda: "relative",
    "SharedQK": lambda: "shared_qk",
    "SoftCap": lambda: scores.SoftCap(scores.DotProduct(), 3.0),
    "Sum": lambda: scores.DotProduct() + scores.ALiBi() + scores.T5Bias(8, 40),
    "T5Bias": lambda: scores.DotProduct() + scores.T5Bias(8, 40),
}
LINEAR = {"FAVOR", "Kernel"}  # scores without logits, which take no window
DEPTHS = {
    "ACT": lambda: depth.ACT(block(), max_steps=3),
    "Recurrent": lambda: depth.Recurrent(block(), 3),
    "Reversible": lambda: depth.Reversible([block(residual="pre_norm") for _ in range(2)]),
    "Stack": lambda: depth.Stack([block(), block()]),
    "Stack, remat": lambda: depth.Stack([block(), block()], remat=True),
}
FEED_FORWARDS = {
    "FeedForward, chunks": lambda: layers.FeedForward(24, chunks=3),
    "GatedFeedForward": lambda: feed_forward.GatedFeedForward(24),
    "MixtureOfExperts": lambda: feed_forward.MixtureOfExperts(layers.FeedForward(24), 3, 2),
    "SeparableConvTransition": lambda: feed_forward.SeparableConvTransition(24),
}
POSITIONS = {
    "Rotary": lambda: "rotary",
    "YaRN": lambda: positions.Rotary(scaling=positions.YaRN(2, 64)),
}
MODELS = {
    "adaptive_span_transformer": lambda: models.adaptive_span_transformer(V, **SIZES, max_span=16),
    "bert": lambda: models.bert(V, **SIZES, max_length=160),
    "big_bird": lambda: models.big_bird(V, **SIZES, max_length=160, block_length=4),
    "compressive_transformer": lambda: models.compressive_transformer(
        V, **SIZES, memory_length=6, rate=2
    ),
    "decision_transformer": lambda: models.decision_transformer(4, 4, **SIZES, max_steps=160),
    "deep_char_transformer": lambda: models.deep_char_transformer(V, **SIZES, max_length=160),
    "gemma": lambda: models.gemma(V, **SIZES, window=7),
    "gpt": lambda: models.gpt(V, **SIZES, max_length=160),
    "gpt_oss": lambda: models.gpt_oss(V, **SIZES, key_dim=8, window=7, num_experts=5),
    "gtrxl": lambda: models.gtrxl(4, {"policy": 4}, **SIZES, memory_length=12),
    "image_transformer": lambda: models.image_transformer(V, (12, 12, 1), **SIZES),
    "llama": lambda: models.llama(V, **SIZES),
    "longformer": lambda: models.longformer(V, **SIZES, max_length=160, window=8),
    "mistral": lambda: models.mistral(V, **SIZES, window=7),
    "mixtral": lambda: models.mixtral(V, **SIZES, num_experts=3),
    "modern_bert": lambda: models.modern_bert(V, **SIZES, window=8),
    "perceiver": lambda: models.perceiver(V, **SIZES, num_latents=3, max_length=160),
    "reformer": lambda: models.reformer(V, **SIZES, axial_shape=(16, 10), chunk_length=8),
    "sparse_transformer": lambda: models.sparse_transformer(V, **SIZES, image_shape=(12, 13, 1)),
    "super_resolution_transformer": lambda: models.super_resolution_transformer(
        V, (12, 12, 1), (12, 12, 1), 1, **SIZES
    ),
    "switch_transformer": lambda: models.switch_transformer(V, **SIZES, num_experts=3),
    "t5": lambda: models.t5(V, **SIZES),
    "transformer": lambda: models.transformer(V, **SIZES),
    "transformer_xl": lambda: models.transformer_xl(V, **SIZES, memory_length=12),
    "universal_transformer": lambda: models.universal_transformer(V, **SIZES),
    "vit": lambda: models.vit(2, (12, 12, 3), 4, **SIZES),
}


def cases():
    """Return functions that make models, by "kind: name"."""
    made = {f"models: {name}": make for name, make in MODELS.items()}
    for name, make in PATTERNS.items():
        score = "shared_qk" if name.startswith("LSH") else "scaled_dot"
        made[f"patterns: {name}"] = _of_block(block, pattern=make, score=score)
    for name, make in SCORES.items():
        made[f"scores: {name}"] = _of_block(block, score=make)
        if name not in LINEAR:
            window = {"pattern": patterns.Local(7)}
            made[f"scores: {name}, Local"] = _of_block(block, score=make, **window)
    for name, make in POSITIONS.items():
        made[f"positions: {name}"] = _of_block(block, position=make)
    for name, make in FEED_FORWARDS.items():
        made[f"feed_forward: {name}"] = _of_block(block, feed=make)
    for name, make in DEPTHS.items():
        made[f"depth: {name}"] = _of_block(lambda depth: depth, depth=make)
    return dict(sorted(made.items()))


def _of_block(make_encoder, **arguments):
    def make():
        values = {name: x() if callable(x) else x for name, x in arguments.items()}
        return model_of(make_encoder(**values))

    return make


def make_model(name):
    """Return the model of a case, all of whose weights are random."""
    keras.utils.set_random_seed(0)
    model = cases()[name]()
    for number, weight in enumerate(model.trainable_weights):
        random = np.random.default_rng(number)
        weight.assign(weight + random.normal(0.0, 0.1, weight.shape).astype("float32"))
    return model


def inputs_of(model, length):
    """Return inputs of two rows of so many positions, the second with fewer tokens, by name."""
    random = np.random.default_rng(length)
    lengths = np.array([length, length - length // 3])
    is_real = np.arange(length) < lengths[:, None]
    inputs = {}
    for name, spec in model.input.items():
        shape = [2, *(length if n is None else n for n in spec.shape[1:])]
        if name.endswith("token_ids") or name in ("source_ids", "target_ids"):
            ids = random.integers(1, V, shape)
            inputs[name] = np.where(is_real[:, : shape[1]], ids, 0).astype("int32")
        elif name == "segment_ids":
            has_segments = getattr(model, "segment", None) is not None
            inputs[name] = (is_real & (not has_segments)).astype("int32")
        elif keras.backend.standardize_dtype(spec.dtype) == "float32":
            inputs[name] = random.normal(0.0, 1.0, shape).astype("float32")
        else:
            inputs[name] = random.integers(0, 2, shape).astype(spec.dtype)
    if getattr(model, "memory", None) is not None:
        state = {name: np.asarray(x) for name, x in model.initial_memory(2).items()}
        inputs |= {name: state[name] for name in state if name in inputs}
    return inputs


# Each way writes a file or folder and returns the function that runs it: of a dict of arrays, to a
# list of arrays.


def to_saved_model(model, path):
    import tensorflow as tf

    model.export(path, verbose=False)
    loaded = tf.saved_model.load(path)

    def run(inputs):
        tensors = {name: tf.constant(x) for name, x in inputs.items()}
        return [x.numpy() for x in tf.nest.flatten(loaded.serve(tensors))]

    run.loaded = loaded  # its functions do not keep it
    return run


def to_litert(model, path):
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    specs = {
        name: tf.TensorSpec([None, *x.shape[1:]], x.dtype, name) for name, x in model.input.items()
    }

    @functools.partial(tf.function, input_signature=[specs], autograph=False)
    def call(inputs):
        outputs = tf.nest.flatten(model(inputs))
        return {f"output_{n}": x for n, x in enumerate(outputs)}

    # The values: with variables of Keras every output of the file would be NaN.
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    with without_tile_loops():
        function = call.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    pathlib.Path(path).write_bytes(converter.convert())
    runner = Interpreter(path).get_signature_runner()
    read = runner.get_input_details()

    def run(inputs):
        outputs = runner(**{name: x for name, x in inputs.items() if name in read})
        return [outputs[f"output_{n}"] for n in range(len(outputs))]

    return run


def to_keras_onnx(model, path, opset):
    model.export(path, format="onnx", opset_version=opset, verbose=False)
    return _open_onnx(path)


def to_onnx(model, path, part, limits):
    export.onnx(model, path, part, **limits)
    return _open_onnx(path)


def _open_onnx(path):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    read = [x.name for x in session.get_inputs()]
    names = sorted(x.name for x in session.get_outputs())

    def run(inputs):
        return session.run(names, {name: inputs[name] for name in read})

    return run


def examples_of(model):
    """Return pairs of inputs and outputs of the model in Python, one for each length."""
    is_any = any(None in x.shape[1:] for x in model.input.values())
    pairs = []
    for length in LENGTHS if is_any else LENGTHS[:1]:
        inputs = inputs_of(model, length)
        outputs = keras.tree.flatten(model(inputs, training=False))
        pairs.append((inputs, [np.asarray(x) for x in outputs]))
    return pairs


def examples_of_part(model, part, limits):
    """Return such pairs for a part of `export.onnx`, from the graph that it converts."""
    function = parts_of(model)[part](model, *limits.values(), None, None)
    pairs = []
    for length in LENGTHS:
        known = inputs_of(model, length)
        inputs = {}
        for spec in function.input_signature:
            if spec.name.endswith("lengths"):
                inputs[spec.name] = np.array([length, length - length // 3], "int32")
            else:
                inputs[spec.name] = known[spec.name]
        outputs = function(*inputs.values())
        pairs.append((inputs, [np.asarray(outputs[name]) for name in sorted(outputs)]))
    return pairs


def difference(outputs, expected):
    """Return the greatest difference over the greatest magnitude, of any output."""
    differences = [np.inf if len(outputs) != len(expected) else 0.0]
    for x, y in zip(outputs, expected, strict=False):
        if x.shape != y.shape or not np.isfinite(x).all():
            return float("inf")
        largest = max(np.abs(y).max(initial=0.0), 1e-6)
        differences.append(float(np.abs(x - y.astype(x.dtype)).max(initial=0.0) / largest))
    return max(differences)


def try_out(convert, examples):
    """Return the facts of a way out: right, wrong or refused, size and time."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = os.path.join(folder, "model.out")
        try:
            run = convert(path)
            worst = max(difference(run(inputs), outputs) for inputs, outputs in examples)
        except Exception as error:  # each library has errors of its own
            return {"state": "refused", "reason": _last_line(error)}
        seconds = []
        for _ in range(9):
            start = time.perf_counter()
            run(examples[-1][0])
            seconds.append(time.perf_counter() - start)
        facts = {"state": "right" if worst <= TOLERANCE else "wrong", "difference": worst}
        return {**facts, "bytes": _bytes(path), "seconds": statistics.median(seconds)}


def _last_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[-1][:200]}"


@contextlib.contextmanager
def _quiet():
    """Hide warnings and logs of converters."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _bytes(path):
    path = pathlib.Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def row_of(name):
    """Return the facts of all ways of a case."""
    model = make_model(name)
    examples = examples_of(model)
    row = {"SavedModel": try_out(functools.partial(to_saved_model, model), examples)}
    row["LiteRT"] = try_out(functools.partial(to_litert, model), examples)
    for opset in OPSETS:
        convert = functools.partial(to_keras_onnx, model, opset=opset)
        row["Keras's ONNX"] = {**try_out(convert, examples), "opset": opset}
        if row["Keras's ONNX"]["state"] == "right":
            break
    try:
        part = next(iter(parts_of(model)))
    except ValueError:
        row["our ONNX"] = {"state": "none"}
        return row
    limits = {"max_length": 8, "max_source_length": 160}
    convert = functools.partial(to_onnx, model, part=part, limits=limits)
    pairs = examples_of_part(model, part, limits)
    row["our ONNX"] = {**try_out(convert, pairs), "part": part}
    return row


WAYS = "SavedModel", "LiteRT", "Keras's ONNX", "our ONNX"


def cell_of(facts, seconds):
    """Return the text of a cell; `seconds` are the SavedModel's."""
    if facts["state"] == "none":
        return "-"
    if facts["state"] == "refused":
        return "refused"
    kilobytes = f"{facts['bytes'] / 1000:.0f} kB"
    text = f"{facts['difference']:.0e}, {kilobytes}"
    if facts["state"] == "wrong":
        return f"**wrong**: {text}"
    if seconds and "part" not in facts:
        text += f", {facts['seconds'] / seconds:.2f}"
    more = [facts["part"]] if "part" in facts else []
    more += [f"opset {facts['opset']}"] if facts.get("opset") else []
    return f"{text} ({', '.join(more)})" if more else text


def table_of(rows):
    """Return the lines of the table, and those of what is refused."""
    lines = ["| part | " + " | ".join(WAYS) + " |", "| --- |" + " --- |" * len(WAYS)]
    refused = []
    for name, row in sorted(rows.items()):
        seconds = row["SavedModel"].get("seconds")
        lines.append(f"| {name} | " + " | ".join(cell_of(row[way], seconds) for way in WAYS) + " |")
        refused += [
            f"- {name}, {way}: {row[way]['reason']}"
            for way in WAYS
            if row[way]["state"] == "refused"
        ]
    states = [row[way]["state"] for row in rows.values() for way in WAYS]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("right", "refused", "wrong"))
    return [f"{len(rows)} of {len(cases())} parts: {counts}.", "", *lines, "", *refused]


def main():
    parser = card_parser("ways_out", __doc__)
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="parts of the names of rows")
    arguments = parser.parse_args()
    card = new_card(arguments, "Ways out", METHOD, **_facts())
    card.content["versions"] = {name: version(name) for name in LIBRARIES}
    file = pathlib.Path(arguments.out) / f"{arguments.name}.json"
    rows = {}
    if arguments.cases and file.exists():
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    for name in cases():
        if not arguments.cases or any(part in name for part in arguments.cases):
            rows[name] = row_of(name)
            print(name, {way: cell_of(x, None) for way, x in rows[name].items()}, flush=True)
            keras.backend.clear_session()
            card.content["rows"] = rows
            card.headline(*table_of(rows))
            card.write(arguments.out)  # after each, so that an interrupted run is not lost


def _facts():
    lengths = ", ".join(map(str, LENGTHS[:-1])) + f" and {LENGTHS[-1]}"
    return {"width": WIDTH, "lengths": lengths, "longest": LENGTHS[-1], "tolerance": TOLERANCE}


if __name__ == "__main__":
    execute(main)
