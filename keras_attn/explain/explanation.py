"""The costs of a model, layer by layer, as a table and as a dict."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """The costs of a layer in one step of training, or of a model in all.

    Attributes:
        path: str. The layer's path in the model.
        kind: str. Its class and, of attention, its pattern.
        parameters: int. Number of its weights.
        forward_flops, backward_flops: ints. Two for each multiply-add of a product of matrices.
    """

    path: str
    kind: str
    parameters: int = 0
    forward_flops: int = 0
    backward_flops: int = 0


NUMBERS = [field.name for field in dataclasses.fields(LayerCost)][2:]
COLUMNS = {
    "parameters": "parameters",
    "forward_flops": "FLOPs forward",
    "backward_flops": "backward",
}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The costs of a model, which print as a table.

    Attributes:
        model: str. Name of the preset or the model.
        length, batch_size: ints. Of the inputs.
        layers: list of the `LayerCost`s of the layers, in the order of their first calls.
        notes: list of str. What is not counted, and what will not fit.
    """

    model: str
    length: int
    batch_size: int
    layers: list
    notes: list

    @property
    def total(self):
        """The `LayerCost` of all layers."""
        sums = {name: sum(getattr(layer, name) for layer in self.layers) for name in NUMBERS}
        return LayerCost("", "in all", **sums)

    def to_dict(self):
        """Return the costs as a dict of numbers, strings, lists and dicts."""
        return {**dataclasses.asdict(self), "total": dataclasses.asdict(self.total)}

    def __str__(self):
        title = f"{self.model}: length {self.length:,}, batch of {self.batch_size:,}"
        rows = [["layer", *COLUMNS.values()]]
        rows += [_row(kind, cost, count) for kind, cost, count in self._groups()]
        rows.append(_row("in all", self.total, 1))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = [x.rjust(width) for x, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        return "\n".join([title, "", *lines, *self.notes])

    __repr__ = __str__

    def _groups(self):
        """Return (kind, cost, count) of layers that are alike, such as those of all blocks."""
        groups = {}
        for cost in self.layers:
            place = re.sub(r"_?\d+", "", cost.path)
            key = (place, cost.kind, *(getattr(cost, name) for name in NUMBERS))
            groups.setdefault(key, []).append(cost)
        return [(same[0].kind, same[0], len(same)) for same in groups.values()]


def _row(kind, cost, count):
    values = [short(count * getattr(cost, name)) for name in COLUMNS]
    return [f"{count} x {kind}" if count > 1 else kind, *values]


def short(number):
    """Return a number in at most four digits and a letter: 12,345,678 as 12.3 M."""
    for power, letter in enumerate(("", " k", " M", " G", " T", " P", " E")):
        scaled = number / 1000**power
        if scaled < 999.5 or letter == " E":
            return f"{scaled:.3g}{letter}" if power else str(number)
    return str(number)
