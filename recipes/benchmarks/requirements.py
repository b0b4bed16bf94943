"""Requirements of a row, beside being faster than a peer (`harness.compare`).

Each function returns a dict with `statement`, `value`, the bound (`at_least` or `at_most`) and
whether it is `met`, for `Card.add`; or None if a row that it needs is missing.
"""

import statistics

from .harness import compare


def find(rows, name):
    """Return the row of that name, or None."""
    return next((row for row in rows if row["name"] == name), None)


def rate_share(row, gflop):
    """Return the rate of a row over that of a matrix product, the median over turns."""
    turns = zip(row["seconds"], row["probes"], strict=True)
    return statistics.median(gflop / seconds / probe for seconds, probe in turns)


def of_gemm_rate(rows, name, gflop, counted, at_least=None):
    """Compare the rate of a row, which computes `gflop`, with that of a matrix product."""
    row = find(rows, name)
    if row is None:
        return None
    share = rate_share(row, gflop)
    work = f"{gflop:.3g} GFLOP counted ({counted})"
    statement = f"**{name}** computes at {share:.2f} of the GEMM rate, {work}"
    return check(name, statement, share, at_least=at_least)


def growth(rows, longer, shorter, at_most=None):
    """Return the cost of `longer` over that of `shorter`, within a turn."""
    long_row, short_row = find(rows, longer), find(rows, shorter)
    if long_row is None or short_row is None:
        return None
    turns = zip(long_row["seconds"], short_row["seconds"], strict=True)
    ratio = statistics.median(long / short for long, short in turns)
    statement = f"**{longer}** costs {ratio:.2f} times as much as {shorter}"
    return check(longer, statement, ratio, at_most=at_most)


def memory(rows, name, at_most, whole_process=False):
    """Return the peak memory of a row in MB, over its inputs or of the whole process."""
    row = find(rows, name)
    value = row and row["peak_mb" if whole_process else "memory_mb"]
    if value is None:
        return None
    what = "peak memory of the whole process" if whole_process else "peak memory over the inputs"
    return check(name, f"**{name}**: {value:.0f} MB {what}", value, at_most=at_most)


def memory_growth(rows, more, fewer, at_most=None):
    """Return the memory of the tensors of `more` over that of `fewer`, both at their peak."""
    rows = [find(rows, name) for name in (more, fewer)]
    if None in rows:
        return None
    ratio = rows[0]["facts"]["tensors_mb"] / rows[1]["facts"]["tensors_mb"]
    statement = f"**{more}** needs {ratio:.2f} times the memory of {fewer}"
    return check(more, statement, ratio, at_most=at_most)


def rates(rows, name, other, verb, at_least=None):
    """Return the units a second of a row over those of another, within a turn."""
    comparison = compare(rows, name, [other])
    if comparison is None:
        return None
    ratio = comparison["ratio"] * find(rows, name)["units"] / find(rows, other)["units"]
    digits = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    statement = f"**{name}** {verb} {digits} times as many tokens a second as {other}"
    return check(name, statement, ratio, at_least=at_least)


def check(name, statement, value, at_least=None, at_most=None):
    """Return the comparison of a value with the bound that is not None, if any."""
    met = None if at_least is None else value >= at_least
    met = met if at_most is None else value <= at_most
    bounds = {"at_least": at_least, "at_most": at_most}
    return {"name": name, "statement": statement, "value": value, **bounds, "met": met}
