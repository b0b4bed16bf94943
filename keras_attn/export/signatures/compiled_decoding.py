"""Decoding that XLA compiles for a few shapes, and the graph that pads a batch to one of them."""

import dataclasses

import tensorflow as tf

from keras_attn.generation import generate
from keras_attn.ops.checks import check_that


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Shapes for which XLA compiles the decoding function of an export.

        (B, S) -> (min {b in batches: b >= B}, min {l in lengths: l >= S})

    A batch of B rows, whose longest has S tokens, is padded inside the graph to the smallest bucket
    that holds it. The added rows repeat the last one, so that none runs longer than a real row. A
    batch that no bucket holds, and one without rows, is decoded by the plain graph.

    Each of the `len(batches) * len(lengths)` buckets is compiled once when the export is loaded,
    and its program takes memory. A batch costs what its bucket costs, which grows with the rows and
    hardly with the tokens, so few lengths suffice. Large batches gain less: a step then spends its
    time in products, and the plain graph attends to the tokens so far only.

    Args:
        batches: increasing integers. Numbers of rows.
        lengths: increasing integers. Numbers of source or prompt tokens, special tokens among them.

    Raises:
        ValueError: if `batches` or `lengths` are not increasing integers of at least 1.

    Example:
        >>> import keras_attn
        >>> keras_attn.export.Buckets(batches=(1, 8), lengths=(32,)).shapes
        [(1, 32), (8, 32)]

    Reference: [XLA](https://www.tensorflow.org/xla), whose compiled functions have static shapes.
    """

    batches: tuple = (1, 2, 4, 8, 16, 32)
    lengths: tuple = (32, 128)

    def __post_init__(self):
        for name in ("batches", "lengths"):
            sizes = getattr(self, name)
            wanted = "increasing integers of at least 1, as (1, 4, 16)"
            check_that(_are_increasing(sizes), wanted, **{name: sizes})
            object.__setattr__(self, name, tuple(sizes))

    @property
    def shapes(self):
        """A list of (rows, tokens), one for each bucket."""
        return [(rows, tokens) for rows in self.batches for tokens in self.lengths]

    def up_to(self, max_length):
        """Return the buckets for rows of at most `max_length` tokens."""
        shorter = [length for length in self.lengths if length < max_length]
        is_reached = len(shorter) < len(self.lengths)
        return dataclasses.replace(self, lengths=(*shorter, *([max_length] if is_reached else [])))

    def dispatch(self, compiled, plain, pad_id):
        """Return the function of ids (B, S) and lengths (B,) that runs one of two such functions.

        `compiled` gets the ids and lengths of a bucket, `plain` those that no bucket holds.
        """

        def decode_bucket(ids, lengths, longest):
            rows, width = tf.shape(ids)[0], tf.shape(ids)[1]
            batch, length = _ceil(rows, self.batches), _ceil(longest, self.lengths)
            missing = tf.maximum(length - width, 0)
            padded = tf.pad(ids, [[0, 0], [0, missing]], constant_values=pad_id)[:, :length]
            source = tf.minimum(tf.range(batch), rows - 1)
            outputs = compiled(tf.gather(padded, source), tf.gather(lengths, source))
            return tuple(output[:rows] for output in outputs)

        def decode(ids, lengths):
            rows, width = tf.shape(ids)[0], tf.shape(ids)[1]
            lengths = tf.minimum(lengths, width)
            longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
            fits = (rows > 0) & (rows <= self.batches[-1]) & (longest <= self.lengths[-1])
            return tf.cond(
                fits, lambda: decode_bucket(ids, lengths, longest), lambda: plain(ids, lengths)
            )

        return decode


def decoding_function(model, strategy, buckets=None, **options):
    """Return the function of ids (B, S) and lengths (B,) that gives `generate`'s ids and scores.

    With `Buckets` their shapes are compiled.
    """

    def plain(ids, lengths):
        return generate(model, ids, strategy, lengths=lengths, **options)

    def compiled(ids, lengths):
        return generate(model, ids, strategy, lengths=lengths, jit_compile=True, **options)

    if buckets is None:
        return plain
    return buckets.dispatch(compiled, plain, getattr(model, "pad_id", 0) or 0)


def _are_increasing(sizes):
    if not isinstance(sizes, (list, tuple)) or not sizes:
        return False
    if not all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        return False
    return sizes[0] >= 1 and all(a < b for a, b in zip(sizes, sizes[1:], strict=False))


def _ceil(number, sizes):
    """Return the least of increasing sizes that is at least `number`, or the last one."""
    sizes = tf.constant(sizes, tf.int32)
    smaller = tf.reduce_sum(tf.cast(sizes < number, tf.int32))
    return sizes[tf.minimum(smaller, tf.size(sizes) - 1)]
