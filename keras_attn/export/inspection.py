"""What an export holds, and whether it still answers as it did."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from keras_attn.export.replay import replay
from keras_attn.export.saved_model_files import (
    count_ops,
    has_own_variables,
    read_saved_model,
    size_of_files,
)
from keras_attn.export.servable_ops import serving_version, unservable_among
from keras_attn.export.versions import newest

_VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What `inspect` found.

    Attributes:
        directory: the version that was inspected.
        signatures: dict of a signature's name and two dicts, of its inputs and of its outputs, each
            of a name and its (dtype, shape): `("int32", (None, None))`.
        ops: dict of an operation's name and how often the graph and its functions hold it.
        unservable: list of those that no stock TensorFlow Serving runs.
        serving_version: the lowest version of TensorFlow Serving that has all others, "2.10".
        written_by: the version of TensorFlow that wrote the export.
        tokenizer: "SentencePiece" or "characters", for what is inside; None if ids go in and out.
        num_weights: number of weights.
        weight_bytes: bytes that these take.
        file_bytes: bytes of all files.
        answers: dict of a signature's name and what came of its recorded request: "same",
            "differs" or, where no answer was recorded, "runs". Empty without records.
        has_own_variables: whether the variables are those that the export was written with, by the
            hash that TensorFlow wrote; True also where it wrote none.
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
    answers: dict
    has_own_variables: bool

    @property
    def faults(self):
        """What is wrong with the export, one sentence each; an empty list if nothing is."""
        faults = []
        if self.unservable:
            names = ", ".join(self.unservable)
            faults.append(f"TensorFlow Serving does not run operations in it: {names}.")
        if not self.has_own_variables:
            faults.append(
                "The export is damaged: the files in variables/ are not those that it was written "
                "with, by the hash in its fingerprint.pb."
            )
        differing = [name for name, outcome in self.answers.items() if outcome == "differs"]
        if differing:
            faults.append(
                "The export is damaged or runs differently here: it no longer answers as where it "
                f"was written, at {', '.join(differing)}."
            )
        return faults


def inspect(path):
    """Reads an export, asks it what it was asked when it was written, and compares the answers.

    The hash of the variables is compared too, which tells where no answer was recorded. Numbers may
    differ by a thousandth of an output's greatest; all else is to be the same. The model is loaded
    and runs, so the file must be from a source that is trusted.

    Args:
        path: directory of a version, or one that holds versions, of which the highest is taken.

    Returns:
        An `Inspection`.

    Raises:
        ValueError: if there is no export, or its files are broken.
        ImportError: if the tokenizer inside needs TensorFlow Text, and it is not installed.

    Example:
        >>> import keras_attn, tempfile
        >>> model = keras_attn.models.bert(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> path = tempfile.mkdtemp()
        >>> _ = keras_attn.export.saved_model(model, path)
        >>> found = keras_attn.export.inspect(path)
        >>> found.signatures["encode"]["inputs"]["token_ids"], found.answers["encode"]
        (('int32', (None, None)), 'same')

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    directory = _version_in(os.fspath(path))
    meta_graph = read_saved_model(directory)
    ops = count_ops(meta_graph)
    unservable = unservable_among(ops)
    written_by = meta_graph.meta_info_def.tensorflow_version
    signatures = _signatures(meta_graph)
    num_weights, weight_bytes = _size_of_weights(directory)
    return Inspection(
        directory=directory,
        signatures=signatures,
        ops=dict(ops),
        unservable=unservable,
        serving_version=serving_version(set(ops) - set(unservable), written_by),
        written_by=written_by,
        tokenizer=_tokenizer(signatures, ops),
        num_weights=num_weights,
        weight_bytes=weight_bytes,
        file_bytes=size_of_files(directory),
        answers=replay(directory, uses_text="SentencepieceOp" in ops),
        has_own_variables=has_own_variables(directory),
    )


def _version_in(path):
    if not os.path.isdir(path):
        raise ValueError(f"There is no such directory. Received: {path!r}.")
    if os.path.exists(os.path.join(path, "saved_model.pb")):
        return path
    version = newest(path)
    if version is None:
        raise ValueError(
            "The directory holds neither a saved_model.pb nor versions, directories whose names "
            f"are numbers. Received: {path!r}."
        )
    return os.path.join(path, version)


def _signatures(meta_graph):
    return {
        name: {"inputs": _tensors(signature.inputs), "outputs": _tensors(signature.outputs)}
        for name, signature in sorted(meta_graph.signature_def.items())
        if not name.startswith("__")  # such as that of the initialisation
    }


def _tensors(infos):
    return {
        name: (tf.DType(info.dtype).name, _shape(info.tensor_shape))
        for name, info in sorted(infos.items())
    }


def _shape(proto):
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def _tokenizer(signatures, ops):
    if "SentencepieceOp" in ops:
        return "SentencePiece"
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
        if name.endswith(_VARIABLE) and not name.startswith("save_counter")
    }
    return sum(sizes.values()), sum(n * dtypes[name].size for name, n in sizes.items())
