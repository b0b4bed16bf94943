"""The benchmark of exported weights in few bits."""

from recipes.benchmarks import quantization


def test_a_directory_without_a_run_is_reported(tmp_path, capsys, monkeypatch):
    arguments = ["quantization", str(tmp_path), "--out", str(tmp_path / "cards")]
    monkeypatch.setattr("sys.argv", arguments)
    assert quantization.main() == 2
    assert "holds no finished run" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
