"""Cases of the attention benchmark: contenders and their requirements."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

from . import operations, requirements
from .harness import Contender, compare

MODULE = f"{__package__}.contenders"
OURS = "keras_attn"
WINDOWS = (128, 256)
CHUNK, ROUNDS = 64, 2
SUMMARY = 8
QUERY_SHAPE, FLANGE = (8, 16), (8, 8)  # of `BlockLocal2D`
# Required share of the GEMM rate of exact attention, forward, and forward and backward; causal
# attention counts half the work.
ASKED_OF_EXACT = {"dense": (0.70, 0.55), "causal": (0.50, 0.55)}
ASKED_OF_LOCAL = 0.33
EXACT_MEMORY_MB, LONG_MEMORY_MB = 400, 6000


@dataclasses.dataclass(frozen=True)
class Group:
    """One table: contenders that run in turn, and their requirements."""

    title: str
    contenders: list
    demands: list[Callable]  # functions of the rows that return a comparison of `Card.add`
    panel: str = ""  # of the picture; none if empty


def ours(pattern, arguments, length, pairs, backward=False, name=None, **options):
    """Return the contender of a pattern of keras_attn."""
    options |= {"pattern": pattern, "arguments": arguments, "length": length, "backward": backward}
    name = name or f"{OURS} {pattern}({', '.join(map(str, arguments))})"
    gflop = operations.gflop(pairs, backward)
    return Contender(name, f"{MODULE}.attention_ours:core", options | {"gflop": gflop})


def lsh(length, name=None, **options):
    """Return the contender of keras_attn's LSH; its operations are counted in whole chunks."""
    pairs = operations.lsh(length, CHUNK, ROUNDS)
    return ours("LSH", [CHUNK, ROUNDS], length, pairs, name=name, score="shared_qk", **options)


def exact(length, causal):
    """Yield dense or causal attention without a matrix of scores: two tables."""
    kind = "causal" if causal else "dense"
    pairs = (operations.causal if causal else operations.dense)(length)
    for backward, direction in enumerate(("forward", "forward and backward")):
        gflop = operations.gflop(pairs, backward)
        options = {"length": length, "gflop": gflop, "causal": causal, "backward": bool(backward)}
        own = ours(kind.capitalize(), [], length, pairs, bool(backward))
        peers = [
            Contender("Keras dot_product_attention", f"{MODULE}.attention_keras:core", options),
            Contender("torch SDPA", f"{MODULE}.attention_torch:sdpa", options),
        ]
        # Where all scores fit into a cache, Keras's matrix of them is fast.
        asked = (1.1, None) if (kind, length, backward) == ("dense", 2048, 1) else (None, None)
        counted = "pairs of a query and a key not after it" if causal else "all pairs"
        yield Group(
            f"{kind}, {length:,} positions, {direction}",
            [own, *peers],
            [
                partial(
                    requirements.of_gemm_rate,
                    name=own.name,
                    gflop=gflop,
                    counted=counted,
                    at_least=ASKED_OF_EXACT[kind][backward],
                ),
                partial(requirements.memory, name=own.name, at_most=EXACT_MEMORY_MB),
                *(
                    partial(compare, name=own.name, peers=[peer.name], at_least=least)
                    for peer, least in zip(peers, asked, strict=True)
                ),
            ],
            "" if backward else kind,
        )


def layer(length):
    """Yield the causal layers, with their projections: two tables."""
    for backward, direction in enumerate(("forward", "forward and backward")):
        gflop = operations.layer_gflop(length, operations.causal(length), backward)
        options = {"length": length, "gflop": gflop, "backward": bool(backward)}
        own, *peers = (
            Contender(name, f"{MODULE}.{target}", options)
            for name, target in (
                (f"{OURS} MultiHeadAttention", "attention_ours:layer"),
                ("Keras MultiHeadAttention", "attention_keras:layer"),
                ("KerasHub CachedMultiHeadAttention", "attention_keras:hub_layer"),
                ("x-transformers Attention", "attention_packages:layer"),
            )
        )
        yield Group(
            f"causal layer with projections, {length:,} positions, {direction}",
            [own, *peers],
            [partial(compare, name=own.name, peers=[peer.name]) for peer in peers],
        )


def local(length):
    """Yield a window before each query: one table."""
    contenders, asked = [], []
    for window in WINDOWS:
        pairs = operations.local(length, window)
        options = {"length": length, "gflop": operations.gflop(pairs), "window": window}
        own = ours("Local", [window], length, pairs)
        flex, package = (
            Contender(f"{name}, window {window}", f"{MODULE}.{target}", options)
            for name, target in (
                ("torch flex_attention", "attention_torch:flex"),
                ("local-attention", "attention_packages:local"),
            )
        )
        contenders += [own, flex, package]
        of_gemm_rate = partial(requirements.of_gemm_rate, name=own.name, at_least=ASKED_OF_LOCAL)
        whole_blocks = operations.gflop(operations.own_and_previous_block(length, window))
        asked += [
            partial(compare, name=own.name, peers=[flex.name], at_least=1.2),
            partial(compare, name=own.name, peers=[package.name], at_least=5.0),
            partial(of_gemm_rate, gflop=operations.gflop(pairs), counted="pairs allowed"),
            partial(of_gemm_rate, gflop=whole_blocks, counted="own and previous block of a window"),
        ]
    yield Group(f"local, {length:,} positions, forward", contenders, asked, "local")


def hashed(length):
    """Yield LSH, by default and with the peer's choice of pairs: one table."""
    name = f"{OURS} LSH({CHUNK}, {ROUNDS}, across_buckets, wrap)"
    like_peer = {"across_buckets": True, "wrap": True}
    own = [lsh(length), lsh(length, name, keyword_arguments=like_peer)]
    gflop = own[0].options["gflop"]
    options = {"length": length, "gflop": gflop, "chunk": CHUNK, "rounds": ROUNDS}
    name = f"reformer-pytorch LSHAttention({CHUNK}, {ROUNDS})"
    peer = Contender(name, f"{MODULE}.attention_packages:lsh", options)
    asked = [partial(compare, name=contender.name, peers=[name], at_least=4.0) for contender in own]
    yield Group(f"LSH, {length:,} positions, forward", [*own, peer], asked, "sparse")


def sparse(length):
    """Yield strided and fixed, at their best stride, against all pairs: one table."""
    stride = math.isqrt(length)
    summary = min(SUMMARY, stride)
    own = [
        ours("Strided", [stride], length, operations.strided(length, stride)),
        ours("Fixed", [stride, summary], length, operations.fixed(length, stride, summary)),
    ]
    gflop = operations.gflop(operations.causal(length))
    options = {"length": length, "gflop": gflop, "causal": True}
    dense = Contender("torch SDPA, causal", f"{MODULE}.attention_torch:sdpa", options)
    asked = [partial(compare, name=x.name, peers=[dense.name], at_least=3.0) for x in own]
    yield Group(f"sparse, {length:,} positions, forward", [*own, dense], asked, "sparse")


def growth(length):
    """Yield the cost of four times the length: one table."""
    contenders, asked = [], []
    for name, make, at_most in (
        ("Local(128)", _local, 4.6),
        ("BlockLocal1D(128, 128)", _block_local_1d, 4.6),
        ("BlockLocal2D", _block_local_2d, 4.6),
        (f"LSH({CHUNK}, {ROUNDS})", lsh, 4.6),
        ("Strided(square root)", _strided, 9.0),
    ):
        short, long = (
            make(n, name=f"{OURS} {name} at {n:,} positions") for n in (length, 4 * length)
        )
        contenders += [short, long]
        names = {"longer": long.name, "shorter": short.name}
        asked.append(partial(requirements.growth, **names, at_most=at_most))
    title = f"growth, {length:,} to {4 * length:,} positions, forward"
    yield Group(title, contenders, asked, "sparse")


def _local(length, name):
    return ours("Local", [128], length, operations.local(length, 128), name=name)


def _block_local_1d(length, name):
    pairs = operations.block_local_1d(length, 128, 128)
    return ours("BlockLocal1D", [128, 128], length, pairs, name=name)


def _block_local_2d(length, name):
    """Return the contender of a square image in blocks that see some pixels beside them."""
    side = math.isqrt(length)
    arguments = [side, side], list(QUERY_SHAPE), list(FLANGE)
    pairs = operations.block_local_2d(length, *arguments)
    return ours("BlockLocal2D", list(arguments), length, pairs, name=name)


def _strided(length, name):
    stride = math.isqrt(length)
    return ours("Strided", [stride], length, operations.strided(length, stride), name=name)


def long(length):
    """A long sequence that must fit into memory: one table."""
    own = ours("Local", [256], length, operations.local(length, 256), backward=True)
    asked = partial(requirements.memory, name=own.name, at_most=LONG_MEMORY_MB, whole_process=True)
    yield Group(f"long, {length:,} positions, forward and backward", [own], [asked])


def is_image(length):
    """Return True if so many pixels are a square image of whole blocks."""
    side = math.isqrt(length)
    return side**2 == length and all(side % part == 0 for part in QUERY_SHAPE)


KINDS = {
    "dense": partial(exact, causal=False),
    "causal": partial(exact, causal=True),
    "layer": layer,
    "local": local,
    "lsh": hashed,
    "sparse": sparse,
    "growth": growth,
    "long": long,
}
