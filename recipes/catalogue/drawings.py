"""Small pictures of the values: matrices of patterns and scores, curves, and diagrams."""

import math

import numpy as np
from keras import ops

from keras_attn import layers, losses, patterns, positions, scores, viz
from keras_attn.viz.figure import new_figure
from keras_attn.viz.patterns import examples

from .diagrams import DIAGRAMS, draw_diagram, model_row
from .entries import sections

LENGTH = 24

# Factors as a search may find them.
LONG_ROPE = [1 + 3 * (i / 31) ** 2 for i in range(32)]


def draw(name):
    """Return the figure of a value."""
    function, *arguments = DRAWINGS[name]
    return function(*arguments)


def draw_pattern(title):
    return viz.plot_pattern(dict(examples())[title], LENGTH)


def draw_image_pattern(image_shape, query_shape, flange):
    pattern = patterns.BlockLocal2D(image_shape, query_shape, flange)
    return viz.plot_pattern(pattern, image_shape=image_shape, pixels=[(2, 12), (6, 9)])


def draw_distances(name, *arguments, length=24):
    """Draw the logits of equal queries and equal keys, which differ by their distance only."""
    score = getattr(scores, name)(*arguments)
    if isinstance(score, scores.Bias):
        score = scores.DotProduct() + score
    query, key = np.random.default_rng(0).standard_normal((2, 1, 1, 1, 8)).astype("float32")
    query, key = (np.tile(x, (1, 1, length, 1)) for x in (query, key))
    score.build_for(query.shape, key.shape)
    _assign_random(score)
    logits = ops.convert_to_numpy(score(query, key, ops.arange(length), ops.arange(length)))[0, 0]
    figure = _draw_matrix(logits - np.median(logits), "key", "query")
    figure.axes[0].set_title("logits of equal queries and equal keys", size=9)
    return figure


def draw_frequencies(name, *arguments, size=64):
    """Draw by how much a scaling slows each pair down."""
    plain = positions.Interpolation(1).frequencies(size, 10000)
    scaled = getattr(positions, name)(*arguments).frequencies(size, 10000)
    curves = {"": scaled / plain}
    return _draw_curves(np.arange(size // 2), curves, "pair, from fast to slow", "angle, relative")


def draw_cap(cap=5.0):
    """Draw logits under a cap against those without."""
    x = np.linspace(-20, 20, 81)
    return _draw_curves(x, {"": cap * np.tanh(x / cap)}, "logit", f"with a cap of {cap:g}")


def draw_estimates(size=16):
    """Draw logits that random features estimate against those of the scaled dot product."""
    x = np.linspace(-2, 2, 41)
    key = np.random.default_rng(0).standard_normal(size).astype("float32")
    query = (np.outer(x, key) * size**0.5 / (key @ key)).astype("float32")[None, None]
    curves = {"scaled dot product": x}
    for count in (16, 256):
        score = scores.FAVOR(count, seed=0)
        score.build_for(query.shape, (1, 1, 1, size))
        logits = ops.convert_to_numpy(score(query, key[None, None, None]))
        curves[f"{count} features"] = logits[0, 0, :, 0]
    return _draw_curves(x, curves, "q . k / √H", "logit")


def draw_tanh():
    """Draw the output of `DyT` against its input, for three slopes."""
    x = np.linspace(-6, 6, 81)
    return _draw_curves(x, {f"a = {a}": np.tanh(a * x) for a in (0.25, 0.5, 1.0)}, "x", "y")


def draw_position(name, *arguments, length=48, dim=32):
    """Draw the vectors that a position adds to each input."""
    return _draw_matrix(_added(name, *arguments, length=length, dim=dim).T, "position", "dimension")


def draw_likeness(name, *arguments, length=48, dim=128):
    """Draw the cosine of the vectors that a position adds to each two inputs."""
    vectors = _added(name, *arguments, length=length, dim=dim)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    figure = _draw_matrix(vectors @ vectors.T, "position", "position")
    figure.axes[0].set_title("cosine of the added vectors", size=9)
    return figure


def _added(name, *arguments, length, dim):
    layer = getattr(positions, name)(*arguments)
    layer.build((1, length, dim))
    _assign_random(layer)
    return ops.convert_to_numpy(layer(ops.zeros((1, length, dim))))[0]


def _assign_random(layer):
    for i, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(i).normal(0.0, 1.0, weight.shape))


def _axes(xlabel, ylabel, height=2.6):
    figure = new_figure(3.6, height)
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.locator_params(integer=True)
    return figure, axes


def _draw_matrix(values, xlabel, ylabel):
    """Return a figure of an image with values around zero."""
    figure, axes = _axes(xlabel, ylabel)
    top = np.abs(values).max()
    axes.imshow(values, cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    return figure


def _draw_curves(x, curves, xlabel, ylabel):
    figure, axes = _axes(xlabel, ylabel)
    axes.locator_params(axis="y", integer=False)
    for label, y in curves.items():
        axes.plot(x, y, label=label, linewidth=1.4)
    if len(curves) > 1:
        figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def draw_sinusoids():
    x = np.arange(48)
    table = ops.convert_to_numpy(positions.Sinusoidal()(ops.zeros((1, 48, 32))))[0]
    curves = {f"dimension {i}": table[:, i] for i in (0, 4, 8, 16)}
    return _draw_curves(x, curves, "position", "added")


def draw_timesteps():
    x, layer = np.arange(64), positions.Timestep()
    steps = {f"step {t}": layer(ops.zeros((1, 64, 32)), step=t) for t in (0, 2, 4)}
    curves = {label: ops.convert_to_numpy(table)[0, :, 4] for label, table in steps.items()}
    return _draw_curves(x, curves, "position", "added, dimension 4")


def draw_rotary():
    """Draw the product of a query and a key of ones, by their distance."""
    turned = ops.convert_to_numpy(positions.Rotary()(ops.ones((1, 128, 32))))[0]
    return _draw_curves(np.arange(128), {"": turned @ turned[0]}, "distance", "query . key")


def draw_axial_rotary(shape=(15, 15)):
    """Draw the product of the query in the middle of an image and keys of ones, by their place."""
    places = math.prod(shape)
    turned = ops.convert_to_numpy(positions.AxialRotary(shape)(ops.ones((1, places, 64))))[0]
    return _draw_matrix((turned @ turned[places // 2]).reshape(shape), "column", "row")


def draw_smoothed():
    """Draw the loss of a label against the logit of this label, the others being 0."""
    x = np.linspace(-4, 12, 65)
    logits = np.zeros((65, 1, 10), "float32")
    logits[:, 0, 1] = x
    curves = {}
    for smoothing in (0.0, 0.1, 0.2):
        loss = losses.LabelSmoothedCrossentropy(smoothing, ignore_class=None, reduction="none")
        values = loss(np.ones((65, 1), "int32"), logits)
        curves[f"smoothing {smoothing}"] = ops.convert_to_numpy(values)[:, 0]
    return _draw_curves(x, curves, "logit of the label", "loss")


def draw_contrastive():
    """Draw the loss of one of eight equal pairs, by how much its logit is above the others."""
    x = np.linspace(-4, 12, 65)
    softmax = np.log(np.exp(x) + 7) - x
    sigmoid = np.log1p(np.exp(-x)) + 7 * np.log(2)
    return _draw_curves(x, {"softmax": softmax, "sigmoid": sigmoid}, "logit of the pair", "loss")


def draw_temperatures():
    """Draw probabilities of ten logits at three temperatures."""
    logits = np.array([5.0, 3.5, 3.0, 2.0, 1.5, 1.0, 0.5, 0.0, -1.0, -2.0])
    curves = {f"T = {t}": np.exp(logits / t) / np.exp(logits / t).sum() for t in (1, 2, 5)}
    return _draw_curves(np.arange(10), curves, "class", "teacher's probability")


def draw_schedule(num_layers=6):
    """Draw until when the losses of the layers count."""
    figure, axes = _axes("part of the training", "layer with a loss")
    axes.locator_params(axis="x", integer=False)
    ends = [layer / (2 * num_layers) for layer in range(1, num_layers)]
    axes.barh(range(1, num_layers + 1), [*ends, 1.0], 0.6)
    return figure


def draw_mixture():
    """Draw the probabilities of 64 values under three logistics."""
    loss = losses.MixtureOfLogistics(3, channels=1, num_values=64)
    parameters = np.array([0.0, 0.5, -0.5, -0.6, 0.1, 0.6, -2.5, -1.5, -3.0], "float32")
    values = np.arange(64)[:, None]
    logs = loss.log_probability(values, np.tile(parameters, (64, 1)))
    probabilities = np.exp(ops.convert_to_numpy(logs)).reshape(-1)
    return _draw_curves(values[:, 0], {"": probabilities}, "value", "probability")


def draw_pinball():
    """Draw the losses of three levels against the error of the quantile."""
    x = np.linspace(-2, 2, 41, dtype="float32")
    curves = {}
    for level in (0.1, 0.5, 0.9):
        loss = losses.Quantile((level,), reduction="none")(x, np.zeros(41, "float32"))
        curves[f"level {level}"] = ops.convert_to_numpy(loss)
    return _draw_curves(x, curves, "target - quantile", "loss")


def draw_distributions():
    """Draw the losses of a target under two distributions of mean 0 and scale 1."""
    x, curves = np.linspace(-5, 5, 81, dtype="float32"), {}
    for name, parameters in (("normal", (0.0, 1.0)), ("student_t", (2.5, 0.0, 1.0))):
        loss = losses.DistributionLoss(name, reduction="none")
        curves[name] = ops.convert_to_numpy(loss(x, np.tile(np.float32(parameters), (81, 1))))
    return _draw_curves(x, curves, "target", "loss")


def draw_clusters():
    """Draw the tables of an adaptive softmax: rarer words have narrower vectors."""
    embedding = layers.AdaptiveEmbedding(100, 16, cutoffs=[10, 30], div_val=4)
    embedding.build((None, None))
    figure, axes = _axes("width of the vectors", "word, by falling frequency")
    first = 0
    for number, table in enumerate(embedding.tables):
        size, width = table.shape
        axes.barh(first + size / 2, width, size - 1, label=f"cluster {number}")
        first += size
    axes.set(ylim=(first, 0))
    axes.legend(fontsize=8)
    return figure


def _patterns():
    """Return the title of the first example of each pattern, by the pattern's class."""
    titles = {f"patterns.{type(pattern).__name__}": t for t, pattern in reversed(examples())}
    return {name: (draw_pattern, title) for name, title in titles.items()}


def _models():
    """Return the diagram of each model, from the table in its docstring."""
    entries = [entry for _, _, group in sections() for entry in group]
    return {e.name: (draw_diagram, *model_row(**e.table)) for e in entries if e.table}


# Functions and their arguments, by the value's name in keras_attn.
DRAWINGS = {
    **_patterns(),
    "patterns.BlockLocal2D": (draw_image_pattern, (12, 18), (4, 6), (2, 3)),
    "scores.ALiBi": (draw_distances, "ALiBi"),
    "scores.T5Bias": (draw_distances, "T5Bias", 8, 20),
    "scores.Disentangled": (draw_distances, "Disentangled", 6, 20),
    "scores.LearnedRelative": (draw_distances, "LearnedRelative", 6),
    "scores.Relative": (draw_distances, "Relative"),
    "positions.Axial": (draw_position, "Axial", (6, 8), (16, 16)),
    "positions.AxialRotary": (draw_axial_rotary,),
    "positions.ImageCoordinates": (draw_likeness, "ImageCoordinates", 6, 8, 1),
    "positions.Learned": (draw_position, "Learned", 48),
    "positions.Rotary": (draw_rotary,),
    "positions.Interpolation": (draw_frequencies, "Interpolation", 4),
    "positions.NTK": (draw_frequencies, "NTK", 4),
    "positions.YaRN": (draw_frequencies, "YaRN", 4, 2048),
    "positions.Llama3": (draw_frequencies, "Llama3", 4, 2048),
    "positions.LongRoPE": (draw_frequencies, "LongRoPE", 4, 2048, LONG_ROPE),
    "positions.Sinusoidal": (draw_sinusoids,),
    "positions.Timestep": (draw_timesteps,),
    "scores.FAVOR": (draw_estimates,),
    "scores.SoftCap": (draw_cap,),
    "norms.DyT": (draw_tanh,),
    "losses.AuxiliaryLosses": (draw_schedule,),
    "losses.ContrastiveLoss": (draw_contrastive,),
    "losses.Distillation": (draw_temperatures,),
    "losses.DistributionLoss": (draw_distributions,),
    "losses.LabelSmoothedCrossentropy": (draw_smoothed,),
    "losses.MixtureOfLogistics": (draw_mixture,),
    "losses.Quantile": (draw_pinball,),
    "layers.AdaptiveSoftmax": (draw_clusters,),
    **{name: (draw_diagram, *diagram) for name, diagram in DIAGRAMS.items()},
    **_models(),
}
