"""The benchmarks of exported forms and of exported weights in few bits."""

import pytest

from recipes.benchmarks import exports, quantization


@pytest.mark.parametrize("benchmark", [exports, quantization])
def test_a_directory_without_a_run_is_reported(benchmark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path), "--out", str(tmp_path / "cards")])
    assert benchmark.main() == 2
    assert "holds no finished run" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
