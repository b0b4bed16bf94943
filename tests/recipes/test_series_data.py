"""Series of the recipe: tables with their mistakes, times, splits, baselines and measures."""

import datetime
import types

import numpy as np
import pytest
from recipe_runs import error_of, parse

from recipes.common.run import TrainingRun
from recipes.series import archive, synthetic
from recipes.series.bands import band_factor
from recipes.series.baselines import (
    Ridge,
    last_value,
    ridge_classes,
    seasonal_naive,
    with_bands,
)
from recipes.series.labelled import LabelledSeries, changed, hold_out, mixed
from recipes.series.scores import LEVELS, forecast_scores
from recipes.series.tables import Series, SeriesTable, read_series
from recipes.series.times import Grid, as_numbers, find_grid, parse_time
from recipes.series.windows import Windows, split_by_time

NAN = np.nan


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(values, header="time,value"):
    return "\n".join([header, *(f"{t},{value}" for t, value in enumerate(values))]) + "\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1949-01", (1949, 1, 1)),
        ("1970 Q3", (1970, 7, 1)),
        ("1991 Jul", (1991, 7, 1)),
        ("July 1991", (1991, 7, 1)),
        ("2021-05-01 02:30:00+02:00", (2021, 5, 1, 0, 30)),
        ("2024-02-29", (2024, 2, 29)),
    ],
)
def test_a_date_is_read_as_people_write_it(text, expected):
    assert parse_time(text) == datetime.datetime(*expected)


@pytest.mark.parametrize(
    "texts, step, season",
    [
        (["1949-01", "1949-02", "1949-04"], 1, 12),
        (["1970 Q1", "1970 Q2", "1970 Q4"], 3, 4),
        (["2020-01-31", "2020-02-29", "2020-03-31"], 1, 12),
        (["2020-01-31", "2020-02-01", "2020-02-04"], 86400e6, 7),
        (["2020-01-31 00:00", "2020-01-31 00:30"], 1800e6, 48),
        (["3", "5", "11"], 2, 1),
        (["1949.0", "1949.083", "1949.167", "1949.417"], 1 / 12, 1),
    ],
)
def test_times_have_the_steps_of_a_calendar(texts, step, season):
    numbers, unit = as_numbers([*map(parse_time, texts)])
    grid = find_grid([numbers], unit)
    assert grid.step == pytest.approx(step, rel=2e-3) and grid.season() == season


def test_a_step_without_a_row_and_an_empty_field_are_missing_values(tmp_path):
    text = "name,day,b,a\nx,2026-01-02,1,2\nx,2026-01-05,,4\ny,2026-01-04,nan,7\ny,2026-01-05,3,?\n"
    table = read_series(write(tmp_path, text), "day", "name", ("a", "b"))
    x, y = table.series
    assert (x.name, x.start, y.name, y.start) == ("x", 0, "y", 2)
    np.testing.assert_array_equal(x.values, [[2, 1], [NAN, NAN], [NAN, NAN], [4, NAN]])
    np.testing.assert_array_equal(y.values, [[7, NAN], [NAN, 3]])
    assert table.grid.text(3) == "2026-01-05"
    assert table.digest() != table._replace(columns=["b", "a"]).digest()


WRONG = {
    "infinite": (rows([1, "inf"]), "must have finite numbers, or empty fields"),
    "too large": (rows([1, "1e39"]), "Received: '1e39' in line 3"),
    "text": (rows([1, "high"]), "must have numbers, or empty fields for missing ones"),
    "repeated": ("time,value\n1,1\n1,2\n", "'1' in line 3 of the file"),
    "out of order": ("time,value\n2,1\n1,2\n", "is earlier, after line 2"),
    "no time": ("time,value\nsoon,1\n", "Received: 'soon' in line 2"),
    "another date": ("time,value\n31.01.2026,1\n", "data.csv: it is none of them."),
    "no such day": ("time,value\n2026-02-30,1\n", "data.csv: day is out of range"),
    "two kinds": ("time,value\n1,1\n2026-01-01,2\n", "All times must be numbers, or all dates"),
    "irregular": ("time,value\n1,1\n2,2\n99999,3\n", "Times must have a common step"),
    "one value": (rows([1]), "must have two times at least"),
    "only missing": (rows(["", ""]), "Received: only missing ones"),
    "empty": ("", "is empty"),
    "no rows": ("time,value\n", "has no row after the names"),
    "no values": ("time\n1\n", "must have a column of values"),
    "no column": ("hour,value\n1,1\n", "There is no column 'time' in the header"),
    "too few fields": ("time,a,b\n1,2\n2,3,4\n", "Received: none for the column 'b' in line 2"),
    "no UTF-8": (b"time,value\n1,\xff\n", "Line 2 of the file"),
    "too short": (rows(range(7)), "The train part must have a value with 3 steps of --horizon"),
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_table_is_refused_in_a_sentence(problem, tmp_path, capsys):
    text, sentence = WRONG[problem]
    out, data = tmp_path / "out", write(tmp_path, text)
    error = error_of(capsys, "series", "--out", out, "--data", data, "--horizon", "3")
    assert sentence in error and error.startswith("keras-attn series: ")
    assert not out.exists()


def test_sizes_follow_from_the_data_unless_they_are_given():
    def sizes(season, longest, *options):
        sized = parse("series", *options).with_context(season, longest)
        return sized.season, sized.context, sized.patch_length, sized.stride

    assert sizes(7, 1000, "--horizon", "5") == (7, 28, 4, 2)
    assert sizes(1, 1000, "--horizon", "50") == (1, 150, 16, 8)
    assert sizes(24, 150) == (24, 50, 7, 3)
    given = ("--season", "11", "--context", "17", "--patch-length", "5", "--stride", "1")
    assert sizes(7, 1000, *given) == (11, 17, 5, 1)
    assert sizes(1, 29, "--task", "classes") == (1, 29, 4, 2)
    with pytest.raises(ValueError, match="at most the context. Received: 9, and a context of 6"):
        sizes(1, 18, "--patch-length", "9")


@pytest.mark.parametrize(
    "options, sentence",
    [
        ("--data none.csv", "none.csv does not exist."),
        ("--horizon 0", "--horizon must be at least 1. Received: --horizon 0."),
        ("--horizon 5 --task classes", "--horizon does not fit --task classes. Received: "),
        ("--mixup 0.4", "--mixup does not fit --task forecasts. Received: --mixup 0.4."),
        ("--scaler fixed", "--scaler fixed is for --task classes. Received: --task forecasts."),
        ("--id-column a", "--id-column does not fit the data that the recipe makes; give --data"),
        ("--data x.csv --task classes", "--task classes needs --id-column"),
        ("--data x.csv --id-column time", "Each column has one purpose. Received: 'time', 'time'"),
        ("--valid-share 0", "--valid-share must be above 0 for forecasts"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options, sentence, tmp_path, capsys):
    assert sentence in error_of(capsys, "series", "--out", tmp_path / "out", *options.split())


def test_two_labels_of_a_series_are_refused(tmp_path):
    text = "id,time,value,label\na,1,1,x\na,2,1,y\n"
    with pytest.raises(ValueError, match="one label. Received: 'x' and 'y' in line 3 of the file"):
        read_series(write(tmp_path, text), "time", "id", (), "label")


def table_of(*lengths, starts=None):
    starts = starts or [0] * len(lengths)
    series = [
        Series(str(n), start, (100 * n + start + np.arange(length))[:, None].astype("float32"))
        for n, (length, start) in enumerate(zip(lengths, starts))
    ]
    return SeriesTable(series, Grid("number", 0, 1), ["value"])


def test_targets_of_a_part_are_later_than_those_of_the_part_before():
    table = table_of(53, 31, starts=[0, 17])
    parts = split_by_time(table, 7, 3, 2, 0.1, 0.2, 1000)
    times = {}
    for split, windows in parts.windows.items():
        contexts, targets, _ = windows.all()
        own = targets[..., 0] - 100 * windows.places[:, :1]
        times[split] = own.min(), own.max()
        # A context ends just before its targets, and may begin in an earlier part.
        np.testing.assert_array_equal(contexts[:, -1], targets[:, 0] - 1)
    assert times["train"][1] < times["valid"][0] and times["valid"][1] < times["test"][0]
    assert parts.borders == (53 - 5 - 11, 53 - 11, 53)
    assert times["test"] == (42, 52)
    first, _, _ = parts.windows["test"].all()
    assert first[0, 0, 0] == 35  # before the border


def test_windows_need_values_on_both_sides_and_begin_with_missing_ones():
    table = table_of(23)
    table.series[0].values[5:9] = NAN
    windows = split_by_time(table, 4, 2, 1, 0.1, 0.1, 1000).windows["train"]
    # No target at 5 or 7 has values, and at 9 and 10 there are three missing ones before.
    starts = windows.places[:, 1].tolist()
    assert starts == [1, 2, 3, 4, 8, *range(10, 18)]
    contexts, _, _ = windows.all()
    np.testing.assert_array_equal(contexts[0, :, 0], [NAN, NAN, NAN, 0])


def test_the_naive_forecast_repeats_the_last_season_that_is_known():
    x = np.array([[1, 2, 3, 4, NAN, 6, 7], [NAN] * 7, [NAN, NAN, NAN, NAN, NAN, NAN, 5]])[..., None]
    np.testing.assert_array_equal(
        seasonal_naive(x, 5, 3)[..., 0], [[2, 6, 7, 2, 6], [0] * 5, [5] * 5]
    )
    np.testing.assert_array_equal(last_value(x, 2)[..., 0], [[7, 7], [0, 0], [5, 5]])


def test_a_ridge_continues_what_its_lags_determine():
    t = np.arange(211)
    values = np.stack([np.sin(t / 3), 5 + 2 * np.cos(t / 5)], axis=1).astype("float32")
    places = np.array([(0, n) for n in range(40, 200)])
    train, valid = (
        Windows([values], part, 31, 3, np.ones((1, 2))) for part in (places[:130], places[130:])
    )
    ridge = Ridge(train, valid)
    contexts, targets, _ = valid.all()
    assert np.abs(ridge.forecast(contexts) - targets).max() < 0.05


def test_bands_of_a_baseline_are_quantiles_of_its_errors_in_units_of_its_series():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(1009, 2, 1))
    bands = with_bands(np.zeros((3, 2, 1)), np.full((3, 1), 5.0), errors, LEVELS)
    assert bands.shape == (3, 2, 1, 9)
    np.testing.assert_allclose(bands[0, 0, 0, [0, 4, 8]], 5 * np.array([-1.28, 0, 1.28]), atol=0.6)


def test_the_factor_of_a_band_is_that_with_which_it_covers_its_share():
    rng = np.random.default_rng(1)
    targets = rng.normal(size=(101, 3, 2))
    targets[5, 1] = NAN
    normal = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816])
    quantiles = np.broadcast_to(normal / 2, (101, 3, 2, 9))
    factor = band_factor(quantiles, targets)
    inside = np.abs(targets) <= factor * normal[-1] / 2
    assert inside[np.isfinite(targets)].mean() == pytest.approx(0.8, abs=0.01)
    assert factor == pytest.approx(2, abs=0.25)
    assert band_factor(1000 * quantiles, targets) == pytest.approx(1 / 3)


def test_the_scores_are_those_of_a_loop():
    rng = np.random.default_rng(3)
    targets = rng.normal(size=(7, 3, 2))
    targets[1, 2, 0] = NAN
    quantiles = np.sort(rng.normal(size=(7, 3, 2, 9)), axis=-1)
    series = np.array([0, 0, 1, 1, 1, 2, 2])
    scales = np.array([[0.5, 2.0], [1.5, NAN], [3.0, 0.7]])
    scores = forecast_scores(quantiles, targets, scales, series)
    mase, loss, total, covered = [], 0, 0, []
    for s, c in np.ndindex(3, 2):
        errors = []
        for n, h in np.ndindex(7, 3):
            y = targets[n, h, c]
            if series[n] != s or np.isnan(y):
                continue
            errors.append(abs(y - quantiles[n, h, c, 4]))
            total += abs(y)
            covered.append(quantiles[n, h, c, 0] <= y <= quantiles[n, h, c, 8])
            for k, level in enumerate(LEVELS):
                d = y - quantiles[n, h, c, k]
                loss += (level * d if d > 0 else (level - 1) * d) / 9
        if np.isfinite(scales[s, c]):
            mase.append(np.mean(errors) / scales[s, c])
    assert scores["mase"] == pytest.approx(np.mean(mase))
    assert scores["weighted_quantile_loss"] == pytest.approx(2 * loss / total)
    assert scores["coverage"] == pytest.approx(np.mean(covered))


def test_series_are_held_out_whole_by_label_or_by_their_end():
    series = [Series(str(n), 0, np.zeros((5, 1), "float32"), "ab"[n % 3 == 0]) for n in range(30)]
    parts = hold_out(series, 0.1, 0.2, 5)
    names = [one.name for part in parts.values() for one in part]
    assert sorted(names) == sorted(one.name for one in series)
    assert [sum(one.label == "b" for one in part) for part in parts.values()] == [7, 1, 2]
    assert hold_out(series, 0.1, 0.2, 5) == parts != hold_out(series, 0.1, 0.2, 6)
    later = [one._replace(start=n) for n, one in enumerate(series)]
    parts = hold_out(later, 0.1, 0.2, 5)
    assert [one.name for one in parts["test"]] == [str(n) for n in range(24, 30)]
    # A longer series that begins with the others is no later one.
    longer = [one._replace(values=np.zeros((2 + n, 1), "float32")) for n, one in enumerate(series)]
    names = [one.name for one in hold_out(longer, 0.1, 0.2, 5)["test"]]
    assert names == [one.name for one in hold_out(series, 0.1, 0.2, 5)["test"]]
    assert not hold_out(series, 0, None, 5)["valid"]


def test_a_series_of_another_length_begins_with_missing_values_or_loses_its_start():
    values = np.arange(5, dtype="float32")[:, None]
    parts = [Series("a", 0, values, "x"), Series("b", 0, values[:2], "y")]
    rows = LabelledSeries(parts, ["x", "y"], 3)
    np.testing.assert_array_equal(rows.values[..., 0], [[2, 3, 4], [NAN, 0, 1]])
    assert rows.labels.tolist() == [0, 1]


def test_changes_of_a_series_keep_its_shape_and_its_gaps(options=None):
    rng = np.random.default_rng(0)
    values = np.repeat(np.arange(31.0)[None, :, None], 5, axis=0).astype("float32")
    values[:, 0] = NAN

    class Options:
        crop, scaling, jitter = 0.5, 0.0, 0.0

    cut = changed(values, Options, np.ones(1), rng)
    steps = np.diff(cut[:, 5:, 0])
    assert cut.shape == values.shape and ((steps > 0.49) & (steps < 1.01)).all()
    Options.crop, Options.scaling = 0.0, 0.5
    scaled = changed(values, Options, np.ones(1), rng)
    np.testing.assert_array_equal(np.isnan(scaled), np.isnan(values))
    factors = scaled[:, 1:] / values[:, 1:]
    assert np.ptp(factors, axis=1).max() < 1e-5 and np.ptp(factors) > 0.1
    _, targets = mixed(values, np.eye(5, dtype="float32"), 0.4, rng)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-6)


def test_a_ridge_tells_classes_apart():
    table = synthetic.waves_in_noise(0, 24, 31)
    values = np.stack([one.values for one in table.series])
    labels = np.arange(24) % 2
    values[labels == 1] += 3
    assert (ridge_classes(values[:16], labels[:16], values[16:]) == labels[16:]).all()


def test_made_series_are_those_of_the_seed_and_have_gaps():
    first, second = (synthetic.seasonal_series(7, 2, 5) for _ in range(2))
    assert first.digest() == second.digest() != synthetic.seasonal_series(8, 2, 5).digest()
    share = np.mean([np.isnan(one.values).mean() for one in first.series])
    assert 0.05 <= share < 0.2 and first.grid.season() == 24
    labels = [one.label for one in synthetic.waves_in_noise(0, 8, 32).series]
    assert labels == 2 * [*synthetic.WAVES]


TS = """# a comment
@problemName Two
@timeStamps false
@classLabel true up down
@data
1,2,3:4,?,6:up
7,8:9,10:down
"""


def test_a_file_of_the_archives_becomes_a_table_that_the_recipe_reads(tmp_path, capsys):
    path = tmp_path / "two.csv"
    assert archive.main([str(write(tmp_path, TS, "two.ts")), str(path)]) == 0
    assert "two.csv: 2 series" in capsys.readouterr().out
    table = read_series(path, "time", "id", (), "label")
    assert [one.label for one in table.series] == ["up", "down"]
    np.testing.assert_array_equal(table.series[0].values, [[1, 4], [2, NAN], [3, 6]])
    np.testing.assert_array_equal(table.series[1].values, [[7, 9], [8, 10]])


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("@data\n1,2:a\n", "must have labels"),
        ("@classLabel true a\n", "must have a line @data"),
        ("@classLabel true a\n@data\n1,b:a\n", "Line 3 of the file"),
    ],
)
def test_a_damaged_file_of_the_archives_is_refused(text, sentence, tmp_path, capsys):
    code = archive.main([str(write(tmp_path, text, "x.ts")), str(tmp_path / "x.csv")])
    assert code == 2 and sentence in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_a_run_of_constant_series_ends_without_a_score():
    test = {"metric": "mase", "value": None, "signature": "3 windows"}
    card = {"results": {"test": test}, "seconds": 5, "task": "a", "parameters": 7, "steps": 2}
    run = types.SimpleNamespace(exported="export/1", path=str)
    assert next(TrainingRun.summary(run, card)) == "test: mase nan (3 windows)"
