"""Decoding that XLA compiles for a few shapes when an export is loaded."""

import dataclasses
import functools
import itertools

import numpy as np
import tensorflow as tf

from keras_attn.export.golden_outputs import first_line, outputs_match, stable_outputs
from keras_attn.generation import generate
from keras_attn.models.model import num_tokens
from keras_attn.ops.checks import check_choice, check_sizes, check_that


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Shapes for which XLA compiles the decoding function of an export.

        (B, S) -> (min {b in batches: b >= B / parallel}, min {l in lengths: l >= S})

    A batch of B rows, whose longest has S tokens, is padded inside the graph to the smallest bucket
    that holds it. The added rows repeat the last one, so that none runs longer than a real row. A
    batch that no bucket holds, and one without rows, is decoded by the plain graph.

    With `parallel` the graph divides a batch into as many parts of equal size, or one a row, and
    pads each to its bucket. Their calls do not wait for one another, so that they run at once where
    TensorFlow has as many threads for several operations (inter-op) and for one (intra-op), whose
    threads XLA's programs share. With one thread for an operation they run one after another.

    Each of the `len(batches) * len(lengths)` buckets is compiled once when the export is loaded,
    and its program takes memory. A batch costs what its bucket costs, which grows with the rows and
    hardly with the tokens, so few lengths suffice. Large batches gain less: a step then spends its
    time in products, and the plain graph attends to the tokens so far only.

    Args:
        batches: increasing integers. Numbers of rows.
        lengths: increasing integers. Numbers of source or prompt tokens, special tokens among them.
        parallel: int. Most parts of a batch, such as the number of cores that one call may use.

    Raises:
        ValueError: if `batches` or `lengths` are not increasing integers of at least 1, or
            `parallel` is below 1.

    Example:
        >>> import keras_attn
        >>> keras_attn.export.Buckets(batches=(1, 8), lengths=(32,)).shapes
        [(1, 32), (8, 32)]

    Reference: [XLA](https://www.tensorflow.org/xla), whose compiled functions have static shapes.
    """

    batches: tuple = (1, 2, 4, 8, 16, 32)
    lengths: tuple = (32, 128)
    parallel: int = 1

    def __post_init__(self):
        for name in ("batches", "lengths"):
            sizes = getattr(self, name)
            wanted = "increasing integers of at least 1, as (1, 4, 16)"
            check_that(_are_increasing(sizes), wanted, **{name: sizes})
            object.__setattr__(self, name, tuple(sizes))
        check_sizes(parallel=self.parallel)

    @property
    def shapes(self):
        """A list of (rows, tokens), one for each bucket."""
        return [(rows, tokens) for rows in self.batches for tokens in self.lengths]

    @property
    def batch_shapes(self):
        """A list of (rows, tokens) of the largest batch whose parts each bucket holds."""
        return [(self.parallel * rows, tokens) for rows, tokens in self.shapes]

    def up_to(self, max_length):
        """Return the buckets for rows of at most `max_length` tokens."""
        shorter = [length for length in self.lengths if length < max_length]
        is_reached = len(shorter) < len(self.lengths)
        return dataclasses.replace(self, lengths=(*shorter, *([max_length] if is_reached else [])))

    def dispatch(self, compiled, plain, pad_id):
        """Return the function of ids (B, S) and lengths (B,) that runs one of two such functions.

        `compiled` gets the ids and lengths of a bucket, `plain` those that no bucket holds.
        """

        def decode_bucket(ids, lengths):
            rows = tf.shape(ids)[0]
            source = tf.minimum(tf.range(_ceil(rows, self.batches)), rows - 1)
            outputs = compiled(tf.gather(ids, source), tf.gather(lengths, source))
            return tuple(output[:rows] for output in outputs)

        def decode_parts(ids, lengths, longest, count):
            rows, width = tf.shape(ids)[0], tf.shape(ids)[1]
            length = _ceil(longest, self.lengths)
            missing = tf.maximum(length - width, 0)
            ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=pad_id)[:, :length]
            ends = [rows * number // count for number in range(count + 1)]
            parts = [decode_bucket(ids[a:b], lengths[a:b]) for a, b in itertools.pairwise(ends)]
            return tuple(tf.concat(each, axis=0) for each in zip(*parts, strict=True))

        def decode(ids, lengths):
            rows, width = tf.shape(ids)[0], tf.shape(ids)[1]
            lengths = tf.minimum(lengths, width)
            longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
            fits = (rows <= self.parallel * self.batches[-1]) & (longest <= self.lengths[-1])
            counts = range(1, self.parallel + 1)
            branches = [functools.partial(decode_parts, ids, lengths, longest, n) for n in counts]
            branches.insert(0, lambda: plain(ids, lengths))
            # A number of parts, or 0 for the plain graph.
            return tf.switch_case(tf.where(fits, tf.minimum(rows, self.parallel), 0), branches)

        return decode


def decoding_function(model, strategy, buckets=None, **options):
    """Return the function of ids (B, S) and lengths (B,) that gives `generate`'s ids and scores.

    With `Buckets` their shapes are compiled.
    """

    def plain(ids, lengths, **how):
        lengths = at_least_one(ids, lengths)
        return generate(model, ids, strategy, lengths=lengths, **options, **how)

    def compiled(ids, lengths):
        return plain(ids, lengths, jit_compile=True)

    if buckets is None:
        return plain
    if buckets.parallel > 1:  # the parts would draw the same numbers
        seed = _seed_of(strategy)
        check_that(seed is None, "None where a batch is decoded in parallel parts", seed=seed)
    return buckets.dispatch(compiled, plain, getattr(model, "pad_id", 0) or 0)


def _seed_of(strategy):
    while hasattr(strategy, "strategy"):
        strategy = strategy.strategy
    return getattr(strategy, "seed", None)


def at_least_one(ids, lengths):
    """Return lengths in [1, S]: an empty row is read as one token, and the caller blanks it."""
    return tf.clip_by_value(lengths, 1, tf.shape(ids)[1])


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


COMPILERS = ("xla",)
# Signatures that decode, and the names of their twins that need no compiler.
PLAIN_NAMES = {"ids": "plain_ids", "serving_default": "plain"}


def check_compilation(compile, buckets):
    """Return the `Buckets` to compile for, or None; refuse what cannot be compiled here."""
    check_choice((None, *COMPILERS), compile=compile)
    if compile is None:
        check_that(buckets is None, "None without `compile`", buckets=buckets)
        return None
    if not tf.test.is_built_with_xla():
        raise ValueError(
            "`compile` needs a TensorFlow that is built with XLA: export without it. "
            f"Received: compile={compile!r}."
        )
    buckets = Buckets() if buckets is None else buckets
    check_that(isinstance(buckets, Buckets), "a `keras_attn.export.Buckets`", buckets=buckets)
    return buckets


def check_decodes(functions):
    """Refuse the functions of a model that have no decoding function to compile."""
    if not functions.decodes:
        raise ValueError(
            "`compile` needs a model with a decoding function: an encoder-decoder, or a causal "
            "model without a memory, of texts or ids, and not `stream=True`. "
            f"Received: the signatures {', '.join(sorted(functions.signatures))}."
        )


class CompiledDecoding:
    """The functions of a model whose decoding is compiled, beside those without a compiler.

    A server without XLA still runs each signature that does not decode, and the plain twins.
    """

    def __init__(self, plain, compiled):
        self.plain, self.compiled = plain, compiled

    def make_resources(self):
        """Return a module of the resources of both, those of the compiled ones as `compiled`."""
        resources = self.plain.make_resources()
        resources.compiled = self.compiled.make_resources()
        return resources

    @property
    def signatures(self):
        signatures = dict(self.plain.signatures)
        for name, twin in PLAIN_NAMES.items():
            signatures[twin] = signatures[name]
            signatures[name] = self.compiled.signatures[name]
        return signatures

    @property
    def facts(self):
        """The facts of the compilation that the export records."""
        return {
            "compiler": COMPILERS[0],
            "batches": self.compiled.buckets.batches,
            "lengths": self.compiled.buckets.lengths,
            "parallel": self.compiled.buckets.parallel,
            "plain_names": PLAIN_NAMES,
        }

    def requests(self, model):
        """Return a request of "ids" for each bucket, with the function that gives the outputs.

        It is the plain one, which the compiled ones must equal.
        """
        return [
            ("ids", _bucket_inputs(self.plain.ids, shape, num_tokens(model)), self.plain.ids)
            for shape in self.compiled.buckets.batch_shapes
        ]

    def try_compiler(self, model):
        """Compile the smallest bucket and compare its outputs with the plain ones.

        Raise a `ValueError` if it cannot be compiled, or gives others.
        """
        shape = self.compiled.buckets.batch_shapes[0]
        inputs = _bucket_inputs(self.plain.ids, shape, num_tokens(model))
        expected = stable_outputs(model, self.plain.ids, inputs)
        try:
            outputs = self.compiled.ids(*inputs.values())
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise ValueError(
                "XLA cannot compile the decoding function of the model: export it without "
                f"`compile`. Received: {first_line(error)}"
            ) from error
        for name, array in expected.items():
            if not outputs_match(array, outputs[name].numpy()):
                raise ValueError(
                    "The compiled decoding function must give the outputs of the plain one: export "
                    f"the model without `compile`. Received: other {name} for {shape[1]} tokens."
                )


def _bucket_inputs(function, shape, tokens):
    """Return ids of a shape and the lengths of their rows, by the names of a function's inputs.

    The rows are equal: the fewer choices, the fewer ties that another order of sums would turn.
    """
    ids = np.tile(1 + np.arange(shape[1]) % tokens, (shape[0], 1))
    arrays = ids, np.full(shape[0], shape[1])
    specs = function.input_signature
    return {spec.name: tf.constant(x, spec.dtype) for spec, x in zip(specs, arrays, strict=True)}
