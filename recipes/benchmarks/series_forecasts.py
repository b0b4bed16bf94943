"""Card of Chronos-Bolt beside chronos-forecasting: equal quantiles, and the processor's time.

    python -m recipes.benchmarks.series_forecasts --oracle PYTHON

PYTHON is that of an environment with chronos-forecasting, in a process of its own. Random models of
the sizes of Chronos-Bolt are converted, exported and served over REST.
"""

import contextlib
import datetime
import json
import os
import pathlib
import statistics
import tempfile
import urllib.request

import numpy as np

from keras_attn import export
from keras_attn.convert import from_hugging_face

from ..common import files
from ..common.machine import hardware, versions
from .card import card_parser, execute, positive
from .oracle_process import OracleProcess
from .serving_process import serving

ORACLE = f"{__package__}.contenders.series_forecasts_torch"
TOLERANCE = 1e-5
BATCH, LENGTH, MOST = 32, 512, 2048
SIZES = {
    "tiny": {"d_model": 256, "d_ff": 1024, "num_layers": 4, "num_heads": 4},
    "base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
SETTINGS = {
    "context_length": MOST,
    "prediction_length": 64,
    "input_patch_size": 16,
    "input_patch_stride": 16,
    "quantiles": [k / 10 for k in range(1, 10)],
    "use_reg_token": True,
}
METHOD = (
    "Random Chronos-Bolt models of real sizes, made by chronos-forecasting, are converted, "
    "exported and served over REST. **quantiles** is the largest difference of served quantiles "
    "from those of chronos-forecasting, over the largest one of a series, for {count} series of 1 "
    "to {most} values and of more: with trend and season, with gaps, all missing, constant; "
    "{tolerance:.0e} is allowed. **beyond** is that of forecasts of {horizon} values, longer than "
    "the model's 64, for {few} of them: the rounding of a block is an input of the next one. The "
    "largest are those of constant series, whose scale is 1e-5: 1.3e-06 at most for the others "
    "(tiny). The original's own forecast of a single value changes by 4e-05 (tiny) and 1e-04 "
    "(base) if 16 missing values stand in front. Times are the processor's, of the whole "
    "server or of the original's process, for a series of {length} values and 64 more, alone and "
    "in requests of {batch}: medians of {repetitions} passes over {timed} series, taken in turn. "
    "Other programs ran on the machine, which lengthens times of several threads."
)


def series(seed=3):
    """Return series of all lengths and kinds, float32 with NaN where a value is missing."""
    random, made = np.random.default_rng(seed), []
    lengths = [*range(1, 36), *np.geomspace(40, MOST, 24).round().astype(int), MOST + 1, 3000]
    for length in lengths:
        time = np.arange(length)
        x = 30 + 0.02 * time + 9 * np.sin(time / 12 * np.pi) + random.normal(size=length)
        made.append(x)
        gaps = random.uniform(size=length) < 0.3
        gaps[length // 3 : length // 2] = True
        made.append(np.where(gaps, np.nan, 1000 * x))
    for length in (1, 17, 300, MOST):
        made += [np.full(length, np.nan), np.full(length, 7.25), np.zeros(length)]
        made.append(np.where(np.arange(length) == length // 2, -3.0, np.nan))
    return [x.astype("float32") for x in made]


def write_series(file, rows):
    """Write series to a file that the oracle reads."""
    np.savez(file, **{str(i): x for i, x in enumerate(rows)})
    return str(file)


def ask(server, rows):
    """Return the quantiles of series of one length from the embedded server."""
    body = {"inputs": {"values": np.asarray(rows, "float64").tolist()}}
    call = urllib.request.Request(server.url(":predict"), json.dumps(body).encode())
    with urllib.request.urlopen(call) as answer:
        return np.array(json.load(answer)["outputs"]["quantiles"], "float32")


def difference(theirs, ours):
    """Return the largest difference over the largest number of each series."""
    if theirs.shape != ours.shape or not np.isfinite(ours).all():
        return float("inf")
    return float(np.abs(theirs - ours).max() / np.abs(theirs).max())


def processor_seconds(pid):
    """Return the seconds that a process has used the processor."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(oracle, folder, model, rows, horizon, scratch):
    """Return the largest difference of the served quantiles, and the served export's folder."""
    path = scratch / f"export-{horizon}"
    export.saved_model(model, path, horizon=horizon)
    file = scratch / "quantiles.npz"
    request = {"series": write_series(scratch / "series.npz", rows), "file": str(file)}
    oracle("forecast", folder=str(folder), horizon=horizon, **request)
    with np.load(file) as arrays, serving(path, scratch / "server.log") as server:
        served = (ask(server, [row])[0] for row in rows)
        return max(difference(arrays[str(i)], x) for i, x in enumerate(served)), path


def time(oracle, folder, path, arguments, scratch):
    """Return the milliseconds of the processor for a series, of both, alone and in batches."""
    rows = np.random.default_rng(5).normal(size=(arguments.timed, LENGTH)).astype("float32")
    file, spent = write_series(scratch / "timed.npz", rows), {}
    with serving(path, scratch / "server.log") as server:
        for batch in (1, BATCH):
            seconds = spent[batch] = {"ours": [], "theirs": []}
            for _ in range(arguments.repetitions + 1):  # the first pass warms up
                before = processor_seconds(server.process.pid)
                for start in range(0, len(rows), batch):
                    ask(server, rows[start : start + batch])
                seconds["ours"].append(processor_seconds(server.process.pid) - before)
                request = {"folder": str(folder), "series": file, "batch_size": batch}
                seconds["theirs"].append(oracle("time", **request))
    return {
        f"{name}, {batch}": 1e3 * statistics.median(each[1:]) / len(rows)
        for batch, seconds in spent.items()
        for name, each in seconds.items()
    }


def main():
    parser = card_parser("series_forecasts", __doc__.splitlines()[0], repetitions=3)
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with its packages")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--timed", type=positive, default=32, help="default: %(default)s")
    parser.add_argument("--horizon", type=positive, default=100, help="default: %(default)s")
    arguments = parser.parse_args()
    oracle, rows, few = OracleProcess(arguments.oracle, ORACLE), {}, series()[::9]
    with tempfile.TemporaryDirectory() as parent, contextlib.closing(oracle):
        for name in arguments.sizes:
            scratch = pathlib.Path(parent, name)
            scratch.mkdir()
            folder = scratch / "model"
            sizes = {**SIZES[name], "num_decoder_layers": SIZES[name]["num_layers"], "d_kv": 64}
            weights = oracle("make", folder=str(folder), sizes=sizes, settings=SETTINGS)
            model, _ = from_hugging_face(folder)
            equal, path = compare(oracle, folder, model, series(), 64, scratch)
            beyond, _ = compare(oracle, folder, model, few, arguments.horizon, scratch)
            times = time(oracle, folder, path, arguments, scratch)
            rows[name] = {"weights": weights, "quantiles": equal, "beyond": beyond, **times}
            print(name, rows[name], flush=True)
    out = pathlib.Path(arguments.out)
    facts = {"count": len(series()), "few": len(few), "most": MOST, "tolerance": TOLERANCE}
    card = out / f"{arguments.name}.json"
    known = json.loads(card.read_text())["rows"] if card.is_file() else {}
    content = {
        "method": METHOD.format(**vars(arguments), **facts, length=LENGTH, batch=BATCH),
        "command": f"python -m {__package__}.series_forecasts --oracle PYTHON",
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "versions": versions("keras_attn", "tensorflow"),
        "rows": {**known, **rows},
    }
    out.mkdir(parents=True, exist_ok=True)
    files.write_json(card, content)
    files.write(out / f"{arguments.name}.md", markdown(content))
    return int(not max(row["quantiles"] for row in rows.values()) <= TOLERANCE)


def markdown(content):
    """Return the card in Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    texts = ["# Chronos-Bolt beside chronos-forecasting", "", content["method"], ""]
    texts += [f"- Command: `{content['command']}`", f"- Date: {content['date']}"]
    texts += [f"- Hardware: {content['hardware']}", f"- Versions: {packages}", ""]
    times = [f"{name}, {batch}" for batch in (1, BATCH) for name in ("ours", "theirs")]
    heads = [f"{name} ms, {batch}" for batch in (1, BATCH) for name in ("served", "original")]
    texts += [f"| size | weights | quantiles | beyond | {' | '.join(heads)} |"]
    texts += ["| --- | --: | --: | --: | --: | --: | --: | --: |"]
    texts += [
        f"| {name} | {row['weights']:,} | {row['quantiles']:.1e} | {row['beyond']:.1e} | "
        f"{' | '.join(f'{row[key]:.1f}' for key in times)} |"
        for name, row in content["rows"].items()
    ]
    return "\n".join(texts) + "\n"


if __name__ == "__main__":
    execute(main)
