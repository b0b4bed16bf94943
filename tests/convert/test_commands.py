"""`keras-attn convert` writes a file, or says in one sentence why it does not."""

import importlib.util
import os
import pathlib
import shutil
import signal

import checkpoint_folders
import keras
import numpy as np
import pytest
import tensorflow as tf
from fork_server import run_python
from safetensors.numpy import load_file, save_file
from servers import environment

from keras_attn.commands.convert import main
from keras_attn.convert import from_hugging_face, to_hugging_face
from keras_attn.convert.hugging_face.tensor_files import SINGLE
from keras_attn.export.versions import find_versions
from keras_attn.generation import generate
from keras_attn.text import SentencePiece, Template


@pytest.fixture
def folder(tmp_path):
    config, weights, _ = checkpoint_folders.load_golden("gpt2")
    return str(checkpoint_folders.write_folder(tmp_path / "gpt2", config, weights))


@pytest.mark.slow
def test_a_converted_file_loads_with_the_outputs_of_transformers(folder, tmp_path, capsys):
    """A warning, of a tokenizer that is not converted, is one line."""
    path = str(tmp_path / "model.keras")
    (tmp_path / "gpt2/tokenizer_config.json").write_text('{"tokenizer_class": "NoTokenizer"}')
    (tmp_path / "gpt2/vocab.json").write_text("{}")
    (tmp_path / "gpt2/merges.txt").write_text("#version: 0.2")
    assert main([folder, path]) == 0
    printed = capsys.readouterr()
    assert "CausalLanguageModel of 2,962 weights" in printed.out
    (line,) = [line for line in printed.err.splitlines() if "tokenizer" in line]
    assert line.startswith("keras-attn convert: The tokenizer in ") and "class 'No' is not" in line
    _, _, arrays = checkpoint_folders.load_golden("gpt2")
    assert (
        checkpoint_folders.difference(keras.models.load_model(path), arrays)
        <= checkpoint_folders.TOLERANCE
    )


@pytest.mark.slow
def test_options_name_the_family_and_what_to_leave_out(folder, tmp_path, capsys):
    path, target = str(tmp_path / "model.keras"), pathlib.Path(folder)
    (target / "config.json").write_text(
        (target / "config.json").read_text().replace('"gpt2"', '"my-gpt"')
    )
    save_file({**load_file(target / SINGLE), "own.bias": np.ones(2)}, target / SINGLE)
    assert main([folder, path]) == 2
    assert main([folder, path, "--model-type", "gpt2"]) == 2
    errors = capsys.readouterr().err
    assert "'my-gpt' is not converted" in errors and "the tensor 'own.bias'" in errors
    assert main([folder, path, "--model-type", "gpt2", "--ignore", "own.*"]) == 0


@pytest.mark.slow
def test_a_file_becomes_a_folder_again(folder, tmp_path, capsys):
    path, out = str(tmp_path / "model.keras"), tmp_path / "out"
    assert main([folder, path]) == main(["to-hugging-face", path, str(out)]) == 0
    printed = capsys.readouterr()
    assert "out: a checkpoint of gpt2" in printed.out and "out has no tokenizer" in printed.err
    before, after = (load_file(path / SINGLE) for path in (tmp_path / "gpt2", out))
    assert before.keys() == after.keys()
    assert all(np.array_equal(value, after[name]) for name, value in before.items())


@pytest.mark.slow
def test_an_export_of_a_folder_reads_texts(checkpoint, tmp_path):
    folder, out = tmp_path / "llama", str(tmp_path / "exports")
    trained = SentencePiece.train(["the cat sat", "a dog ran"], 29)
    start = (trained.bos_id,)
    tokenizer = SentencePiece(trained.to_bytes(), Template(start, start))
    options = {"eos_token_id": trained.eos_id, "max_new_tokens": 5}
    to_hugging_face(checkpoint("llama").model, folder, tokenizer, options)
    assert main([str(folder), str(tmp_path / "model.keras"), "--export", out]) == 0
    run = tf.saved_model.load(f"{out}/1").signatures["serving_default"]
    text = "a cat sat"
    outputs = run(text=tf.constant(["the", text, ""]))
    model, tokenizer = from_hugging_face(folder)
    ids, _ = tokenizer.encode([text])
    new, scores = generate(model, ids, "greedy", 5, eos_id=tokenizer.eos_id)
    whole = tokenizer.decode(tf.concat([ids, new], axis=1)).numpy()[0]
    assert whole == text.encode() + outputs["continuation"].numpy()[1]
    np.testing.assert_allclose(outputs["score"][1], scores[0], rtol=1e-4)


# Ends its own process where a function of `os` would give a file or an export its name.
KILL_AT_CALL = """
import os, signal, sys
from keras_attn.commands.convert import main

setattr(os, sys.argv[1], lambda *paths: os.kill(os.getpid(), signal.SIGKILL))
main(sys.argv[2:])
"""


def run_killed_at(function, *arguments):
    """Run the command in a process that is killed when it calls `os.function`."""
    command = "-c", KILL_AT_CALL, function, *map(str, arguments)
    run = run_python(*command, environment=environment(), timeout=300)
    assert run.returncode == -signal.SIGKILL, run.stderr[-2000:]


@pytest.mark.slow
def test_a_killed_process_leaves_the_earlier_file_whole(folder, tmp_path):
    out = tmp_path / "out/model.keras"
    out.parent.mkdir()
    out.write_bytes(b"earlier")
    run_killed_at("replace", folder, out)
    assert out.read_bytes() == b"earlier"
    assert sorted(os.listdir(out.parent)) == [out.name, "model.partial.keras"]
    assert main([folder, str(out)]) == 0
    assert os.listdir(out.parent) == [out.name]
    assert keras.models.load_model(out).count_params() == 2962


@pytest.mark.slow
def test_a_killed_export_leaves_no_version(folder, tmp_path):
    out, exports = tmp_path / "out/model.keras", tmp_path / "exports"
    run_killed_at("rename", folder, out, "--export", exports)
    assert [*exports.glob(".1.*/*")]
    assert keras.models.load_model(out).count_params() == 2962
    assert find_versions(exports) == {}


def test_folders_and_files_that_do_not_fit_are_refused_in_one_sentence(folder, tmp_path, capsys):
    whole, out = pathlib.Path(folder), str(tmp_path / "model.keras")
    (tmp_path / "empty").mkdir()
    shutil.copytree(whole, tmp_path / "cut")
    weights = tmp_path / "cut/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    (tmp_path / "full.keras").mkdir()
    (tmp_path / "file").write_text("")
    cases = [
        ([tmp_path / "nowhere", out], "The folder does not exist."),
        (["", out], "The folder does not exist. Received: folder=''."),
        ([tmp_path / "empty", out], "The folder has no file 'config.json'"),
        ([tmp_path / "cut", out], "'model.safetensors' is cut or damaged"),
        ([whole / "config.json", out], "The path is that of a file, not of a folder."),
        ([folder, tmp_path / "full.keras"], "The file to write is a directory."),
        ([folder, tmp_path / "file/model.keras"], f"Nothing can be written in '{tmp_path}/file'"),
        ([folder, out, "--export", tmp_path / "file"], "path of the versions must be a directory"),
        ([folder, out, "--export", tmp_path / "file/x"], "Nothing can be written in"),
    ]
    for arguments, sentence in cases:
        assert main([*map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1, error
    assert not pathlib.Path(out).exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["nowhere", "model.keras"],
            "`hf download nowhere --local-dir nowhere`. Received: folder='nowhere'.",
        ),
        (["to-hugging-face", "nowhere.keras", "out"], "must exist and end in .keras"),
        (["golden", "nowhere"], "The folder does not exist. If it is a checkpoint"),
        (["nowhere", "model.h5"], "must end in .keras. Received: path='model.h5'."),
    ],
)
def test_what_cannot_be_converted_is_named(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not os.path.exists("nowhere")


@pytest.mark.parametrize("content", [b"", b"PK\3\4, the first half of a file"])
def test_a_cut_file_is_named(content, tmp_path, capsys):
    path = tmp_path / "model.keras"
    path.write_bytes(content)
    assert main(["to-hugging-face", str(path), str(tmp_path / "out")]) == 2
    assert "is cut, or no `.keras` file. Received: path=" in capsys.readouterr().err


def test_options_of_generation_are_refused_before_a_file_appears(folder, tmp_path, capsys):
    pathlib.Path(folder, "generation_config.json").write_text('{"num_beams": "4"}')
    out = tmp_path / "out/model.keras"
    assert main([folder, str(out), "--export", str(tmp_path / "out/exports")]) == 2
    assert "`num_beams` must be an integer" in capsys.readouterr().err
    assert not out.parent.exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["to-hugging-face", "a.keras", "b", "--export", "c"], "leave --export out"),
        (["golden", "a", "--export", "c"], "golden writes no SavedModel"),
        (["a", "b.keras", "--export", ""], "--export must be the path of a directory"),
    ],
)
def test_an_export_that_does_not_fit_is_refused(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is not None, reason="it is installed")
def test_golden_outputs_without_transformers_name_it(folder, capsys):
    assert main(["golden", folder]) == 2
    assert "need torch and transformers" in capsys.readouterr().err
