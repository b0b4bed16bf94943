"""The commands of `recipes/checkpoints.md` run in order, on small made-up folders."""

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil

import checkpoint_folders
import marian_folder
import numpy as np
import pages
import pytest
import recipe_runs

for _name in ("starlette", "tensorflow_serving", "uvicorn"):
    pytest.importorskip(_name, reason="needs pip install 'keras_attn[serving]'")

from servers import ROOT, running_on_a_thread, wait_for  # noqa: E402

from keras_attn import models  # noqa: E402
from keras_attn.convert import from_hugging_face, read_labels, to_hugging_face  # noqa: E402
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer  # noqa: E402

PAGE = pages.ROOT / "recipes/checkpoints.md"
IDS = ROOT / "tests/convert/golden_ids"
SECTIONS = re.split(r"^## ", pages.text(PAGE), flags=re.MULTILINE)[1:]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"<<'PY'\n(.*?)^PY\n", re.MULTILINE | re.DOTALL)
# Of the training of the page, which takes hours: one step.
LESS = ["--steps", "1", "--valid-share", "0.5"]
ELSEWHERE = ("pip", "hf", "docker")  # programs that need the network


def write_folder(folder, name, tokenizer):
    """Write a made-up checkpoint with a tokenizer."""
    shutil.copytree(IDS / tokenizer, folder, ignore=shutil.ignore_patterns("ids.npz"))
    config, weights, _ = checkpoint_folders.load_golden(name)
    size = read_tokenizer(folder).vocabulary_size
    config, weights = checkpoint_folders.with_vocabulary(config, weights, size)
    return checkpoint_folders.write_folder(folder, config, weights)


def write_translator():
    marian_folder.write("opus-mt-en-de", marian_folder.corpus(500))


def write_sentence_encoder():
    sentence_encoder = write_folder("all-MiniLM-L6-v2", "bert_features", "bert")
    (sentence_encoder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True}
    (sentence_encoder / "1_Pooling/config.json").write_text(json.dumps(pooling))


def write_bert_and_reviews():
    tokenizer = read_tokenizer(IDS / "bert")
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    bert = models.bert(tokenizer.vocabulary_size, **sizes, max_length=131)
    to_hugging_face(bert, "bert", tokenizer)
    with open("reviews.csv", "w") as file:
        file.write("text,label\n" + "a fine book,good\na dull book,bad\n" * 20)


def write_language_model_and_texts():
    write_folder("gpt2", "gpt2", "gpt2")
    with open("books.jsonl", "w") as file:
        for count in (30, 40):
            file.write(json.dumps({"text": "a cat sat on the mat " * count}) + "\n")


class Reader:
    """A reader of the page, with one server at a time."""

    def __init__(self, log):
        self.log, self.server, self.answers = log, None, {}
        self.stack = contextlib.ExitStack()

    def run(self, words):
        """Run a command, given as words; keep what a client is answered, by the model's name."""
        words = shlex.split(pages.in_full(shlex.join(words)))
        if words[0] == "mkdir":
            os.mkdir(words[1])
        elif words[:3] == ["python", "-m", "serving.server"]:
            self.start([word for word in words[3:] if not word.startswith("--rest_api_port")])
        elif words[:3] == ["python", "-m", "serving.client"]:
            url = f"http://127.0.0.1:{self.server.rest_port}"
            arguments = [word.replace("http://localhost:8501", url) for word in words[3:]]
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                assert importlib.import_module("serving.client.__main__").main(arguments) == 0
            self.answers[arguments[1].rpartition("/")[2]] = printed.getvalue()
        elif words[0] == "curl":
            _, option, body, url = words
            path = url.removeprefix("http://localhost:8501")
            status, answer = self.server.json("POST", path, json.loads(body))
            assert option == "-d" and status == 200, answer
            self.answers[path] = answer
        elif words[2] == "recipes.fine_tune":
            assert recipe_runs.run("fine_tune", *words[3:], *LESS) == 0
        else:
            assert words[:2] == ["python", "-m"]
            assert importlib.import_module(words[2]).main(words[3:]) == 0

    def start(self, flags):
        self.stack.close()
        name = flags[0].removeprefix("--model_name=")
        self.server = self.stack.enter_context(running_on_a_thread(self.log, *flags))
        wait_for(lambda: self.server.states(name).get(1) == "AVAILABLE")


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.split()[0])
def test_the_commands_of_a_section_run_in_order(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, check = PARTS[section.split()[0]]
    write()
    reader = Reader(tmp_path / "log")
    with recipe_runs.text_signatures(), reader.stack:
        for block in BLOCK.findall(section):
            programs = PROGRAM.findall(block)
            for line in PROGRAM.sub("\n", block).replace("\\\n", " ").splitlines():
                words = shlex.split(line)
                if words and words[-1] == "-":
                    exec(compile(programs.pop(0), PAGE.name, "exec"), {})
                elif words and words[0] not in ELSEWHERE:
                    reader.run(words)
    check(reader.answers)


def check_translations(answers):
    first, _ = answers["translate"].splitlines()
    (prediction,) = answers["/v1/models/translate:predict"]["predictions"]
    assert (prediction["translation"] if isinstance(prediction, dict) else prediction) == first


def check_features(answers):
    features = np.array(answers["/v1/models/embed:predict"]["outputs"])
    assert features.shape == (2, 12) and np.abs(features[0] - features[1]).max() > 1e-3


def check_folder(answers):
    model, tokenizer = from_hugging_face("reviews-bert")
    assert model.num_classes == 2 and tokenizer is not None and not answers
    assert read_labels("reviews-bert") == ["bad", "good"]
    with open("reviews-bert/config.json") as file:
        assert json.load(file)["architectures"] == ["BertForSequenceClassification"]


def check_continuation(answers):
    assert answers["writer"].endswith("\n")


# By section, what writes the folders and texts that it reads, and what checks its answers.
PARTS = {
    "OPUS-MT": (write_translator, check_translations),
    "BERT": (write_sentence_encoder, check_features),
    "A": (write_bert_and_reviews, check_folder),
    "GPT-2": (write_language_model_and_texts, check_continuation),
}
