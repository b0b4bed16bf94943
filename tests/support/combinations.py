"""Scores, patterns, positions and arguments of attention since 2020, their formulas, and rows of
values that combine each value with each other one.

A formula is written in float64 from the papers, and imports nothing of what it checks.
"""

import itertools

import keras
import numpy as np
from index_sets import around, both, drawn, everything, first, given_to_all, near, past, spread
from keras import ops

from keras_attn import norms, patterns, positions, scores

N, H, W = 4, 8, 5  # heads, their size, and the window of most patterns
GRID = (6, 7)
RANDOM = patterns.Random(3, 2, 64, causal=True, seed=3)
RANDOM_AROUND = patterns.Random(3, 2, 64, seed=1)


@keras.saving.register_keras_serializable("test")
class Recency(scores.Bias):
    """A user's own bias a_n log(1 + |i - j|)."""

    def build(self, query_shape, key_shape=None):
        self.slopes = self.add_weight((query_shape[1], 1), "ones", name="slopes")

    def of_distances(self, distances):
        return self.slopes * ops.log1p(ops.cast(ops.abs(distances), "float32"))


def dot(weights, q, k, i, j):
    return q @ k.swapaxes(1, 2)


def scaled(weights, q, k, i, j):
    return dot(weights, q, k, i, j) / np.sqrt(H)


def cosine(weights, q, k, i, j):
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    return np.minimum(np.exp(weights["log_scale"]), 100)[:, None, None] * (q @ k.swapaxes(1, 2))


def elu_kernel(weights, q, k, i, j):
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    return np.log(q @ k.swapaxes(1, 2))


def favor(weights, q, k, i, j):
    w = weights["projection"]
    q, k = (
        np.exp(x @ w.T / H**0.25 - (x**2).sum(-1, keepdims=True) / (2 * np.sqrt(H))) for x in (q, k)
    )
    return np.log(q @ k.swapaxes(1, 2) / len(w))


def alibi(weights, q, k, i, j):
    slopes = np.array([2.0 ** (-8 * n / N) for n in range(1, N + 1)])
    return -slopes[:, None, None] * np.abs(i[:, None] - j)


def t5_bias(bidirectional):
    """The table's row of each distance, by the paper's logarithm; 8 buckets, up to 12."""

    def bucket(distance):
        buckets, offset = 8, 0
        if bidirectional:
            buckets, offset, distance = 4, 4 * (distance < 0), abs(distance)
        distance, half = max(distance, 0), buckets // 2
        if distance < half:
            return offset + distance
        share = np.log(distance / half) / np.log(12 / half)
        return offset + min(half + int(share * (buckets - half) + 1e-9), buckets - 1)

    def bias(weights, q, k, i, j):
        rows = [[bucket(int(a - b)) for b in j] for a in i]
        return np.moveaxis(weights["table"][rows], 2, 0)

    return bias


def recency(weights, q, k, i, j):
    return weights["slopes"][:, :, None] * np.log1p(np.abs(i[:, None] - j))


def disentangled(weights, q, k, i, j):
    rows = np.clip(i[:, None] - j + 6, 0, 11)  # 6 buckets on each side, each a distance
    keys, queries = (np.moveaxis(weights[f"{n}_table"][rows], 2, 0) for n in ("key", "query"))
    by_key = np.einsum("nth,ntsh->nts", q, keys)
    by_query = np.einsum("nsh,ntsh->nts", k, queries)
    return (q @ k.swapaxes(1, 2) + by_key + by_query) / np.sqrt(3 * H)


def total(*terms):
    return lambda *operands: sum(term(*operands) for term in terms)


def capped(score, cap):
    return lambda *operands: cap * np.tanh(score(*operands) / cap)


DOT = scores.DotProduct
SCORES = {
    "dot": (DOT, scaled),
    "cosine": (scores.Cosine, cosine),
    "kernel": (scores.Kernel, elu_kernel),
    "favor": (lambda: scores.FAVOR(6, seed=1), favor),
    "disentangled": (lambda: scores.Disentangled(6, None), disentangled),
    "alibi": (lambda: DOT() + scores.ALiBi(), total(scaled, alibi)),
    "t5": (
        lambda: DOT(scaled=False) + scores.T5Bias(8, 12, bidirectional=True),
        total(dot, t5_bias(True)),
    ),
    "cap": (
        lambda: scores.SoftCap(DOT() + scores.T5Bias(8, 12), 1.5),
        capped(total(scaled, t5_bias(False)), 1.5),
    ),
    "own bias": (lambda: DOT() + Recency(), total(scaled, recency)),
    "sum": (
        lambda: scores.Disentangled(6, None) + scores.ALiBi() + Recency() + scores.Cosine(),
        total(disentangled, alibi, recency, cosine),
    ),
}


def union(*sets):
    return lambda i: set().union(*(one(i) for one in sets))


LOCAL, CAUSAL = patterns.Local, patterns.Causal
PATTERNS = {
    "dense": (patterns.Dense(), everything),
    "causal": (CAUSAL(), past),
    "local": (LOCAL(W), near(W)),
    "longformer": (
        LOCAL(3, causal=False) | patterns.Global(2),
        union(around(3), given_to_all(2)),
    ),
    "causal longformer": (
        LOCAL(3) | patterns.Global(2, causal=True),
        union(near(3), both(first(2), past)),
    ),
    "big bird": (
        LOCAL(4, causal=False) | patterns.Global(3) | RANDOM_AROUND,
        union(around(4), given_to_all(3), drawn(RANDOM_AROUND)),
    ),
    "random": (LOCAL(2) | RANDOM, union(near(2), drawn(RANDOM))),
    "prefix": (CAUSAL() | patterns.Prefix(4), union(past, first(4))),
    "dilated": (patterns.Dilated(3, 4), spread(3, 4)),
    "first keys": (patterns.Sinks(2, 3), union(near(3), both(first(2), past))),
    "by head": (
        patterns.PerHead([LOCAL(W), patterns.Dilated(3, 4), CAUSAL(), LOCAL(W)]),
        [near(W), spread(3, 4), past, near(W)],
    ),
}


def rotation(frequencies, layout="interleaved", amplitude=1.0):
    """Turn x (N, T, H) by the angles of positions i, pair by pair; other components stay."""
    size = 2 * len(frequencies)

    def turn(x, i):
        out = x.copy()
        for pair, frequency in enumerate(frequencies):
            a, b = (2 * pair, 2 * pair + 1) if layout != "half" else (pair, pair + size // 2)
            sin, cos = amplitude * np.sin(i * frequency), amplitude * np.cos(i * frequency)
            out[..., a] = x[..., a] * cos - x[..., b] * sin
            out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    return turn


def base(size, wavelength=10000.0):
    return wavelength ** (-np.arange(0, size, 2) / size)


def yarn():
    """Factor 4, length 16, not truncated."""
    low, high = (H * np.log(16 / (2 * np.pi * t)) / (2 * np.log(10000)) for t in (32, 1))
    slow = np.clip((np.arange(H // 2) - max(low, 0)) / (min(high, H - 1) - max(low, 0)), 0, 1)
    return rotation(base(H) * (1 - slow + slow / 4), amplitude=0.1 * np.log(4) + 1)


def on_grid(x, i):
    turn = rotation(base(H // 2, 100.0))
    halves = np.split(x, 2, axis=-1)
    return np.concatenate([turn(halves[0], i // GRID[1]), turn(halves[1], i % GRID[1])], axis=-1)


def rotary(layout="interleaved", fraction=1.0, scaling=None):
    return lambda: positions.Rotary(10000, layout, fraction, scaling)


POSITIONS = {
    "none": (lambda: None, lambda x, i: x),
    "rotary": (rotary(), rotation(base(H))),
    "half of halves": (rotary("half", 0.5), rotation(base(H // 2), "half")),
    "yarn": (rotary(scaling=positions.YaRN(4, 16, truncate=False)), yarn()),
    "grid": (lambda: positions.AxialRotary(GRID), on_grid),
}


def rms(weights, x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weights["scale"]


def dyt(weights, x):
    return weights["gamma"] * np.tanh(weights["slope"] * x) + weights["beta"]


NORMS = {
    "none": (lambda: None, lambda weights, x: x),
    "rms": (norms.RMSNorm, rms),
    "dyt": (norms.DyT, dyt),
}
# What another value has in it is combined with fewer: a sum and a cap have each bias, unions and
# heads with patterns of their own have each set of keys; each is in a row of its own below. Other
# rotary positions differ by their frequencies alone: tests/positions/test_rotary_scaling.py.
# A kernel has the linear plan of FAVOR. A part of the components turns in a row of its own.
PARTS = ("alibi", "own bias", "dense", "big bird", "random", "longformer", "kernel")
PARTS += ("t5", "disentangled", "dilated", "causal longformer", "half of halves", "prefix")
VALUES = {
    "score": [name for name in SCORES if name not in PARTS],
    "pattern": [name for name in PATTERNS if name not in PARTS],
    "position": [name for name in POSITIONS if name not in PARTS],
    "qk_norm": list(NORMS),
    "sinks": [False, True],
    "use_gate": [False, True],
    "num_key_value_heads": [N, 2],
    "rows": ["whole", "padded", "packed"],
    "kind": ["plain", "differential"],
}


def weights_of(value):
    """Weights by name of a score, of its terms, or of a norm, in float64."""
    if value is None:
        return {}
    return {w.name: np.asarray(w, "float64") for w in getattr(value, "weights", [])}


def allowed_pairs(row, length):
    """Bool (N, T, T)."""
    sets = PATTERNS[row["pattern"]][1]
    sets = sets if isinstance(sets, list) else [sets] * N
    allowed = np.zeros((N, length, length), bool)
    for n, i in np.ndindex(N, length):
        allowed[n, i, [j for j in sets[n](i) if 0 <= j < length]] = True
    return allowed


def attend(row, layer, x, real):
    """The formula's output (T, D) for one document x (T, D), whose keys are real or padding."""
    places = np.arange(len(x))

    def project(name):
        kernel, bias = (np.asarray(getattr(layer, f"{name}_{w}")) for w in ("kernel", "bias"))
        return np.einsum("td,dnh->nth", x, kernel) + bias[:, None]

    q, k, v, norm = *map(project, ("query", "key", "value")), NORMS[row["qk_norm"]][1]
    turn, score = POSITIONS[row["position"]][1], SCORES[row["score"]][1]
    repeats = N // len(k)
    q, k = norm(weights_of(layer.qk_norm), q), norm(weights_of(layer.key_norm), k)
    k, v = np.repeat(turn(k, places), repeats, axis=0), np.repeat(v, repeats, axis=0)
    scoring = weights_of(layer.score)
    logits = score(scoring, turn(q, places), k, places, places)
    if row["pattern"] == "first keys":  # at most as far as within a cache of 2 + 3 keys
        near = np.minimum(places, 4)
        logits[:, :, :2] = score(scoring, turn(q, near), k, near, places)[:, :, :2]
    allowed = allowed_pairs(row, len(x)) & real
    shares = np.where(allowed, np.exp(np.where(allowed, logits, 0)), 0)
    sink = np.exp(np.asarray(layer.sink_logits))[:, None, None] if row["sinks"] else 0
    shares = shares / np.maximum(shares.sum(-1, keepdims=True) + sink, 1e-300)
    if row["kind"] == "plain":
        heads = shares @ v
    else:
        a_1, b_1, a_2, b_2 = (np.asarray(w, "float64") for w in layer.scale_vectors)
        start = 0.8 - 0.6 * np.exp(-0.3 * layer.layer_index)
        factor = np.exp(a_1 @ b_1) - np.exp(a_2 @ b_2) + start
        heads = (shares[: N // 2] - factor * shares[N // 2 :]) @ v
        heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-5) * (1 - start)
    if row["use_gate"]:
        heads = heads / (1 + np.exp(-project("gate")))
    kernel, bias = np.asarray(layer.output_kernel), np.asarray(layer.output_bias)
    return np.einsum("nth,nhd->td", heads, kernel) + bias


# Three values in a row, which pairs do not imply: with sinks and in packed rows, attention leaves
# the linear plan.
LINEAR_ROWS = [
    {
        **{"score": "kernel", "pattern": "causal", "position": "rotary", "qk_norm": "rms"},
        **{"sinks": True, "use_gate": True, "num_key_value_heads": 2},
        **{"rows": "whole", "kind": "plain"},
    },
    {
        **{"score": "favor", "pattern": "dense", "position": "half of halves", "qk_norm": "dyt"},
        **{"sinks": False, "use_gate": False, "num_key_value_heads": N},
        **{"rows": "packed", "kind": "plain"},
    },
]


PLAIN = {name: values[0] for name, values in VALUES.items()}
PART_ROWS = [
    {**PLAIN, "score": "alibi", "pattern": "big bird", "position": "rotary"},
    {**PLAIN, "score": "own bias", "pattern": "random", "num_key_value_heads": 2},
    {**PLAIN, "score": "own bias", "pattern": "longformer", "rows": "packed"},
    {**PLAIN, "score": "t5", "position": "yarn", "pattern": "dilated"},
    {**PLAIN, "score": "disentangled", "pattern": "causal longformer", "rows": "padded"},
    {**PLAIN, "score": "cap", "pattern": "prefix", "position": "half of halves", "sinks": True},
]


def is_refused(row):
    """True for the only combination that the layer refuses: a grid cannot move a query."""
    return row["pattern"] == "first keys" and row["position"] == "grid"


def pairs_of(row):
    return set(itertools.combinations(sorted(row.items(), key=str), 2))


def covering_rows():
    """Rows with a value of each argument, in which each pair of values meets, few and the same."""
    names = list(VALUES)
    missing = {
        pair
        for a, b in itertools.combinations(names, 2)
        for x, y in itertools.product(VALUES[a], VALUES[b])
        for pair in pairs_of({a: x, b: y})
        if not is_refused({"pattern": None, "position": None, a: x, b: y})
    }
    for row in (*LINEAR_ROWS, *PART_ROWS):
        missing -= pairs_of(row)
        yield row
    while missing:
        row = dict(min(missing, key=str))
        for name in names:
            if name not in row:
                candidates = [{**row, name: value} for value in VALUES[name]]
                allowed = [
                    c for c in candidates if not is_refused({"pattern": 0, "position": 0} | c)
                ]
                row = max(allowed, key=lambda c: len(pairs_of(c) & missing))
        missing -= pairs_of(row)
        yield row


def each_value_once(rows):
    """The first of the rows with a value that no row before has."""
    seen = set()
    for row in rows:
        if not row.items() <= seen:
            seen |= row.items()
            yield row
