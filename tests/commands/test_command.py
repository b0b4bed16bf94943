"""`keras-attn`: its list, its programs, and answers without Keras."""

import json
import subprocess
import sys

import pytest
from fork_server import ROOT, run_python

from keras_attn import __main__ as command
from keras_attn import __version__, programs
from keras_attn.commands.tutorial import TUTORIALS

# Runs all commands one after another, none of which may import Keras or TensorFlow.
RUN_ALL = """
import contextlib, io, json, os, sys

sys.modules.update({"keras": None, "tensorflow": None, "jax": None})
sys.argv = ["keras-attn"]
os._exit = sys.exit  # by which the server ends
from keras_attn.__main__ import main

answers = []
for arguments in json.loads(sys.stdin.read()):
    for name in [name for name in sys.modules if name.startswith(("recipes.", "serving."))]:
        del sys.modules[name]  # as in a new process
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""
# Arguments that a program needs, so that an unknown option is its only fault.
NEEDED = {
    "ask": ["--url", "http://a", "b"],
    "compare": ["--axis", "depth"],
    "convert": ["a", "b.keras"],
    "explain": ["gtrxl", "--length", "3"],
    "export": ["onnx", "a", "b"],
    "inspect": ["a"],
    "masked-language-model nearest": ["a", "b"],
    "measure": ["a", "--lines", "b"],
    "results": ["a"],
    "series table": ["a", "b"],
    "translate alignment": ["a"],
    "tutorial": ["own-pattern"],
}
# Wrong values, combinations and files, with a part of the answer.
WRONG = {
    "translate --epochs 0": "--epochs must be at least 1",
    "translate --preset gpt2": "--preset must be one of transformer_tiny",
    "translate --data-dir none": "There is no such directory. Received: data_dir='none'",
    "translate --mesh data=2": "--strategy model_parallel needs --mesh",
    "translate --strategy model_parallel --mesh 2": "A mesh must be as data=2,model=4",
    "translate alignment none": "RUN must be the directory of a finished run",
    "language-model --preset bert_base": "--preset must be one of",
    "language-model --text none.txt": "none.txt does not exist",
    "language-model --data-dir none": "There is no such directory",
    "masked-language-model --text none.txt": "none.txt does not exist",
    "masked-language-model nearest none a": "RUN must be the directory of a finished run",
    "fine-tune --model bert-base-uncased": "hf download bert-base-uncased --local-dir",
    "fine-tune --train none.csv": "none.csv does not exist",
    "fine-tune --window 3": "--pattern local and --window need each other",
    "image --dataset cifar10 --data-dir none": "There is no such directory",
    "image --preset nothing": "--preset must be one of",
    "algorithmic --task parity --model transformer": "--model must be one of act_rnn, rnn",
    "control --seeds 0": "--seeds must be at least 1",
    "compare --axis depth --text none.txt": "none.txt does not exist",
    "prepare": "--data-dir is missing",
    "prepare --data-dir none": "none",
    "results none.json": "none.json: No such file or directory",
    "presets nothing": "No preset has 'nothing' in its name",
    "explain gpt2 --length 3": "Did you mean 'gpt2_small'?",
    "explain gpt2_small --length 1025": "models.create('gpt2_small', max_length=1025)",
    "explain llama_7b --length 3 --mesh 2": "A mesh must be as data=2,model=4",
    "convert bert-base-uncased a.keras": "hf download bert-base-uncased --local-dir",
    "convert a b": "The file to write must end in .keras",
    "convert golden none": "The folder does not exist",
    "convert to-hugging-face none.keras b": "The file to read must exist",
    "export saved_model none.keras a": "The model's file does not exist",
    "export saved_model none.keras a --batches 2": "--batches needs --compile",
    "inspect none": "There is no such file or directory",
    "measure none --lines none.txt": "Cannot read the file 'none.txt'",
    "serve": "--model_base_path or --model_config_file is required",
    "serve --model_base_path none": "none",
    "ask --url http://a --model_name b c": "--model_name is for --grpc",
    "tutorial nothing": "choose from",
}


@pytest.fixture(scope="module")
def answer():
    """A function that returns the status, output and error of a command line in the tables."""
    helps = [[*words.split(), "--help"] for words in programs.PROGRAMS]
    unknown = [[*words.split(), *NEEDED.get(words, ()), "--nope"] for words in programs.PROGRAMS]
    lines = [*helps, *unknown, *map(str.split, WRONG)]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        cwd=ROOT,
        input=json.dumps(lines),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    return {" ".join(line): tuple(x) for line, x in zip(lines, answers, strict=True)}


@pytest.mark.parametrize("words", programs.PROGRAMS)
def test_a_command_answers_help_and_unknown_options_without_keras(words, answer):
    status, shown, _ = answer[f"{words} --help"]
    assert status == 0 and shown.startswith(f"usage: keras-attn {words} ")
    status, _, said = answer[" ".join([*words.split(), *NEEDED.get(words, ()), "--nope"])]
    assert status == 2 and "--nope" in said and f"keras-attn {words}" in said


@pytest.mark.parametrize("line", WRONG)
def test_a_command_refuses_wrong_arguments_without_keras(line, answer):
    status, _, said = answer[line]
    assert status in (1, 2) and WRONG[line] in said and said.count("Traceback") == 0
    assert said.splitlines()[-1].startswith("keras-attn ")


def test_the_command_alone_lists_all_commands(capsys):
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for words, program in programs.PROGRAMS.items():
        assert sum(line.split("  ")[1:2] == [words] for line in lines) == 1
        assert any(line.endswith(program.purpose) for line in lines)
    assert max(map(len, lines)) <= 100


def test_the_version_is_printed(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-attn {__version__}\n"


@pytest.mark.parametrize(
    "word, hint",
    [
        ("trnslate", "Did you mean 'translate'?"),
        ("language_model", "Did you mean 'language-model'?"),
        ("alignment", "Did you mean 'translate alignment'?"),
        ("xyz", "`keras-attn` lists all."),
    ],
)
def test_an_unknown_command_is_refused_with_the_closest(word, hint, capsys):
    assert command.main([word]) == 2
    assert capsys.readouterr().err == f"keras-attn: There is no command {word!r}. {hint}\n"


def test_each_tutorial_has_a_name():
    files = (ROOT / "recipes/tutorials").glob("*.py")
    names = {path.stem.replace("_", "-") for path in files}
    assert set(TUTORIALS) == names - {"--init--"}


def test_every_program_is_a_module_and_each_module_with_a_command_line_has_a_command():
    commands = {program.module for program in programs.PROGRAMS.values()}
    found = set()
    for folder in ("recipes", "serving", "keras_attn/commands"):
        for path in (ROOT / folder).rglob("*.py"):
            if "def main(" in path.read_text(encoding="utf-8"):
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.add(name.removesuffix(".__main__"))
    makers = tuple(f"recipes.{name}" for name in "benchmarks catalogue experiments site".split())
    assert {name for name in found if not name.startswith((*makers, "recipes.common"))} <= commands
    assert all(
        (ROOT / name.replace(".", "/")).is_dir()
        or (ROOT / f"{name.replace('.', '/')}.py").is_file()
        for name in commands
    )


@pytest.mark.parametrize("module", ["keras_attn.export", "keras_attn.convert", "keras_attn.costs"])
def test_the_former_names_of_commands_stay(module):
    done = run_python("-m", module, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: keras-attn ")
