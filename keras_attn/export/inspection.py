"""Inspection of an export: signatures, operations, sizes, and a check of its outputs."""

import dataclasses
import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_attn.export._litert.inspection import inspect_file
from keras_attn.export.golden_outputs import replay
from keras_attn.export.report_lines import format_outcomes, format_signatures, format_size
from keras_attn.export.saved_model_files import (
    count_ops,
    has_own_variables,
    read_compilation,
    read_saved_model,
    read_series,
)
from keras_attn.export.servable_ops import (
    MUST_COMPILE,
    is_core,
    serving_version,
    unservable_among,
)
from keras_attn.export.versions import newest_version
from keras_attn.ops.checks import check_paths

_WORDPIECE = "FastWordpieceTokenizeWithOffsets"


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Result of `inspect` for a SavedModel.

    Attributes:
        directory: the inspected version.
        signatures: dict of a signature's name and a dict of "inputs" and "outputs", each a dict of
            a name and its (dtype, shape): `("int32", (None, None))`.
        ops: dict of an operation's name and its number of nodes in the graph and its functions.
        unservable: list of the operations that no stock TensorFlow Serving runs.
        serving_version: the lowest version of TensorFlow Serving that has all others, "2.10".
        written_by: the version of TensorFlow that wrote the export.
        tokenizer: "SentencePiece", "WordPiece" or "characters"; None if ids go in and out.
        num_weights: number of stored numbers: two weights of 4 bits are one, and scales count too.
        weight_bytes: bytes of the weights.
        file_bytes: bytes of all files.
        outcomes: dict of a signature's name and the outcome of its recorded request: "same",
            "differs", or "runs" if no outputs were recorded. Empty without records.
        has_own_variables: bool. True if the variables match the hash that TensorFlow wrote with
            them, or if it wrote none.
        compiled: dict of what is compiled at load, or None: "compiler", "batches", "lengths" and
            "parallel" of the `Buckets`, and "plain_names", the plain twin of each compiled
            signature.
        series: dict of how series are read, or None: "context_length", the values that count, and
            "horizon", those that are forecast, or None.
    """

    directory: str
    signatures: dict
    ops: dict
    unservable: list
    serving_version: str
    written_by: str
    tokenizer: str | None
    num_weights: int
    weight_bytes: int
    file_bytes: int
    outcomes: dict
    has_own_variables: bool
    compiled: dict | None
    series: dict | None = None

    @property
    def faults(self):
        """A list of sentences, one for each fault of the export; empty for a sound one."""
        faults = []
        if self.unservable:
            names = ", ".join(self.unservable)
            faults.append(f"TensorFlow Serving does not run operations in it: {names}.")
        if not self.has_own_variables:
            faults.append(
                "The export is damaged: the files in variables/ do not match the hash in its "
                "fingerprint.pb."
            )
        differing = [name for name, outcome in self.outcomes.items() if outcome == "differs"]
        if differing:
            faults.append(
                "The export is damaged or runs differently here: outputs differ from the recorded "
                f"ones for {', '.join(differing)}."
            )
        return faults

    def report(self):
        """Return the lines that `keras-attn inspect` prints."""
        lines = [self.directory, "", *format_signatures(self.signatures)]
        unservable = ", ".join(self.unservable) or "none"
        mismatch = "" if self.has_own_variables else ", MISMATCH with the recorded hash"
        return lines + [
            "",
            f"operations   {sum(self.ops.values())} of {len(self.ops)} kinds",
            f"not servable {unservable}",
            f"needs        TensorFlow Serving {self.serving_version} or later "
            f"(written by TensorFlow {self.written_by})",
            *_format_compilation(self.compiled),
            *_format_series(self.series),
            f"tokenizer    {self.tokenizer or _without_tokenizer(self.series)}",
            f"weights      {self.num_weights:,} in {format_size(self.weight_bytes)}" + mismatch,
            f"files        {format_size(self.file_bytes)}",
            f"outputs      {format_outcomes(self.outcomes)}",
        ]


def inspect(path):
    """Read an export, run the requests that it carries and compare with the recorded outputs.

    Numbers may differ by 1e-3 of an output's greatest magnitude; everything else must be equal. The
    hash of the variables is compared too, which finds exchanged variables even if no outputs were
    recorded. The model is loaded and run, so the export must come from a trusted source.

    Args:
        path: directory of a version, or a directory of versions, whose highest is inspected; or a
            LiteRT file, which ends in .tflite.

    Returns:
        An `Inspection`, or a `LiteRTInspection` of a file.

    Raises:
        ValueError: if there is no export, or its files are damaged.
        ImportError: if TensorFlow Text, tensorflow-serving-api or ai-edge-litert is needed and not
            installed.

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.bert(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> path = tempfile.mkdtemp()
        >>> _ = keras_attn.export.saved_model(model, path)
        >>> inspection = keras_attn.export.inspect(path)
        >>> inspection.signatures["encode"]["inputs"]["token_ids"], inspection.outcomes["encode"]
        (('int32', (None, None)), 'same')

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    check_paths(path=path)
    if os.path.isfile(path) and os.fspath(path).endswith(".tflite"):
        return inspect_file(os.fspath(path))
    directory = _version_in(os.fspath(path))
    meta_graph = read_saved_model(directory)
    ops, signatures = count_ops(meta_graph), _signatures(meta_graph)
    compiled = read_compilation(directory)
    declared = set() if compiled is None else {MUST_COMPILE}
    unservable = [name for name in unservable_among(ops) if name not in declared]
    written_by = meta_graph.meta_info_def.tensorflow_version
    num_weights, weight_bytes = _size_of_weights(directory)
    return Inspection(
        directory=directory,
        signatures=signatures,
        ops=dict(ops),
        unservable=unservable,
        serving_version=serving_version(set(ops).difference(unservable, declared), written_by),
        written_by=written_by,
        tokenizer=_tokenizer(signatures, ops),
        num_weights=num_weights,
        weight_bytes=weight_bytes,
        file_bytes=sum(x.stat().st_size for x in pathlib.Path(directory).rglob("*") if x.is_file()),
        # Operations of TensorFlow Text are not among TensorFlow's own.
        outcomes=replay(directory, uses_text=not all(map(is_core, ops))),
        has_own_variables=has_own_variables(directory),
        compiled=compiled,
        series=read_series(directory),
    )


def _version_in(path):
    if not os.path.isdir(path):
        raise ValueError(f"`path` must be an existing directory. Received: path={path!r}.")
    newest = newest_version(path)
    if newest is None:
        raise ValueError(
            "`path` must hold a saved_model.pb, or versions: directories whose names are numbers. "
            f"Received: path={path!r}."
        )
    return newest


def _signatures(meta_graph):
    return {
        name: {"inputs": _tensors(signature.inputs), "outputs": _tensors(signature.outputs)}
        for name, signature in sorted(meta_graph.signature_def.items())
        if not name.startswith("__")  # for example the initialisation
    }


def _tensors(infos):
    tensors = {}
    for name, info in sorted(infos.items()):
        shape = tf.TensorShape(info.tensor_shape)
        sizes = None if shape.rank is None else tuple(shape.as_list())
        tensors[name] = tf.DType(info.dtype).name, sizes
    return tensors


def _tokenizer(signatures, ops):
    for name, op in (("SentencePiece", "SentencepieceOp"), ("WordPiece", _WORDPIECE)):
        if op in ops:
            return name
    inputs = [info for signature in signatures.values() for info in signature["inputs"].values()]
    return "characters" if any(dtype == "string" for dtype, _ in inputs) else None


def _size_of_weights(directory):
    prefix = os.path.join(directory, "variables", "variables")
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"The variables cannot be read. Received: {prefix}.") from error
    sizes = {
        name: int(np.prod(shape))
        for name, shape in shapes.items()
        if name.endswith("/.ATTRIBUTES/VARIABLE_VALUE") and not name.startswith("save_counter")
    }
    return sum(sizes.values()), sum(n * dtypes[name].size for name, n in sizes.items())


def _format_compilation(compiled):
    if compiled is None:
        return []
    names = compiled["plain_names"]
    sizes = {key: ", ".join(map(str, compiled[key])) for key in ("batches", "lengths")}
    parts = compiled.get("parallel", 1)  # exports before 0.3.0 have one
    in_parts = "" if parts == 1 else f", in {parts} parts at once"
    return [
        f"compiled     by {compiled['compiler'].upper()} at load: {', '.join(names)}, for "
        f"{sizes['batches']} rows of {sizes['lengths']} tokens{in_parts}",
        "             TensorFlow Serving needs --xla_cpu_compilation_enabled; without it "
        f"--enable_model_warmup=false, and {', '.join(names.values())} in their place",
    ]


def _without_tokenizer(series):
    return f"none: {'ids' if series is None else 'numbers'} go in and out"


def _format_series(series):
    if series is None:
        return []
    read = "all values are read"
    if series["context_length"] is not None:
        length = series["context_length"]
        read = f"the last {length} values are read; a shorter series gets NaN in front"
    lines = [
        f"series       {read}",
        "             NaN is a missing value; infinite ones are refused",
    ]
    if series["horizon"] is not None:
        lines.append(f"             {series['horizon']} values are forecast")
    return lines
