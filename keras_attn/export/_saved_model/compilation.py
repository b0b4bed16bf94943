"""Exports that compile their decoding function when they are loaded."""

import numpy as np
import tensorflow as tf

from keras_attn.export.golden_outputs import first_line, outputs_match, stable_outputs
from keras_attn.export.signatures.compiled_decoding import Buckets
from keras_attn.export.signatures.text_generator import TokenGenerator
from keras_attn.export.signatures.translator import IdTranslator
from keras_attn.models.model import num_tokens
from keras_attn.ops.checks import check_choice, check_that

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
    if not isinstance(functions, (IdTranslator, TokenGenerator)):
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
            "plain_names": PLAIN_NAMES,
        }

    def requests(self, model):
        """Return a request of "ids" for each bucket, with the function that gives the outputs.

        It is the plain one, which the compiled ones must equal.
        """
        return [
            ("ids", _bucket_inputs(self.plain.ids, shape, num_tokens(model)), self.plain.ids)
            for shape in self.compiled.buckets.shapes
        ]

    def try_compiler(self, model):
        """Compile the smallest bucket and compare its outputs with the plain ones.

        Raise a `ValueError` if it cannot be compiled, or gives others.
        """
        shape = self.compiled.buckets.shapes[0]
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
