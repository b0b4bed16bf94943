"""An adaptive embedding and its softmax: their names on disk, and their weights."""

import numpy as np

from keras_attn import layers
from keras_attn.compat.unallocated import assign, initialize
from keras_attn.convert.hugging_face.family import read_part
from keras_attn.convert.hugging_face.weights import copy, numbers
from keras_attn.ops.checks import check_that

TABLE, PROJECTION = "word_emb.emb_layers.{}.weight", "word_emb.emb_projs.{}"
HEAD_TABLE, HEAD_PROJECTION = "crit.out_layers.{}.weight", "crit.out_projs.{}"


def tied_projections(config):
    """Return the argument of an `AdaptiveSoftmax` for the option `tie_projs`."""
    count, shares = len(config.integers("cutoffs")), config.flag("proj_share_all_but_first", True)
    tied = config.get("tie_projs", [False] + [shares] * count)
    for argument in (False, True, "all_but_first"):
        if tied == _flags(argument, count):
            return argument
    config.refuse(f"The option tie_projs={tied!r} is not converted.")


def projection_options(head):
    """Return the options of `config.json` for the projections of an `AdaptiveSoftmax`."""
    return {"tie_projs": _flags(head.tied_projections, len(head.embedding.cutoffs))}


def _flags(argument, count):
    """Return for each cluster whether its projection is shared, with `count` cutoffs."""
    return [argument is True] + [argument is not False] * count


def check_tied(model):
    """Refuse a model whose head is no `AdaptiveSoftmax` of its embedding."""
    read_part(model, "embedding.cutoffs")
    is_tied = (
        isinstance(model.head, layers.AdaptiveSoftmax) and model.head.embedding is model.embedding
    )
    check_that(is_tied, "an `AdaptiveSoftmax` of the model's embedding", head=model.head)


def drop_copies(checkpoint, head):
    """Leave out stored copies of tensors that the softmax shares with the embedding."""
    embedding = head.embedding
    for index in range(_num_tables(embedding)):
        checkpoint.drop_copy(HEAD_TABLE.format(index), TABLE.format(index))
    for index in range(len(head.projections), len(embedding.projections)):
        checkpoint.drop_copy(HEAD_PROJECTION.format(index), PROJECTION.format(index))


def copy_embedding(checkpoint, embedding):
    """Copy the tensors of an `AdaptiveEmbedding`, in either direction."""
    for index, tables in enumerate(_by_table(embedding, embedding.tables)):
        checkpoint.transfer(TABLE.format(index), _Rows([(x, x.shape[0]) for x in tables]))
    for index, projection in enumerate(embedding.projections):
        copy(checkpoint, projection, PROJECTION.format(index), transpose=True)


def copy_head(checkpoint, head):
    """Copy the tensors of an `AdaptiveSoftmax` that the embedding lacks, in either direction."""
    embedding, first = head.embedding, head.biases[0]
    initialize(head.biases)  # two tensors fill the first one
    words = [(bias, end - start) for bias, (start, end) in zip(head.biases, embedding.bounds)]
    for index, parts in enumerate(_by_table(embedding, words)):
        checkpoint.transfer(f"crit.out_layers.{index}.bias", _Rows(parts))
    if count := len(embedding.cutoffs):
        copy(checkpoint, head.cluster_table, "crit.cluster_weight")
        checkpoint.transfer("crit.cluster_bias", _Rows([(first, count)], embedding.cutoffs[0]))
    for index, projection in enumerate(head.projections):
        copy(checkpoint, projection, HEAD_PROJECTION.format(index), transpose=True)


def _num_tables(embedding):
    """Return the number of tables on disk: where all are equally wide, there is one."""
    return 1 if embedding.div_val == 1 else len(embedding.bounds)


def _by_table(embedding, parts):
    """Return the parts of all clusters as lists, one for each table on disk."""
    return [parts] if _num_tables(embedding) == 1 else [[part] for part in parts]


class _Rows:
    """One tensor of the rows of several variables.

    Args:
        parts: list of pairs of a variable and its number of rows in the tensor.
        start: int. The first of these rows in each variable.
    """

    def __init__(self, parts, start=0):
        self.variables, self._counts = zip(*parts, strict=True)
        self._start = start
        self.shape = sum(self._counts), *self.variables[0].shape[1:]

    def assign(self, tensor):
        """Assign the rows of a tensor to the variables, whose other rows stay as they are."""
        for variable, rows, part in self._with_rows(tensor):
            if part.shape != tuple(variable.shape):
                whole = numbers(variable)
                whole[rows] = part
                part = whole
            assign(variable, part)

    def tensor(self):
        """Return the rows of the variables, float32."""
        return np.concatenate([numbers(x)[rows] for x, rows in self._slices()])

    def _slices(self):
        for variable, count in zip(self.variables, self._counts, strict=True):
            yield variable, slice(self._start, self._start + count)

    def _with_rows(self, tensor):
        parts = np.split(tensor, np.cumsum(self._counts)[:-1])
        for (variable, rows), part in zip(self._slices(), parts, strict=True):
            yield variable, rows, part
