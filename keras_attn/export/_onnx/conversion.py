"""Export a model or a part of it as an ONNX file."""

import math
import os
import re

import numpy as np
import tensorflow as tf

from keras_attn.compat.tf2onnx_graphs import convert_graph
from keras_attn.export._onnx.graphs import functions_of_ids, parts_of
from keras_attn.export._onnx.op_handlers import handlers, read_invariants
from keras_attn.export._saved_model.quantization import is_large, round_to_int8
from keras_attn.export.checks import check_backend, check_float32, length_beyond_windows
from keras_attn.export.example_inputs import example_input
from keras_attn.export.golden_outputs import outputs_match
from keras_attn.files import atomic_file
from keras_attn.layers.lora import check_merged
from keras_attn.memory import StatefulSegments
from keras_attn.models.model import num_tokens
from keras_attn.ops.checks import check_choice, check_paths, check_sizes

FLOAT = 1  # `onnx.TensorProto.FLOAT`
OPSET = 18  # the first that has the bitwise operations of LSH
# Relative to the greatest magnitude of an output.
TOLERANCE = 1e-4


def onnx(
    model,
    path,
    what=None,
    *,
    max_length=64,
    max_source_length=1024,
    quantize=None,
    eos_id=None,
    bos_id=None,
    inputs=None,
    from_logits=None,
    horizon=None,
):
    """Write `path`, an ONNX file of a model or of a part of it.

    `what="greedy"`, the whole decoding loop, which stops when all rows have ended:

        source_ids (int32, [B, S]), source_lengths (int32, [B])
            -> ids (int32, [B, max_length]), score (float32, [B])

    A causal model reads token_ids and lengths. `what="encoder"`, of a masked language model:

        token_ids (int32, [B, T]), lengths (int32, [B])
            -> features (float32, [B, T, D]), logits (float32, [B, T, V])

    and of an `EncoderDecoder`, the part of a source that "step" reads:

        source_ids, source_lengths -> context_0_key, context_0_value (float32, [B, N, S, H]), ...

    `what="step"`, the logits after each of T more tokens:

        token_ids (int32, [B, T]), index (int32, []), past_0_attention_key (float32,
            [B, N, max_length, H]), ..., of an `EncoderDecoder` also source_lengths and context_...
            -> logits (float32, [B, T, V]), present_0_attention_key, ...

    `index` is the number of tokens in the past, which at first is 0 with a past of zeros. The
    "step" of a model with a memory:

        token_ids (or states), lengths, memory (float32, [B, L, M, D]), memory_length (int32, [B])
            -> logits (or the heads' outputs), next_memory, next_memory_length

    The only part of a classifier, `what="classify"`, which is "regress" with one class and "embed"
    without classes:

        images (float32, [B, H, W, C]), or token_ids and lengths
            -> probabilities (float32, [B, K]) and class (int32, [B]), or value, or features

    That of a `TrajectoryModel`, as `decision_transformer`, is `what="act"`:

        returns (float32, [B, T]), states (float32, [B, T, S]), actions (float32, [B, T, A]),
            lengths -> next_actions (float32, [B, T, A])

    That of a forecaster of series is `what="forecast"`; if it draws paths, it also reads noise
    (float32, [B, N, H]), uniform numbers in [0, 1), and gives samples (float32, [B, N, H]):

        values (float32, [B, T]) -> quantiles (float32, [B, H, Q]), levels (float32, [B, Q]), mean
            (float32, [B, H])

    A functional or subclassed model of your own that reads ids has these too, or "tag" or
    "predict", as `TextModel` says; `what` is its kind.

    Batch and lengths are dynamic. ONNX has no assertions: of ids outside the vocabulary and of
    lengths outside a row the nearest ones are read. ONNX Runtime runs the file before it is renamed
    to `path`. Its outputs must be the model's, numbers to 1e-4 of an output's greatest magnitude.
    This is checked before the weights are quantised; `measure` reports what that costs in quality.

    Args:
        model: an `EncoderDecoder`, `CausalLanguageModel`, `MaskedLanguageModel`, `Classifier`,
            `TrajectoryModel`, a model with a memory, or a `keras.Model` of your own, that computes
            in float32.
        path: the file; an existing one is replaced.
        what: "greedy", "step" or "encoder"; by default the first of these that the model has, or
            the kind of its output.
        max_length: int. Most tokens to generate, or the capacity of the past.
        max_source_length: int. Most tokens that "greedy" or a model of your own reads, as in
            `saved_model`.
        quantize: "int8" or None. With "int8" large weights are 8-bit integers in the file, as in
            `saved_model`: a little more than a quarter of the bytes. They become float32 when ONNX
            Runtime loads the file, so it is as fast as without.
        eos_id: int, or a list of several. The token that ends a sequence of "greedy", by default 3.
        bos_id: int. The token before the first target token of "greedy", by default 2.
        inputs, from_logits: of a model of your own, as `TextModel` takes them.
        horizon: int. Number H of values that a forecaster gives, as in `saved_model`.

    Returns:
        `path`, a string.

    Raises:
        ValueError: if the model has no such part, computes in 16 bits, has an operation that cannot
            be converted, or gives other outputs in ONNX Runtime, or the backend is not TensorFlow.
        ImportError: if tf2onnx, onnx or onnxruntime is not installed.

    Example:
        >>> import keras_attn, os, tempfile
        >>> model = keras_attn.models.bert(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> path = keras_attn.export.onnx(model, os.path.join(tempfile.mkdtemp(), "bert.onnx"))
        >>> import onnxruntime
        >>> [x.name for x in onnxruntime.InferenceSession(path).get_outputs()]
        ['features', 'logits']

    Reference: https://onnx.ai/onnx/operators/
    """
    check_backend()
    if isinstance(model, StatefulSegments):
        model = model.model
    check_paths(path=path)
    check_sizes(max_length=max_length, max_source_length=max_source_length)
    functions = functions_of_ids(model, max_source_length, what, inputs, from_logits, horizon)
    parts = parts_of(model, functions)
    what = next(iter(parts)) if what is None else what
    check_choice(parts, what=what)
    check_choice((None, "int8"), quantize=quantize)
    check_float32(model)
    check_merged(model)
    try:
        import onnxruntime  # noqa: F401
        import tf2onnx.convert  # noqa: F401
    except ImportError as error:
        raise ImportError("ONNX files need tf2onnx: pip install 'keras_attn[onnx]'") from error
    function = parts[what](model, max_length, max_source_length, eos_id, bos_id)
    path = os.path.abspath(os.fspath(path))
    with atomic_file(path) as file:
        proto = _convert(function, file)
        longest = _most_ids(model, functions, what, max_length)
        lengths = [min(n, longest) for n in (3, length_beyond_windows(model))]
        _check_outputs(function, file, num_tokens(model), lengths)
        if quantize:
            write_int8(proto, file)
            _check_finite(function, file, num_tokens(model), lengths)
    return path


def _most_ids(model, functions, what, max_length):
    """Return the number of ids in the longest row that a part of a model reads."""
    if what == "step":
        return max(1, max_length - 1)  # its example has one token in its past
    if what == "greedy":
        return math.inf  # it reads a part of a longer one
    name = "max_length" if getattr(model, "reads_prompt", True) else "max_source_length"
    bounds = [getattr(reader, name, None) for reader in (functions, model)]
    return min((bound for bound in bounds if bound is not None), default=math.inf)


def _convert(function, file):
    """Write the file, and return its `onnx.ModelProto`.

    It raises for operations that ONNX lacks, which tf2onnx only logs.
    """
    import onnx

    concrete = function.get_concrete_function()
    inputs = {f"{spec.name}:0": spec.name for spec in function.input_signature}
    outputs = {spec.name: name for name, spec in concrete.structured_outputs.items()}
    proto, messages = convert_graph(concrete, inputs, outputs, opset=OPSET, handlers=handlers())
    text = "\n".join(messages)
    unknown = set(re.findall(r"op \[[^\]]*: (\w+)\] is not supported", text))
    unknown |= set(re.findall(r"\bOP=(\w+)", text))
    if unknown:
        names = ", ".join(sorted(unknown))
        raise ValueError(f"Operations of the model cannot be converted to ONNX. Received: {names}.")
    read_invariants(proto.graph)
    for value in (*proto.graph.input, *proto.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                dim.dim_param = "batch" if axis == 0 else f"length_of_{value.name}"
    onnx.save(proto, file)
    return proto


def _open(file):
    """Return the file as a session of ONNX Runtime."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base class
        raise ValueError(f"ONNX Runtime cannot open the model. Received: {error}") from error


def _check_outputs(function, file, tokens, lengths):
    """Run the file; raise if that fails or its outputs are not the function's."""
    for inputs, outputs in _run_examples(function, file, tokens, lengths):
        expected = function(*map(tf.constant, inputs.values()))
        for name, output in outputs.items():
            if not outputs_match(expected[name].numpy(), output, TOLERANCE):
                raise ValueError(
                    f"The output {name!r} in ONNX Runtime differs from the model's, so no file was "
                    "written."
                )


def _check_finite(function, file, tokens, lengths):
    """Run the file; raise if that fails or an output has infinities or NaN."""
    for _, outputs in _run_examples(function, file, tokens, lengths):
        for name, output in outputs.items():
            if not np.isfinite(output).all():
                raise ValueError(
                    f"The output {name!r} of the quantised model is not finite, so no file was "
                    "written."
                )


def _run_examples(function, file, tokens, lengths):
    """Yield examples of inputs and what the file gives for them, as dicts of arrays.

    Ids are drawn from 1 to `tokens`, and rows have two `lengths`.
    """
    session = _open(file)
    names = [output.name for output in session.get_outputs()]
    read = {x.name for x in session.get_inputs()}
    specs = function.input_signature
    for batch, length in zip((2, 3), lengths, strict=True):
        random = np.random.default_rng(batch)
        inputs = {x.name: example_input(x, batch, length, tokens, random) for x in specs}
        try:
            outputs = session.run(names, {name: x for name, x in inputs.items() if name in read})
        except Exception as error:
            raise ValueError(f"ONNX Runtime cannot run the model. Received: {error}") from error
        yield inputs, dict(zip(names, outputs, strict=True))


def write_int8(proto, file):
    """Write a model with its large weights as 8-bit integers, restored once by ONNX Runtime.

    It stores the arrays of `round_to_int8`, and nodes that compute the weights of them. ONNX
    Runtime computes what depends on constants alone when it loads a file, and keeps the results.

    Args:
        proto: `onnx.ModelProto`, which is changed.
        file: path.

    Reference: https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html
    """
    import onnx

    nodes, kept = [], []
    for tensor in proto.graph.initializer:
        weight = onnx.numpy_helper.to_array(tensor)
        if is_large(weight):
            restored, arrays = _restoration(tensor.name, weight)
            nodes += restored
            kept += [onnx.numpy_helper.from_array(x, name) for name, x in arrays.items()]
        else:
            kept.append(tensor)
    nodes += proto.graph.node
    for field, values in (("initializer", kept), ("node", nodes)):
        proto.graph.ClearField(field)
        getattr(proto.graph, field).extend(values)
    onnx.save(proto, file)


def _restoration(name, weight):
    """Return the nodes that compute a weight as `restore_int8` does, and their arrays by name."""
    from onnx.helper import make_node

    integers, scale, columns = round_to_int8(weight)
    width = weight.shape[-1]
    arrays = {
        "integers": integers,
        "scale": scale,
        "columns": columns,
        "flat": np.array([-1]),
        "start": np.array([0]),
        "end": np.array([weight.size]),
        "matrix": np.array([-1, width]),
        "shape": np.array(weight.shape),
    }
    steps = (
        ("Cast", ("integers",), "float_integers", {"to": FLOAT}),
        ("Cast", ("scale",), "float_scale", {"to": FLOAT}),
        ("Mul", ("float_integers", "float_scale"), "groups", {}),
        ("Reshape", ("groups", "flat"), "row", {}),
        ("Slice", ("row", "start", "end"), "numbers", {}),
        ("Reshape", ("numbers", "matrix"), "rows", {}),
        ("Mul", ("rows", "columns"), "weights", {}),
        ("Reshape", ("weights", "shape"), "", {}),
    )

    def full(part):
        return f"{name}/{part}" if part else name

    nodes = [make_node(op, [*map(full, x)], [full(y)], **more) for op, x, y, more in steps]
    return nodes, {full(part): array for part, array in arrays.items()}
