"""The costs of a model, layer by layer, as a table and as a dict."""

import dataclasses
import re
from typing import NamedTuple


class Reach(NamedTuple):
    """Distances of information in a model; None for inputs that are too long to follow.

    Positions are those of the keys, slots of a memory and tokens that a model adds among them.
    Where patterns leave out pairs, three outputs are followed: the first, middle and last one.

    Attributes:
        receptive_field: int. The most positions that one output reads through all layers.
        path_length: int. The most layers that an output needs to be reached from a position, if it
            is at all and the layers repeat in their order: 1 where all pairs are allowed, p for p
            factors. Both ends counted, a path has p + 1 positions.
        sequential_operations: int. Layers with products that run one after another.
    """

    receptive_field: int | None
    path_length: int | None
    sequential_operations: int


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """The costs of a layer in one step of training, or of a model in all.

    Attributes:
        path: str. The layer's path in the model.
        kind: str. Its class and, of attention, its pattern.
        parameters: int. Number of its weights.
        forward_flops, backward_flops: ints. Two for each multiply-add of a product of matrices.
        activation_bytes: int. Kept for the backward pass; of recomputed layers, while they are.
        score_bytes: int. The part of them that is matrices of scores.
        cache_bytes: int. Of keys and values, or sums, for decoding.
        most_keys: int. The most keys that a query may attend to; None where that is not known.
    """

    path: str
    kind: str
    parameters: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    activation_bytes: int = 0
    score_bytes: int = 0
    cache_bytes: int = 0
    most_keys: int | None = None


NUMBERS = [field.name for field in dataclasses.fields(LayerCost)][2:-1]
COLUMNS = {
    "parameters": "parameters",
    "forward_flops": "FLOPs forward",
    "backward_flops": "backward",
    "activation_bytes": "activations",
    "score_bytes": "scores",
    "cache_bytes": "cache",
}


@dataclasses.dataclass(frozen=True)
class MemoryCost:
    """Bytes of a model in all.

    Attributes:
        weights, gradients, optimizer: ints. Of the variables, their gradients, the optimizer's.
        training: int. Those, and the most that activations take during a step.
        decoding: int. Weights and caches.
        per_token: int. The most that decoding reads for each token of a row: the row's cache and
            its share of all weights, an encoder's and those of experts not chosen among them.
    """

    weights: int
    gradients: int
    optimizer: int
    training: int
    decoding: int
    per_token: int


@dataclasses.dataclass(frozen=True)
class DeviceCost:
    """Bytes of one device of a mesh in a training step under `distribution.ModelParallel`.

    Attributes:
        data, model: ints. Number of devices along each axis of the mesh.
        shards_parameters: bool.
        weights, gradients, optimizer, activations: ints. Held.
        summed_gradients: int. Of the gradients that the `data` devices add up.
        gathered_weights: int. Of the sharded weights that are gathered where they are used.
        exchanged_rows: int. Of the rows that are looked up in sharded tables, and their gradients.
        summed_activations: int. Of the outputs, and of the gradients of the inputs, that the
            `model` devices add up.
    """

    data: int
    model: int
    shards_parameters: bool
    weights: int
    gradients: int
    optimizer: int
    activations: int
    summed_gradients: int
    gathered_weights: int
    exchanged_rows: int
    summed_activations: int

    @property
    def held(self):
        """Bytes that a training step takes on a device."""
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def moved(self):
        """Bytes that a device gets from collectives in a training step."""
        weight_bytes = self.summed_gradients + self.gathered_weights + self.exchanged_rows
        return weight_bytes + self.summed_activations


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The costs of a model, which print as a table.

    Attributes:
        model: str. Name of the preset or the model.
        length, batch_size: ints. Of the inputs.
        layers: list of the `LayerCost`s of the layers, in the order of their first calls.
        memory: `MemoryCost`.
        reach: `Reach`.
        notes: list of str. What is not counted, will not fit, or does not divide by a mesh.
        devices: `DeviceCost` of each device of a mesh; None without one.
    """

    model: str
    length: int
    batch_size: int
    layers: list
    memory: MemoryCost
    reach: Reach
    notes: list
    devices: DeviceCost | None = None

    @property
    def total(self):
        """The `LayerCost` of all layers."""
        sums = {name: sum(getattr(layer, name) for layer in self.layers) for name in NUMBERS}
        return LayerCost("", "in all", **sums)

    def to_dict(self):
        """Return the costs as a dict of numbers, strings, lists and dicts."""
        more = {"total": dataclasses.asdict(self.total), "reach": self.reach._asdict()}
        return {**dataclasses.asdict(self), **more}

    def __str__(self):
        title = f"{self.model}: length {self.length:,}, batch of {self.batch_size:,}"
        rows = [["layer", *COLUMNS.values(), "keys"]]
        rows += [_row(kind, cost, count) for kind, cost, count in self._groups()]
        rows.append(_row("in all", self.total, 1))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = [x.rjust(width) for x, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        more = [*self._memory_lines(), *self._device_lines(), *self.notes]
        return "\n".join([title, "", *lines, "", *more])

    def _memory_lines(self):
        memory = self.memory
        weights, gradients, optimizer = map(
            in_bytes, (memory.weights, memory.gradients, memory.optimizer)
        )
        yield f"weights {weights}, gradients {gradients}, optimizer {optimizer}"
        yield f"a training step takes about {in_bytes(memory.training)}"
        field, path, steps = ("unknown" if x is None else f"{x:,}" for x in self.reach)
        yield f"receptive field {field}, longest path {path}, sequential operations {steps}"
        decoding = f"decoding takes about {in_bytes(memory.decoding)}"
        yield f"{decoding}, and reads at most {in_bytes(memory.per_token)} a token"

    def _device_lines(self):
        of = self.devices
        if of is None:
            return
        how = ", whose parameters are sharded" if of.shards_parameters else ""
        held = _listed(of, "weights", "gradients", "optimizer", "activations")
        yield f"each of {of.data:,} x {of.model:,} devices{how}: {in_bytes(of.held)}, of it {held}"
        names = "summed_gradients", "gathered_weights", "exchanged_rows", "summed_activations"
        yield f"in a step it gets {in_bytes(of.moved)} from others: {_listed(of, *names)}"

    __repr__ = __str__

    def _groups(self):
        """Return (kind, cost, count) of layers that are alike, such as those of all blocks."""
        groups = {}
        for cost in self.layers:
            place = re.sub(r"_?\d+", "", cost.path)
            key = (place, cost.kind, *(getattr(cost, name) for name in NUMBERS))
            groups.setdefault(key, []).append(cost)
        return [(same[0].kind, same[0], len(same)) for same in groups.values()]


def _listed(cost, *names):
    """Return the bytes of these attributes in a row, each with its name."""
    return ", ".join(f"{x.replace('_', ' ')} {in_bytes(getattr(cost, x))}" for x in names)


def _row(kind, cost, count):
    numbers = {name: count * getattr(cost, name) for name in COLUMNS}
    values = [in_bytes(n) if name.endswith("bytes") else short(n) for name, n in numbers.items()]
    values.append("" if cost.most_keys is None else f"{cost.most_keys:,}")
    return [f"{count} x {kind}" if count > 1 else kind, *values]


def short(number):
    """Return a number in at most four digits and a letter: 12,345,678 as 12.3 M."""
    for power, letter in enumerate(("", " k", " M", " G", " T", " P", " E")):
        scaled = number / 1000**power
        if scaled < 999.5 or letter == " E":
            return f"{scaled:.3g}{letter}" if power else str(number)
    return str(number)


def in_bytes(number):
    """Return a number of bytes in a unit: 12,345,678 as 12.3 MB."""
    text = short(number)
    return f"{text}B" if " " in text else f"{text} B"
