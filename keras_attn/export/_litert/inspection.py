"""Inspection of a LiteRT file: signatures, operations, sizes, and a check of its outputs."""

import collections
import dataclasses
import os

import numpy as np

from keras_attn.export._litert.files import open_file, read_record, run_signature
from keras_attn.export.golden_outputs import outputs_match
from keras_attn.export.report_lines import format_outcomes, format_signatures, format_size


@dataclasses.dataclass(frozen=True)
class LiteRTInspection:
    """Result of `inspect` for a LiteRT file.

    Attributes:
        path: the inspected file.
        signatures: dict of a signature's name and a dict of "inputs" and "outputs", each a dict of
            a name and its (dtype, shape): `("int32", (None, None))`.
        ops: dict of an operation's name and its number in all signatures.
        custom_ops: list of the operations that are not LiteRT's own, which need a delegate.
        weight_bytes: bytes of all constants.
        file_bytes: bytes of the file.
        precision: "float32", "float16" or "int8", of the weights; None for another program's file.
        errors: dict by signature and output of what the precision costs: the greatest error of
            numbers, divided by the greatest magnitude of the output, or the share of other ids.
        outcomes: dict of a signature's name and the outcome of its recorded example: "same" or
            "differs". Empty for another program's file.
    """

    path: str
    signatures: dict
    ops: dict
    custom_ops: list
    weight_bytes: int
    file_bytes: int
    precision: str | None
    errors: dict
    outcomes: dict

    @property
    def faults(self):
        """A list of sentences, one for each fault of the file; empty for a sound one."""
        faults = []
        if self.custom_ops:
            names = ", ".join(self.custom_ops)
            faults.append(f"LiteRT runs operations in it with a delegate only: {names}.")
        differing = [name for name, outcome in self.outcomes.items() if outcome == "differs"]
        if differing:
            faults.append(
                "The file is damaged or runs differently here: outputs differ from the recorded "
                f"ones for {', '.join(differing)}."
            )
        return faults

    def report(self):
        """Return the lines that `keras-attn inspect` prints."""
        return [
            self.path,
            "",
            *format_signatures(self.signatures),
            "",
            f"operations   {sum(self.ops.values())} of {len(self.ops)} kinds",
            f"needs        {', '.join(self.custom_ops) or 'LiteRT alone, no delegate'}",
            f"weights      {self.precision or 'unknown precision'}, constants of "
            + format_size(self.weight_bytes),
            f"files        {format_size(self.file_bytes)}",
            f"outputs      {format_outcomes(self.outcomes)}",
            *self.error_lines(),
        ]

    def error_lines(self):
        """Return the lines that tell what the precision of the weights costs; none for float32."""
        lines = [
            f"  {name}: {output} {error:.2g}"
            for name, outputs in self.errors.items()
            for output, error in outputs.items()
        ]
        title = "errors       of the weights' precision, relative to an output's greatest number"
        return [title, *lines] if lines else []


def inspect_file(path):
    """Return the `LiteRTInspection` of a file."""
    interpreter = open_file(path)
    facts, examples = read_record(path)
    ops, custom_ops, weight_bytes = _contents(path)
    signatures = {name: _signature(interpreter, name) for name in interpreter.get_signature_list()}
    return LiteRTInspection(
        path=path,
        signatures=signatures,
        ops=ops,
        custom_ops=custom_ops,
        weight_bytes=weight_bytes,
        file_bytes=os.path.getsize(path),
        precision=facts.get("precision"),
        errors=facts.get("errors", {}),
        outcomes={name: _replay(interpreter, name, *pair) for name, pair in examples.items()},
    )


def _contents(path):
    """Return the operations by number, the custom ones, and the bytes of the constants."""
    from ai_edge_litert import schema_py_generated as schema

    with open(path, "rb") as file:
        model = schema.Model.GetRootAs(file.read(), 0)
    names = {code: name for name, code in vars(schema.BuiltinOperator).items()}
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    kinds = [code.CustomCode() or names[code.BuiltinCode()] for code in codes]
    kinds = [kind.decode() if isinstance(kind, bytes) else kind for kind in kinds]
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    ops = collections.Counter(
        kinds[graph.Operators(i).OpcodeIndex()]
        for graph in graphs
        for i in range(graph.OperatorsLength())
    )
    custom = {kind for kind, code in zip(kinds, codes, strict=True) if code.CustomCode()}
    sizes = [model.Buffers(i).DataLength() for i in range(model.BuffersLength())]
    return dict(ops), sorted(custom), sum(sizes)


def _signature(interpreter, name):
    runner = interpreter.get_signature_runner(name)
    sides = {"inputs": runner.get_input_details(), "outputs": runner.get_output_details()}
    return {
        side: {key: _spec(details[key]) for key in sorted(details)}
        for side, details in sides.items()
    }


def _spec(details):
    shape = (None if n < 0 else int(n) for n in details["shape_signature"])
    return np.dtype(details["dtype"]).name, tuple(shape)


def _replay(interpreter, name, inputs, expected):
    try:
        outputs = run_signature(interpreter, name, inputs)
    except (KeyError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"The recorded example for {name!r} cannot be run. Received: {error}"
        ) from error
    is_same = all(key in outputs and outputs_match(x, outputs[key]) for key, x in expected.items())
    return "same" if is_same else "differs"
