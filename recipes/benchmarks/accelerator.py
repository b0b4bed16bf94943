"""keras_attn on JAX beside PyTorch on the same device: training, causal attention, long windows.

It is made for a GPU, where cuDNN's kernel computes attention (`keras_attn.attention.fused`), and
runs on a processor too, where that kernel is neither used nor tested. On a GPU, run
`tests/layers/test_fused_attention.py` with `KERAS_BACKEND=jax` first.
"""

from functools import partial

from . import operations
from .card import card_parser, execute, new_card, positive
from .harness import Contender, compare, measure

MODULE = f"{__package__}.contenders"
OURS = "keras_attn on JAX"
PARTS = ("training", "causal", "local")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
WINDOW = 256
METHOD = (
    "keras_attn on JAX, compiled by XLA, and PyTorch, compiled by `torch.compile`, on the same "
    "device. Each contender is a process of its own and all are asked in turn, {repetitions} times "
    "at least 0.15 s, and waited for. **Training** is of `transformer_{size}`: {batch} sentences "
    "of {length} + {length} tokens, vocabulary 8,000, Adam, label smoothing 0.1, dropout "
    "{dropout:g} but not of attention weights, padding masks on: ours under `model.fit`, torch's "
    f"`nn.Transformer` in a loop. **Attention** is forward and backward, {operations.HEADS} heads "
    f"of size {operations.HEAD_DIM}, without projections; **TF/s** counts four operations, twelve "
    "with the backward pass, per pair that may meet and unit of head size. **by** tells whether "
    "keras_attn used a fused kernel or its own blocks. **MB on device** is the most that a process "
    "held there. peak MB and probe GF/s are of the host."
)
COLUMNS = {
    "TF/s": lambda row: _of(row, "gflop", lambda x: f"{x / row['median_seconds'] / 1e3:.3g}"),
    "by": lambda row: _of(row, "by", str),
    "MB on device": lambda row: _of(row, "device_mb", lambda x: f"{x:.0f}"),
}


def _of(row, fact, text):
    value = row["facts"].get(fact)
    return "-" if value is None else text(value)


def add_table(card, title, ours, peer, repetitions):
    """Measure two contenders, and compare them if they ran on the same device."""
    print(title, flush=True)
    rows, skipped = measure([ours, peer], repetitions)
    comparison = compare(rows, ours.name, [peer.name])
    if len({row["facts"]["platform"] for row in rows}) > 1:
        comparison = {"name": ours.name, "met": None, "statement": "No ratio: the devices differ"}
    card.add(title, rows, skipped, [comparison])
    card.headline(headline(card))


def headline(card):
    """Return the device of the contenders."""
    facts = [row["facts"] for group in card.content["groups"] for row in group["rows"]]
    gpus = {fact["device"] for fact in facts if fact["platform"] == "gpu"}
    if gpus:
        return f"On {', '.join(sorted(gpus))}."
    return (
        "**This card's benchmark has not run on a GPU**: the numbers are of a processor, where "
        "neither library uses the kernels that it is made to compare."
    )


def training(options, policy):
    """Both libraries' training of one precision."""
    sizes = {name: getattr(options, name) for name in ("size", "batch", "length", "steps")}
    sizes |= {"policy": policy, "smoothing": 0.1, "dropout": options.dropout}
    ours = Contender(OURS, f"{MODULE}.accelerator_jax:training", sizes, backend="jax")
    return ours, _torch("nn.Transformer", "training", sizes)


def causal(length, batch, dtype):
    """Both libraries' causal attention."""
    gflop = batch * operations.gflop(operations.causal(length), backward=True)
    sizes = {"length": length, "batch": batch, "dtype": dtype, "gflop": gflop}
    return _ours("Causal", [], sizes), _torch("SDPA", "sdpa", sizes)


def local(length, window, dtype):
    """Both libraries' attention to a window before each query."""
    gflop = operations.gflop(operations.local(length, window), backward=True)
    sizes = {"length": length, "batch": 1, "dtype": dtype, "gflop": gflop}
    theirs = _torch("flex_attention", "flex", {**sizes, "window": window})
    return _ours("Local", [window], sizes), theirs


def _ours(pattern, arguments, sizes):
    options = {"pattern": pattern, "arguments": arguments, **sizes}
    return Contender(OURS, f"{MODULE}.accelerator_jax:attention", options, backend="jax")


def _torch(name, function, sizes):
    target = f"{MODULE}.accelerator_torch:{function}"
    return Contender(f"torch {name}, compiled", target, sizes, backend="torch")


def main():
    parser = card_parser("accelerator", __doc__.partition("\n")[0], repetitions=5)
    add = partial(parser.add_argument, type=positive)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    policies = ["float32", "mixed_bfloat16"]
    parser.add_argument("--policies", nargs="+", choices=policies, default=policies[1:])
    parser.add_argument("--size", choices=["tiny", "base"], default="base")
    add("--batch", default=64, help="sentences of a training step")
    add("--length", default=128, help="tokens of a source and of a target sentence")
    add("--steps", default=20, help="training steps of a repetition")
    parser.add_argument("--dropout", type=float, default=0.1)
    add("--lengths", nargs="+", default=LENGTHS, help="of causal attention")
    add("--tokens", default=16384, help="tokens of a batch for causal attention, at least one row")
    add("--long", default=65536, help="positions of local attention")
    add("--window", default=WINDOW)
    options = parser.parse_args()
    card = new_card(options, "JAX and PyTorch on an accelerator", METHOD, "tokens", COLUMNS)
    for policy in options.policies:
        dtype, times = policy.removeprefix("mixed_"), options.repetitions
        if "training" in options.parts:
            pair = training(options, policy)
            add_table(card, f"training transformer_{options.size}, {policy}", *pair, times)
            card.write(options.out)
        for length in options.lengths if "causal" in options.parts else ():
            batch = max(1, options.tokens // length)
            title = f"causal attention, {dtype}, {batch} x {length:,} positions"
            add_table(card, title, *causal(length, batch, dtype), times)
            card.write(options.out)
        if "local" in options.parts:
            title = f"Local({options.window}), {dtype}, 1 x {options.long:,} positions"
            add_table(card, title, *local(options.long, options.window, dtype), times)
            card.write(options.out)
    print(card.markdown())


if __name__ == "__main__":
    execute(main)
