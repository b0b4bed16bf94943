"""Operations that a stock TensorFlow Serving runs, by the version that introduced them."""

import re

import tensorflow as tf

from keras_attn.compat.op_registry import is_registered
from keras_attn.export.saved_model_files import count_ops, read_saved_model

# Core ops without a kernel in the server, or for a compiler that is off in it.
MUST_COMPILE = "_XlaMustCompile"  # as `count_ops` names such nodes
_FORBIDDEN_PREFIXES = ("Xla", "_Xla", "PyFunc", "EagerPyFunc", "PyFuncStateless", "Mkl", "_Mkl")
# The operations of our exports, by the lowest version that is known to have them; later versions
# have them too. Core ops: from the `tf.raw_ops` of the TensorFlow releases, whose numbers the
# servers share. Ops of TensorFlow Text: from its releases that the servers' tags pin.
_OPS_BY_VERSION = {
    (2, 2): """
        Abs AddN AddV2 All Any ArgMax Assert AssignVariableOp BatchMatMulV2 BiasAdd BiasAddGrad
        Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastGradientArgs BroadcastTo Case Cast Ceil
        ConcatOffset ConcatV2 Const Cos Cumsum Einsum EnsureShape Equal Erfc Exp ExpandDims Expm1
        Fill FloorDiv FloorMod GatherNd GatherV2 Greater GreaterEqual HashTableV2 Identity IdentityN
        If InvertPermutation IsFinite IsNan LeftShift Less LessEqual Log Log1p LogSoftmax LogicalAnd
        LogicalNot LogicalOr LookupTableFindV2 LookupTableImportV2 MatMul Max Maximum Mean
        MergeV2Checkpoints Min Minimum Mul Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2
        PartitionedCall Placeholder Pow Prod RaggedGather RaggedRange RaggedTensorToTensor
        RandomUniform Range ReadVariableOp RealDiv Reciprocal ReduceJoin Relu Reshape RestoreV2
        RightShift Round Rsqrt RsqrtGrad SaveV2 Select SelectV2 Shape ShapeN ShardedFilename Sigmoid
        SigmoidGrad Sin Size Slice Softmax Softplus Split SplitV Sqrt Square SquaredDifference
        Squeeze StatefulPartitionedCall StatelessWhile StaticRegexFullMatch StaticRegexReplace
        StopGradient StridedSlice StridedSliceGrad StringJoin StringLength StringLower StringSplitV2
        Sub Substr Sum Tanh TanhGrad TensorListFromTensor TensorListGetItem TensorListReserve
        TensorListSetItem TensorListStack TensorScatterSub Tile TopKV2 Transpose UnicodeDecode
        UnicodeEncode UnicodeTranscode Unpack VarHandleOp Where While ZerosLike
        SentencepieceOp SentencepieceTokenizeOp SentencepieceDetokenizeOp NormalizeUTF8
    """,
    (2, 4): "StatelessRandomUniformFullIntV2 StatelessRandomUniformV2",
    # TensorFlow 2.21 writes DisableCopyOnRead into every SavedModel, to save variables again.
    (2, 10): """
        DisableCopyOnRead FastWordpieceTokenizeWithOffsets RegexSplitWithOffsets
        StatelessRandomGetKeyCounter TFText>WhitespaceTokenizeWithOffsetsV2
    """,
    (2, 12): """
        FastBertNormalize PhraseTokenize TFText>FastSentencepieceDetokenize
        TFText>FastSentencepieceTokenize
    """,
    (2, 20): "TFText>RoundRobinTrim TFText>Utf8Binarize",
}
FIRST_VERSION = {op: version for version, ops in _OPS_BY_VERSION.items() for op in ops.split()}


def unservable_ops(path):
    """Return the operations in a SavedModel that no stock TensorFlow Serving runs.

    Args:
        path: directory of the SavedModel, with `saved_model.pb` in it.

    Returns:
        A sorted list of names, empty for a model that can be served. Servable are TensorFlow's own
        ops except those of XLA and Python, and the ops of TensorFlow Text that some server has.

    Raises:
        ValueError: if there is no SavedModel, or its file is damaged.

    Example:
        >>> from keras_attn.export import unservable_ops
        >>> unservable_ops("nowhere")
        Traceback (most recent call last):
        ValueError: There is no saved_model.pb. Received: path='nowhere'.

    Reference: the server's SUPPORTED_TENSORFLOW_OPS in
        https://github.com/tensorflow/serving/blob/master/tensorflow_serving/model_servers/BUILD
    """
    return unservable_among(count_ops(read_saved_model(path)))


def unservable_among(names):
    """Return those of the named operations that no stock TensorFlow Serving runs, sorted."""
    return sorted(name for name in names if not _is_servable(name))


def serving_version(names, written_by):
    """Return the lowest version of TensorFlow Serving known to have all operations, "2.13".

    For operations that the table lacks it is `written_by`, the TensorFlow that wrote the graph.
    """
    written = tuple(int(number) for number in re.findall(r"\d+", written_by)[:2])
    versions = {FIRST_VERSION.get(name, written) for name in names}
    return ".".join(map(str, max(versions, default=min(_OPS_BY_VERSION))))


def _is_servable(name):
    if name in FIRST_VERSION:
        return True
    return is_core(name) and is_registered(name) and not name.startswith(_FORBIDDEN_PREFIXES)


def is_core(name):
    """Return True for an operation of TensorFlow itself, not of an extension library."""
    # Those of a library are registered, but absent from `tf.raw_ops`.
    return name.startswith("_") or hasattr(tf.raw_ops, name)
