"""The benchmarks of a finished run refuse a directory without one."""

import pytest

from recipes.benchmarks import exports, quantization, speculation


@pytest.mark.parametrize("benchmark", [exports, quantization, speculation])
def test_a_directory_without_a_run_is_reported(benchmark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path), "--out", str(tmp_path / "cards")])
    assert benchmark.main() == 2
    assert "holds no finished run" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
