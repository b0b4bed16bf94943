"""`keras-attn export`: errors for unsuitable files, and clean-up after SIGTERM."""

import os
import signal
import zipfile

import keras
import pytest

import keras_attn
from keras_attn import generation, models
from keras_attn.commands import export as commands
from keras_attn.export.versions import free_version, new_version


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    models.transformer(7, 1, 2, 8, 11).save(path)
    return path


@pytest.fixture
def refused(capsys):
    """A function that runs the command, which fails, and returns its one line of error."""

    def run(*arguments):
        assert commands.main([str(argument) for argument in arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        words = arguments[:1] if arguments[0] in ("inspect", "measure") else ("export", *arguments)
        assert printed.err.startswith(f"keras-attn {' '.join(map(str, words[:2]))}: ")
        return printed.err

    return run


@pytest.fixture
def loads_nothing(monkeypatch):
    monkeypatch.setattr(keras.models, "load_model", None)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["saved_model", "onnx"])
def test_end_tokens_reach_the_export(monkeypatch, model_file, tmp_path, form):
    seen = []
    monkeypatch.setattr(keras.models, "load_model", lambda path: None)
    monkeypatch.setattr(keras_attn.export, form, lambda *_, eos_id, **options: seen.append(eos_id))
    arguments = [form, str(model_file), str(tmp_path / "out")]
    assert commands.main([*arguments, "--eos-id", "3", "7"]) == commands.main(arguments) == 0
    assert seen == [[3, 7], None]


@pytest.mark.parametrize("beams, strategy", [(1, None), (3, generation.Beam(3))])
def test_without_beams_the_export_chooses_the_strategy(monkeypatch, tmp_path, beams, strategy):
    seen = {}
    monkeypatch.setattr(keras.models, "load_model", lambda path: None)
    seen_by = "saved_model", lambda *_, **options: seen.update(options)
    monkeypatch.setattr(keras_attn.export, *seen_by)
    buckets = dict.fromkeys(("batches", "lengths", "parallel"))
    arguments = {"version": None, "length_penalty": 0.6, **buckets}
    commands.write_saved_model("model", tmp_path, beams=beams, **arguments)
    assert seen["strategy"] == strategy


@pytest.mark.parametrize("version, message", [(7, "007"), (2**63, "at most")])
def test_a_version_that_no_server_would_find_is_refused(tmp_path, version, message):
    (tmp_path / "007").mkdir()
    with pytest.raises(ValueError, match=message):
        free_version(tmp_path, version)


def test_a_version_holds_no_versions(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="is a version itself; give the directory that holds it"):
        free_version(tmp_path)


def test_a_bucket_is_no_directory():
    with pytest.raises(ValueError, match="mount a bucket. Received: path='gs://b/models'"):
        with new_version("gs://b/models"):
            pass


@pytest.mark.parametrize("form", ["saved_model", "onnx", "ctranslate2"])
def test_a_missing_model_is_an_error(refused, loads_nothing, tmp_path, form):
    error = refused(form, tmp_path / "none.keras", tmp_path / "out")
    assert "model's file does not exist" in error and "none.keras" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["saved_model", "ctranslate2"])
def test_a_wrong_tokenizer_is_an_error_before_the_model_is_loaded(
    refused, loads_nothing, model_file, tmp_path, form
):
    arguments = form, model_file, tmp_path / "out", "--tokenizer"
    error = refused(*arguments, tmp_path / "none.model")
    assert "file for --tokenizer does not exist" in error and "none.model" in error
    error = refused(*arguments, model_file)
    assert "file for --tokenizer does not hold a tokenizer" in error and str(model_file) in error


def test_versions_that_cannot_be_written_are_errors(refused, loads_nothing, model_file, tmp_path):
    (tmp_path / "1").mkdir()
    assert "not overwritten" in refused("saved_model", model_file, tmp_path, "--version=1")
    assert "at least 1" in refused("saved_model", model_file, tmp_path, "--version=0")
    assert "must be a directory" in refused("saved_model", model_file, model_file)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_model_is_an_error(refused, loads_nothing, model_file, tmp_path, share):
    content = model_file.read_bytes()
    (tmp_path / "cut.keras").write_bytes(content[: int(len(content) * share)])
    error = refused("saved_model", tmp_path / "cut.keras", tmp_path / "out")
    assert "not a complete .keras file" in error and "cut.keras" in error


def test_another_zip_file_is_an_error(refused, loads_nothing, tmp_path):
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as file:
        file.writestr("a", "b")
    error = refused("saved_model", tmp_path / "other.keras", tmp_path / "out")
    assert "not a complete .keras file" in error


def test_a_model_with_damaged_members_is_an_error(refused, model_file, tmp_path):
    """Truncated weights, and a configuration whose checksum does not match."""
    with zipfile.ZipFile(model_file) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "weights.keras", "w") as file:
        for name, content in parts.items():
            file.writestr(name, content[:100] if name.endswith(".h5") else content)
    content = model_file.read_bytes()
    place = content.index(parts["config.json"][:20])
    flipped = bytes([content[place] ^ 1])
    (tmp_path / "config.keras").write_bytes(content[:place] + flipped + content[place + 1 :])
    for name in ("weights.keras", "config.keras"):
        error = refused("saved_model", tmp_path / name, tmp_path / "out")
        assert "model cannot be loaded" in error and name in error


def test_sigterm_leaves_no_temporary_files(monkeypatch, tmp_path):
    def end(path):
        with new_version(tmp_path):
            assert len(os.listdir(tmp_path)) == 1
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(commands, "inspect_export", end)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as info:
        commands.main(["inspect", str(tmp_path)])
    assert info.value.code == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is before
