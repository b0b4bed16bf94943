"""Diagrams of boxes and arrows: scores, residuals, depths, memories and models."""

import itertools

import numpy as np

from keras_attn.viz.axes import FAINT, INK, PAPER
from keras_attn.viz.figure import new_figure

# All lengths are inches.
FONT_SIZE, CHARACTER, LINE = 9, 0.078, 0.16
PADDING, GAP, MARGIN = 0.09, 0.3, 0.12


def diagram(boxes, chains, *bends):
    """Return boxes, centres by label, and arrows (from, to, level).

    A label's end from `#` on is not drawn, so that two boxes can show the same text.

    Args:
        boxes: dict of (x, y) by label.
        chains: str, straight arrows, such as "a -> b -> c; d -> b".
        *bends: (from, to, level), arrows that pass above other boxes, or below if `level` < 0.
    """
    labels = [chain.split(" -> ") for chain in chains.split("; ")]
    straight = [(a, b, 0) for chain in labels for a, b in itertools.pairwise(chain)]
    return boxes, [*straight, *bends]


def row(chain, *bends):
    """Return the diagram of a chain whose boxes are in a row."""
    boxes, x = {}, 0
    for label in chain.split(" -> "):
        x += size(label)[0] / 2
        boxes[label] = (x, 0)
        x += size(label)[0] / 2 + GAP
    return diagram(boxes, chain, *bends)


def size(label):
    """Return the width and height of a box."""
    lines = text_of(label).split("\n")
    return max(map(len, lines)) * CHARACTER + 2 * PADDING, len(lines) * LINE + 2 * PADDING


def text_of(label):
    return label.split("#")[0]


def model_row(position, score, pattern, residual, depth, memory, loss):
    """Return the diagram of a model from its choices on the axes."""
    first, last = f"position:\n{position}", f"output:\n{loss}"
    attention = f"attention:\n{score}\n{pattern}"
    feed_forward = f"feed-forward,\nresidual: {residual}"
    chain = " -> ".join((first, attention, feed_forward, last))
    boxes, arrows = row(chain, (feed_forward, attention, -0.75))
    (start, _), (x, _), (end, _) = (boxes[label] for label in (first, attention, feed_forward))
    boxes[f"depth: {depth}"] = ((x + end) / 2, -0.75)
    if memory != "-":
        state = f"memory: {memory}"
        boxes[state] = (x, 0.75)
        arrows.append((state, attention, 0))
    if "cross" in pattern:
        boxes["encoder\nof the source"] = (start, 0.75)
        arrows.append(("encoder\nof the source", attention, 0))
    return boxes, arrows


DIAGRAMS = {
    "scores.DotProduct": diagram(
        {
            **{"query": (0, 0.5), "key": (0, 0)},
            **{"q . k": (0.9, 0.25), "/ √H": (1.65, 0.25), "logit": (2.4, 0.25)},
        },
        "query -> q . k; key -> q . k -> / √H -> logit",
    ),
    "scores.Additive": diagram(
        {
            **{"query": (0, 0.5), "W_q": (0.8, 0.5), "key": (0, 0), "W_k": (0.8, 0)},
            **{"+ b": (1.5, 0.25), "tanh": (2.2, 0.25), "w .": (2.9, 0.25)},
            "logit": (3.6, 0.25),
        },
        "query -> W_q -> + b; key -> W_k -> + b -> tanh -> w . -> logit",
    ),
    "scores.SharedQK": diagram(
        {
            **{"input": (0, 0.25), "W": (0.7, 0.25), "q": (1.4, 0.5), "k = q / ‖q‖": (1.6, 0)},
            **{"q . k": (2.6, 0.25), "/ √H": (3.35, 0.25), "logit": (4.1, 0.25)},
        },
        "input -> W -> q -> q . k; W -> k = q / ‖q‖ -> q . k -> / √H -> logit",
    ),
    "scores.Cosine": diagram(
        {
            **{"query": (0, 0.5), "/ ‖q‖": (0.8, 0.5), "key": (0, 0), "/ ‖k‖": (0.8, 0)},
            **{"q . k": (1.6, 0.25), "times\nscale": (2.4, 0.25), "logit": (3.2, 0.25)},
        },
        "query -> / ‖q‖ -> q . k; key -> / ‖k‖ -> q . k -> times\nscale -> logit",
    ),
    "scores.Kernel": diagram(
        {
            **{"queries": (0, 0.7), "phi#q": (0.85, 0.7), "keys": (0, 0), "phi#k": (0.85, 0)},
            **{"values": (0, -0.6), "sums of\nphi(k) v": (1.85, 0), "phi(q) .\nsums": (2.95, 0.7)},
            "output": (3.9, 0.7),
        },
        "queries -> phi#q -> phi(q) .\nsums -> output; keys -> phi#k -> sums of\nphi(k) v; "
        "values -> sums of\nphi(k) v -> phi(q) .\nsums",
    ),
    "scores.Sum": diagram(
        {
            **{"query": (0, 0.5), "key": (0, 0), "score": (0.9, 0.25), "+": (1.7, 0.25)},
            **{"bias of\npositions": (1.7, 0.85), "logit": (2.5, 0.25)},
        },
        "query -> score; key -> score -> + -> logit; bias of\npositions -> +",
    ),
    "layers.DifferentialAttention": diagram(
        {
            **{"values": (0, 0.35), "map A₁": (0.95, 0.7), "map A₂": (0.95, 0)},
            **{"times l": (1.8, 0), "-": (2.4, 0.35), "norm": (3, 0.35), "head": (3.7, 0.35)},
        },
        "values -> map A₁ -> - -> norm -> head; values -> map A₂ -> times l -> -",
    ),
    "layers.GlobalAttention": diagram(
        {
            **{"first inputs": (0, 0.7), "all inputs": (0, 0), "W_q'": (1.25, 0.7)},
            **{"W_k', W_v'": (1.25, 0.15), "W_q, W_k, W_v": (1.25, -0.5)},
            **{"first rows": (2.6, 0.45), "other rows": (2.6, -0.5), "output": (3.7, 0)},
        },
        "first inputs -> W_q' -> first rows; all inputs -> W_k', W_v' -> first rows -> output; "
        "all inputs -> W_q, W_k, W_v -> other rows -> output",
    ),
    "norms.BatchNorm": row(
        "x -> - mean of\nthe batch -> / deviation of\nthe batch -> times g -> + b -> y"
    ),
    "norms.LayerNorm": row("x -> - mean -> / deviation -> times g -> + b -> y"),
    "norms.RMSNorm": row("x -> / root of\nmean square -> times g -> y"),
    "norms.NoNorm": row("x -> y"),
    "residuals.OutputNorm": row("x -> sublayer -> norm -> + -> y", ("x", "+", 0.4)),
    "residuals.SandwichNorm": row("x -> norm -> sublayer -> norm#2 -> + -> y", ("x", "+", 0.4)),
    "residuals.ReZero": row("x -> sublayer -> times a -> + -> y", ("x", "+", 0.4)),
    "residuals.LayerScale": row("x -> norm -> sublayer -> times v -> + -> y", ("x", "+", 0.4)),
    "residuals.DeepNorm": diagram(
        {
            **{"x": (0, 0), "sublayer": (0.9, 0), "times a": (0.9, 0.5), "+": (1.75, 0)},
            **{"norm": (2.4, 0), "y": (3, 0)},
        },
        "x -> sublayer -> + -> norm -> y; x -> times a -> +",
    ),
    "layers.ParallelBlock": diagram(
        {
            **{"x": (0, 0), "norm": (0.7, 0), "attention": (1.7, 0.3), "feed-forward": (1.7, -0.3)},
            **{"+": (2.7, 0), "y": (3.3, 0)},
        },
        "x -> norm -> attention -> + -> y; norm -> feed-forward -> +",
        ("x", "+", 0.65),
    ),
    "residuals.PostNorm": row("x -> sublayer -> + -> norm -> y", ("x", "+", 0.4)),
    "residuals.PreNorm": row("x -> norm -> sublayer -> + -> y", ("x", "+", 0.4)),
    "residuals.Gate": row("x -> norm -> sublayer -> relu -> gate -> y", ("x", "gate", 0.4)),
    "feed_forward.FeedForward": row("x: D -> W₁ -> relu: F -> W₂ -> y: D"),
    "feed_forward.GatedFeedForward": diagram(
        {
            **{"x: D": (0, 0.25), "W_g": (0.8, 0.5), "W₁": (0.8, 0), "silu: F": (1.65, 0.5)},
            **{"times": (2.5, 0.25), "W₂": (3.2, 0.25), "y: D": (3.9, 0.25)},
        },
        "x: D -> W_g -> silu: F -> times; x: D -> W₁ -> times -> W₂ -> y: D",
    ),
    "feed_forward.MixtureOfExperts": diagram(
        {
            **{"x": (0, 0.5), "router": (0.85, 1.15), "expert 1": (2.2, 0.95)},
            **{"expert 2": (2.2, 0.5), "expert 3": (2.2, 0.05), "weighted\nsum": (3.4, 0.5)},
            "y": (4.2, 0.5),
        },
        "x -> router -> expert 1; x -> expert 1 -> weighted\nsum; x -> expert 3 -> weighted\nsum "
        "-> y",
    ),
    "feed_forward.SeparableConvTransition": row(
        "x: D -> 3 positions\nof a channel -> W₁ -> relu: F -> 5 positions\nof a channel -> W₂ "
        "-> y: D"
    ),
    "depth.Stack": row("x -> block 1 -> block 2 -> ... -> block L -> y"),
    "depth.Latents": row("x -> read by\nN vectors -> depth -> write by\npositions -> y"),
    "depth.Recurrent": row("x -> + step -> block -> y", ("block", "+ step", 0.45)),
    "depth.ACT": row(
        "x -> + step -> block -> halt? -> mean of states,\nby probability of halting",
        ("halt?", "+ step", 0.5),
    ),
    "depth.ACTCell": row(
        "input,\nstate -> cell -> halt? -> mean of outputs\nand of states", ("halt?", "cell", 0.5)
    ),
    "depth.ACTRNN": row(
        "input t,\nstate t-1 -> ACTCell -> output t,\nstate t -> + ponder\nloss",
        ("output t,\nstate t", "input t,\nstate t-1", 0.5),
    ),
    "depth.Reversible": diagram(
        {
            **{"x₁": (0, 0.9), "x₂": (0, 0), "attention": (1, 0.45), "+": (1.9, 0.9)},
            **{"feed-forward": (2.9, 0.45), "+#2": (3.9, 0), "y₁": (4.6, 0.9), "y₂": (4.6, 0)},
        },
        "x₁ -> + -> y₁; x₂ -> attention -> + -> feed-forward -> +#2; x₂ -> +#2 -> y₂",
    ),
    "memory.KVCache": diagram(
        {
            **{"query of token 3": (1.7, 0.65), "k₁, v₁": (0, 0), "k₂, v₂": (0.8, 0)},
            **{"new: k₃, v₃": (1.8, 0), "empty": (2.75, 0), "empty#2": (3.5, 0)},
        },
        "query of token 3 -> k₁, v₁; query of token 3 -> k₂, v₂; query of token 3 -> new: k₃, v₃",
    ),
    "memory.SegmentMemory": diagram(
        {
            **{"memory:\nM states": (0, 0), "segment:\nT states": (1.4, 0)},
            **{"layer": (0.7, 0.8), "next memory:\nlast M of both": (3, 0)},
        },
        "memory:\nM states -> layer; segment:\nT states -> layer; "
        "segment:\nT states -> next memory:\nlast M of both",
        ("memory:\nM states", "next memory:\nlast M of both", -0.45),
    ),
    "memory.CompressiveMemory": diagram(
        {
            **{"compressed:\nC states": (0, 0), "memory:\nM states": (1.5, 0)},
            **{"segment:\nT states": (3, 0), "layer": (1.5, 0.8), "forgotten": (-1.4, 0)},
        },
        "compressed:\nC states -> layer; memory:\nM states -> layer; segment:\nT states -> layer; "
        "compressed:\nC states -> forgotten",
        ("segment:\nT states", "memory:\nM states", -0.45),
        ("memory:\nM states", "compressed:\nC states", -0.45),
    ),
    "memory.KNNMemory": diagram(
        {
            **{"memory: M keys\nand values": (0, 0), "best k": (1.4, 0.45), "query": (2.6, 0.9)},
            **{"output": (4, 0.45), "segment:\nT keys": (2.6, 0)},
        },
        "memory: M keys\nand values -> best k; query -> best k; query -> output; "
        "segment:\nT keys -> output",
        ("best k", "output", 0.45),
        ("segment:\nT keys", "memory: M keys\nand values", -0.45),
    ),
    "memory.StatefulSegments": diagram(
        {
            **{"batch 1": (0, 0), "batch 2": (2, 0), "batch 3": (4, 0)},
            **{"model": (0, 0.65), "model#2": (2, 0.65), "model#3": (4, 0.65)},
            **{"memory": (1, 0.65), "memory#2": (3, 0.65)},
        },
        "batch 1 -> model -> memory -> model#2 -> memory#2 -> model#3; batch 2 -> model#2; "
        "batch 3 -> model#3",
    ),
}


def draw_diagram(boxes, arrows):
    """Return a figure of boxes, centres by label, and arrows (from, to, level).

    An arrow with a level of 0 is straight; others leave and enter at the top or the bottom of a
    box, and pass at that height.
    """
    sizes = {label: size(label) for label in boxes}
    limits = []
    for axis in (0, 1):
        centres = [(xy[axis], sizes[label][axis] / 2) for label, xy in boxes.items()]
        levels = [level for _, _, level in arrows] if axis else []
        ends = [x + half * sign for x, half in centres for sign in (-1, 1)] + levels
        limits.append((min(ends) - MARGIN, max(ends) + MARGIN))
    figure = new_figure(*(high - low for low, high in limits))
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    figure.set_layout_engine("none")
    axes = figure.add_axes([0, 0, 1, 1])
    axes.set(xlim=limits[0], ylim=limits[1])
    axes.axis("off")
    patches = {}
    for label, (x, y) in boxes.items():
        width, height = sizes[label]
        corner, style = (x - width / 2, y - height / 2), "round,pad=0,rounding_size=0.06"
        colors = {"facecolor": PAPER, "edgecolor": INK}
        box = FancyBboxPatch(corner, width, height, style, zorder=2, **colors)
        patches[label] = axes.add_patch(box)
        axes.text(x, y, text_of(label), size=FONT_SIZE, color=INK, ha="center", va="center")
    style = {"arrowstyle": "->", "mutation_scale": 9, "color": FAINT, "shrinkA": 1, "shrinkB": 1}
    for start, end, level in arrows:
        if not level:
            ends = {"patchA": patches[start], "patchB": patches[end]}
            axes.add_patch(FancyArrowPatch(boxes[start], boxes[end], **ends, **style))
            continue
        (x, bottom), (to, top) = (
            (boxes[label][0], boxes[label][1] + np.sign(level) * sizes[label][1] / 2)
            for label in (start, end)
        )
        axes.plot([x, x, to], [bottom, level, level], color=FAINT, linewidth=1, zorder=1)
        axes.add_patch(FancyArrowPatch((to, level), (to, top), **style))
    return figure
