"""`export.measure`: several forms of a model answer the same lines, and one is chosen."""

import io
import json
import os
import re
from unittest import mock

import numpy as np
import onnx
import oracles
import pytest
import tensorflow as tf
from fork_server import run_python

from keras_attn import export, models, text
from keras_attn.commands.export import _read_lines, main
from keras_attn.export import measurement
from keras_attn.export.decoding_record import Decoding, write_decoding
from keras_attn.export.measured_process import OPENERS, ExportProcess, form_of, open_ctranslate2
from keras_attn.export.measurement import Measurement, choose, format_measurements, measure
from keras_attn.generation import Beam, Constrained, Forbidden, Greedy, Sample

LINES = ["ab", "", "dcb", "u", "opop"]
LONGEST = 7


def test_a_file_of_lines_has_the_lines_of_its_references(tmp_path):
    """A mark of the byte order is no part of a line, and a carriage return in one ends none."""
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\nt\rwo\nthree")
    assert _read_lines(path, 7) == ["one", "t\rwo", "three"]


class ScriptedProcess:
    """Stands for the process of an export: answers and seconds for a line come from its path.

    The first call of each number of lines takes longer, as one that compiles does.
    """

    stopped, opened = 0, []

    def __init__(self, path, form, threads, tokenizer, max_length, beams, length_penalty):
        ScriptedProcess.opened.append((form, max_length, beams, length_penalty))
        self.known, self.threads, self.seen = "slow" not in path, threads, set()

    def read(self):
        return {"seconds": 2.0, "precision": None}

    def ask(self, lines):
        is_first = len(lines) not in self.seen
        self.seen.add(len(lines))
        seconds = 100.0 if is_first else len(lines) * (1.0 if self.known else 3.0) / self.threads
        return [line[::-1] if self.known else line for line in lines], seconds

    def stop(self):
        ScriptedProcess.stopped += 1


@pytest.fixture
def exports(tmp_path, monkeypatch):
    """Paths of two files that pass for exports, whose processes are scripted."""
    monkeypatch.setattr(measurement, "ExportProcess", ScriptedProcess)
    ScriptedProcess.stopped, ScriptedProcess.opened = 0, []
    paths = [tmp_path / name for name in ("fast.onnx", "slow.onnx")]
    for path, size in zip(paths, (5, 11), strict=True):
        path.write_bytes(bytes(size))
    return [str(path) for path in paths]


def test_first_calls_are_not_timed_and_the_rest_is_divided_by_the_lines(exports):
    measurements = measure(exports, LINES, batch_sizes=[1, 3], threads=[1, 2], repetitions=3)
    assert [(x.path, x.threads) for x in measurements] == [(p, n) for p in exports for n in (1, 2)]
    assert [x.seconds for x in measurements] == [{1: s, 3: s} for s in (1.0, 0.5, 3.0, 1.5)]
    assert [x.seconds_to_open for x in measurements] == [102.0] * 4
    assert [x.file_bytes for x in measurements] == [5, 5, 11, 11]
    palindromes = sum(line == line[::-1] for line in LINES)
    assert [x.same for x in measurements] == [len(LINES)] * 2 + [palindromes] * 2
    assert ScriptedProcess.stopped == 4


def test_an_export_that_fails_later_is_reported_and_the_others_go_on(exports, monkeypatch):
    whole = ScriptedProcess.ask

    def ask(self, lines):
        if self.known and len(self.seen) > 1:
            raise ValueError("out of memory")
        return whole(self, lines)

    monkeypatch.setattr(ScriptedProcess, "ask", ask)
    failed, other = measure(exports, LINES, batch_sizes=[1, 3], threads=[1], repetitions=2)
    assert failed.failure == "out of memory" and failed.seconds == {}
    assert other.failure is None and other.same == len(LINES)  # it is the first that answered
    report = format_measurements([failed, other])
    assert f"{exports[0]}, ONNX, did not answer: out of memory" in report
    assert len([line for line in report if line.startswith("Of ")]) == 2


def saved_model_of(folder, strategy, max_length=LONGEST):
    """Return a folder that passes for a SavedModel; without a strategy it has no record."""
    (folder / "1" / "assets.extra").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"")
    if strategy is not None:
        write_decoding(folder / "1", Decoding.of(strategy, max_length))
    return str(folder)


@pytest.fixture
def in_ctranslate2(tmp_path):
    (tmp_path / "ct2").mkdir()
    (tmp_path / "ct2" / "model.bin").write_bytes(b"")
    return str(tmp_path / "ct2")


@pytest.mark.parametrize("ctranslate2_is_first", [True, False])
def test_only_exports_with_the_same_search_are_compared(
    exports, in_ctranslate2, tmp_path, ctranslate2_is_first
):
    """CTranslate2 takes the beams of a SavedModel, and an ONNX file has none."""
    beams = saved_model_of(tmp_path / "beams", Forbidden(Beam(5, 0.7), [2]))
    paths = [beams, in_ctranslate2, exports[0]]
    paths.sort(key=lambda path: path == in_ctranslate2, reverse=ctranslate2_is_first)
    how = {"batch_sizes": [5], "threads": [1], "repetitions": 1}
    measured = {one.path: one for one in measure(paths, LINES, **how)}
    assert measured[beams].decoding == "5 beams, Forbidden"
    assert measured[in_ctranslate2].decoding == "5 beams"
    known = "It decodes otherwise (greedy) than the first export that holds its decoding"
    assert measured[exports[0]].failure == f"{known} (5 beams, Forbidden): export it alike."
    assert {one[0]: one[1:] for one in ScriptedProcess.opened} == {
        "SavedModel": (LONGEST, 5, 0.7),
        "CTranslate2": (LONGEST, 5, 0.7),
    }
    header, *rows = format_measurements([*measured.values()])
    assert "decoding" in header and "5 beams, Forbidden" in "".join(rows[:2])
    measure(paths[:2], LINES, max_length=19, **how)
    assert ScriptedProcess.opened[-1][1] == 19


@pytest.mark.parametrize(
    "strategy, decoding",
    [
        (Sample(0.5), "sampling"),
        (Beam(1, 0.7), "greedy"),
        (Constrained(Greedy(), [[0, 0]]), "greedy, Constrained"),
        (None, "not recorded"),
    ],
)
def test_how_a_saved_model_decodes(exports, in_ctranslate2, tmp_path, strategy, decoding):
    """CTranslate2 does not sample; what earlier versions wrote says nothing."""
    path = saved_model_of(tmp_path / "saved", strategy)
    how = {"batch_sizes": [5], "threads": [1], "repetitions": 1}
    first, second = measure([path, in_ctranslate2], LINES, **how)
    assert first.decoding == decoding and second.decoding == "greedy"
    assert (second.failure is None) == (decoding != "sampling")
    remark = f"How {path} decodes is not recorded: export it again to compare it with other forms."
    assert (remark in format_measurements([first, second])) == (strategy is None)


def answered(path, seconds, same, bleu=None):
    answers = [""] * 100
    return Measurement(path, "ONNX", 1, 10, 1.0, {1: seconds}, answers, same, bleu=bleu)


@pytest.mark.parametrize(
    "same_counts, bleu_scores, loss, chosen",
    [
        ((100, 100, 90), (None,) * 3, 0.5, "b"),
        ((100, 100, 90), (None,) * 3, 10, "c"),
        ((100, 90, 80), (31.0, 30.6, 30.4), 0.5, "b"),
        ((100, 90, 80), (31.0, 30.6, 30.4), 0.3, "a"),
        ((100, 90, 80), (31.0, 30.6, 33.4), 0.3, "c"),
    ],
)
def test_the_fastest_of_the_good_is_chosen(same_counts, bleu_scores, loss, chosen):
    known = zip("abc", (0.003, 0.002, 0.001), same_counts, bleu_scores, strict=True)
    measurements = [answered(*one) for one in known]
    good, fastest = choose(measurements, 1, loss)
    assert (good.path, fastest.path) == (chosen, "c")
    advice = format_measurements(measurements, loss)[-1]
    assert advice.startswith(f"Of one line serve {chosen} ")
    assert ("times as fast" in advice) == (chosen != "c")


def test_the_report_has_a_row_for_each_export():
    lines = format_measurements([answered("a", 0.003, 100, 31.0), answered("b", 0.002, 97, 30.0)])
    cells = [re.split(r"\s{2,}", line) for line in lines[:3]]
    numbers = ["1", "0.0", "1.0", "3.00", "100 of 100", "31.00"]
    assert cells[1] == ["a", "ONNX", "not recorded", *numbers]
    assert all(len(row) == len(cells[0]) for row in cells)


def test_an_export_that_fails_with_each_number_of_threads_is_reported_once_without_a_table():
    failed = [Measurement("a", "ONNX", threads, 1, failure="no tokenizer") for threads in (1, 2)]
    assert format_measurements(failed) == ["a, ONNX, did not answer: no tokenizer", ""]


def test_a_request_has_at_most_all_lines(exports):
    measurements = measure(exports, LINES, batch_sizes=[2, 32, 64], threads=[1], repetitions=1)
    assert all(list(one.seconds) == [2, len(LINES)] for one in measurements if one.failure is None)
    assert any(one.failure is None for one in measurements)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lines": []}, "`lines`"),
        ({"lines": "ab"}, "list of strings"),
        ({"exports": []}, "`exports`"),
        ({"exports": "export"}, "`exports`"),
        ({"threads": []}, "`threads`"),
        ({"batch_sizes": []}, "`batch_sizes`"),
        ({"exports": ["none"]}, "There is no such file"),
        ({"exports": [os.curdir]}, "An export must be"),
        ({"references": ["one"]}, "`references`"),
        ({"threads": [0]}, "`threads`"),
        ({"threads": 2}, "`threads` must be a list"),
        ({"lines": [b"ab"]}, "a list of str"),
        ({"exports": [5]}, "`exports` must be a path"),
        ({"batch_sizes": [0]}, "`batch_sizes`"),
        ({"repetitions": 0}, "`repetitions`"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_opened(exports, change, message):
    with pytest.raises(ValueError, match=message):
        measure(**{"exports": exports, "lines": LINES, **change})
    assert ScriptedProcess.stopped == 0


@pytest.mark.parametrize(
    "content, message",
    [(b"\n\n", "no text"), (b"a\n\xff\xfe\n", "UTF-8"), (None, "No such file")],
)
def test_a_file_without_lines_is_one_sentence(exports, tmp_path, capsys, content, message):
    file = tmp_path / "lines.txt"
    if content is not None:
        file.write_bytes(content)
    assert main(["measure", *exports, "--lines", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.slow
def test_ctranslate2_writes_an_empty_answer_where_python_does(tmp_path):
    """By default it writes at least one token."""
    tokenizer = text.Characters("abcd")
    model = models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 11)
    norm = model.decoder.blocks[-1].feed_forward_residual.norm
    end = np.asarray(model.embedding.table)[tokenizer.eos_id]
    norm.set_weights([np.zeros(8), 9 * end])  # every output is the end's row
    answer, _ = open_ctranslate2(
        export.ctranslate2(model, tmp_path / "ct2", tokenizer), 1, None, LONGEST
    )
    assert answer(["ab", "d"]) == export.Translator(model, tokenizer).translate(["ab", "d"])[0]
    assert answer(["ab"]) == [""]


@pytest.mark.slow
def test_every_form_answers_as_the_model_in_python(tmp_path, monkeypatch):
    for which in ("intra", "inter"):  # TensorFlow has started in this process
        name = f"set_{which}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, name, lambda threads: None)
    tokenizer = text.Characters("abcdefghijklmnopqrstuvwxyz")
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 19}
    model = oracles.scramble_decoder(models.gpt(tokenizer.vocabulary_size, **sizes))
    file = tmp_path / "tokenizer.model"
    tokenizer.save(file)
    paths = [
        export.saved_model(model, tmp_path / "plain", tokenizer=tokenizer, max_length=LONGEST),
        export.onnx(model, tmp_path / "model.onnx", max_length=LONGEST),
        export.ctranslate2(model, tmp_path / "ct2", tokenizer),
        export.ctranslate2(model, tmp_path / "numbers"),  # whose tokens are ids
    ]
    in_python = export.TextGenerator(model, tokenizer, max_length=LONGEST)
    outputs = in_python.text(LINES)
    expected = [line.decode() for line in np.asarray(outputs["continuation"])]
    assert len(set(expected)) > 2 and expected[1] == ""
    for path, form in map(form_of, paths):
        answer, _ = OPENERS[form](path, 1, file, LONGEST)
        for lines in (LINES, LINES[:1], LINES[2:]):
            assert answer(lines) == [expected[LINES.index(line)] for line in lines], form
    with pytest.raises(ValueError, match="The export reads ids: `tokenizer` must be the file"):
        OPENERS["ONNX"](paths[1], 1, None, LONGEST)


@pytest.mark.slow
def test_the_process_of_an_export_says_why_it_does_not_answer(tmp_path):
    """One that answers is in the example of `measure`."""
    step = str(tmp_path / "step.onnx")
    names = "token_ids", "logits"
    tensors = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in names]
    node = onnx.helper.make_node("Identity", names[:1], names[1:])
    graph = onnx.helper.make_graph([node], "step", tensors[:1], tensors[1:])
    opset = onnx.helper.make_opsetid("", 13)
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]), step)
    program = """
import io, sys
from keras_attn.export import measured_process
sys.stdin = io.StringIO(sys.argv[1])
measured_process.main()
"""
    options = {"path": step, "form": "ONNX", "threads": 1, "tokenizer": None, "max_length": LONGEST}
    printed = run_python("-c", program, json.dumps(options)).stdout
    process = mock.Mock(stdout=io.StringIO(printed), wait=lambda: 7)
    with mock.patch("subprocess.Popen", return_value=process):
        opened = ExportProcess(**options)
    with pytest.raises(ValueError, match='must be of what="greedy"'):
        opened.read()
    with pytest.raises(ValueError, match="ended with exit code 7"):
        opened.read()
    assert json.loads(process.stdin.write.call_args[0][0]) == options
