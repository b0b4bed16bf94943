"""The attention benchmarks: arithmetic against counts by hand, contenders against each other."""

import json

import numpy as np
import pytest

from recipes.benchmarks import attention, curves, operations, requirements
from recipes.benchmarks.attention_cases import KINDS
from recipes.benchmarks.contenders import (
    attention_keras,
    attention_ours,
    attention_torch,
)


def count(length, mask_mod):
    """Count the allowed pairs of a query and a key, one by one."""
    return sum(bool(mask_mod(i, j)) for i in range(length) for j in range(length))


def test_operations_are_counted():
    # 3 pairs; each takes 64 multiplications and additions twice, in each of 8 heads.
    assert operations.gflop(3) == pytest.approx(3 * 8 * 2 * (64 + 64) / 1e9)
    assert operations.gflop(3, backward=True) == pytest.approx(3 * operations.gflop(3))
    # Four projections of 5 rows by a 512 x 512 matrix.
    assert operations.layer_gflop(5, 0) == pytest.approx(4 * 5 * 512 * 512 * 2 / 1e9)
    assert operations.layer_gflop(5, 7, True) == pytest.approx(3 * operations.layer_gflop(5, 7))
    # 16,384 queries of which each computes 256 keys: 8.6 GF.
    assert operations.gflop(operations.own_and_previous_block(16384, 128)) == pytest.approx(
        8.6, abs=0.05
    )


@pytest.mark.parametrize("length", (5, 23))
def test_pairs_are_counted(length):
    assert operations.dense(length) == count(length, lambda i, j: True)
    assert operations.causal(length) == count(length, lambda i, j: j <= i)
    assert operations.local(length, 5) == count(length, lambda i, j: 0 <= i - j < 5)
    assert operations.block_local_1d(length, 4, 3) == count(
        length, lambda i, j: i // 4 * 4 - 3 <= j <= i
    )
    assert operations.strided(length, 4) == count(
        length, lambda i, j: j <= i and (i - j < 4 or (i - j) % 4 == 0)
    )
    assert operations.fixed(length, 4, 2) == count(
        length, lambda i, j: j <= i and (i // 4 == j // 4 or j % 4 >= 2)
    )


def test_pairs_of_an_image_are_counted():
    (height, width), (rows, columns), (above, beside) = image = (6, 8), (3, 2), (2, 1)
    blocks = [(top, left) for top in range(0, height, rows) for left in range(0, width, columns)]
    # In the order in which they are read: block after block, row after row.
    pixels = [
        (top, left, top + row, left + column)
        for top, left in blocks
        for row in range(rows)
        for column in range(columns)
    ]

    def mask_mod(i, j):
        top, left, _, _ = pixels[i]
        _, _, row, column = pixels[j]
        in_rows = top - above <= row < top + rows
        return j <= i and in_rows and left - beside <= column < left + columns + beside

    assert operations.block_local_2d(48, *image) == count(48, mask_mod)


def row(name, seconds, probes=(100.0, 100.0, 100.0), **facts):
    return {"name": name, "seconds": seconds, "probes": probes, **facts}


def test_requirements_take_the_median_over_turns():
    rows = [row("short", [1, 2, 1]), row("long", [4, 10, 5], probes=[50, 20, 40], memory_mb=70.0)]
    growth = requirements.growth(rows, "long", "short", at_most=4.6)
    assert growth["value"] == 5 and growth["met"] is False
    # 100 GFLOP in 4, 10 and 5 s, where a matrix product made 50, 20 and 40 GF/s.
    share = requirements.of_gemm_rate(rows, "long", 100, "by hand", at_least=0.5)
    assert share["value"] == 0.5 and share["met"] is True
    assert "0.50 of the GEMM rate" in share["statement"] and "by hand" in share["statement"]
    assert requirements.memory(rows, "long", at_most=70)["met"] is True
    assert requirements.memory(rows, "long", at_most=69)["met"] is False
    assert requirements.growth(rows, "long", "absent") is None
    assert requirements.of_gemm_rate(rows, "absent", 1, "") is None
    assert requirements.memory(rows, "absent", at_most=1) is None


@pytest.mark.parametrize("power", (0, 1, 1.5, 2))
def test_exponent_is_that_of_the_power_law(power):
    points = {size: 3e-6 * size**power for size in (100, 250, 700, 4000)}
    assert curves.exponent(points) == pytest.approx(power, abs=1e-9)


def test_curves_are_drawn(tmp_path):
    panels = {("one", "n"): {"a": {2: 0.5, 1: 0.1}, "b": {3: 1.0}}, ("empty", "n"): {"a": {}}}
    curves.draw(panels, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    curves.draw({}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_every_case_says_what_each_contender_must_compute():
    for text in attention.CASES:
        kind, length = attention.parse_case(text)
        for group in KINDS[kind](length):
            names = [contender.name for contender in group.contenders]
            assert len(set(names)) == len(names)
            assert all(contender.options["gflop"] > 0 for contender in group.contenders)
            json.dumps([contender.options for contender in group.contenders])


@pytest.mark.parametrize("text", ("dense", "dense:0", "dense:many", "space:16"))
def test_unknown_cases_are_refused(text):
    with pytest.raises(Exception, match=f"KIND:LENGTH.*Received: '{text}'"):
        attention.parse_case(text)


@pytest.mark.parametrize("length", (2048, 4 * 15**2))
def test_growth_wants_images_of_whole_blocks(length):
    with pytest.raises(Exception, match="square of a multiple of 16"):
        attention.parse_case(f"growth:{length}")
    assert attention.parse_case("growth:2304") == ("growth", 48 * 48)


def results(task):
    """Return the results of a call as a flat list of numpy arrays."""
    result = task.call()
    if not isinstance(result, tuple):
        return [np.asarray(result)]
    output, gradients = result
    return [np.asarray(output.detach() if hasattr(output, "detach") else output), *gradients]


@pytest.mark.slow
@pytest.mark.parametrize(
    "peer, causal, backward",
    [("keras", False, True), ("keras", True, False), ("torch", True, True)],
)
def test_exact_contenders_compute_the_same(peer, causal, backward):
    options = {"length": 24, "gflop": 1.0, "backward": backward}
    ours = results(attention_ours.core("Causal" if causal else "Dense", [], **options))
    if peer == "torch":
        pytest.importorskip("torch")
        theirs = results(attention_torch.sdpa(causal=causal, **options))
    else:
        theirs = results(attention_keras.core(causal=causal, **options))
        theirs = [np.swapaxes(x, 1, 2) for x in theirs]
    assert len(ours) == len(theirs) == (4 if backward else 1)
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)
