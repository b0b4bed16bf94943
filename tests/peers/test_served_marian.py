"""A Marian goes from a folder to a server, which answers as transformers does in Python."""

import json
from pathlib import Path

import marian_folder
import numpy as np
import peers
import pytest

for _name in ("ctranslate2", "grpc", "starlette", "tensorflow_serving", "uvicorn"):
    pytest.importorskip(_name, reason="needs pip install 'keras_attn[serving,ctranslate2]'")

import ctranslate2  # noqa: E402
from servers import running_on_a_thread, wait_for  # noqa: E402

from keras_attn import convert, export  # noqa: E402
from keras_attn.convert.__main__ import main  # noqa: E402
from serving.client import GrpcClient, RestClient  # noqa: E402

SCRIPT = Path(__file__).with_name("transformers_translations.py")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["shared", "separate"])
def case(request, tmp_path_factory):
    """A folder, and texts with their file; the languages share a vocabulary or have one each."""
    peers.require("torch", "transformers")
    parent = tmp_path_factory.mktemp("marian")
    sources, targets = marian_folder.corpus()
    texts = [*sources[::250], "No such word: ßøλ 7", "a"]
    (parent / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    folder = marian_folder.write(
        parent / "folder", (sources, targets), is_shared=request.param == "shared"
    )
    return folder, texts, parent / "texts.json"


def expected_of(case, kind):
    folder, _, file = case
    return peers.results_of(SCRIPT, kind, folder, file)


def test_the_server_answers_as_transformers_and_as_python(case, tmp_path):
    folder, texts, _ = case
    expected = expected_of(case, "beam")
    assert len({*expected["texts"]}) > 1
    base = tmp_path / "exports"
    assert main([str(folder), str(tmp_path / "model.keras"), "--export", str(base)]) == 0
    model, tokenizer = convert.from_hugging_face(folder)
    options = convert.generation_options(folder, is_encoder_decoder=True)
    flags = ["--model_name=marian", f"--model_base_path={base}"]
    with running_on_a_thread(tmp_path / "log", *flags) as server:
        wait_for(lambda: server.states("marian").get(1) == "AVAILABLE")
        with RestClient(f"http://127.0.0.1:{server.rest_port}/v1/models/marian") as client:
            served = client.translate(texts)
        with GrpcClient(f"127.0.0.1:{server.grpc_port}", "marian") as client:
            assert [x.text for x in client.translate(texts)] == [x.text for x in served]
    assert [answer.text.strip() for answer in served] == [x.strip() for x in expected["texts"]]
    scores = [answer.score for answer in served]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
    translations, scores_of_python = export.Translator(model, tokenizer, **options).translate(texts)
    assert [answer.text for answer in served] == translations
    np.testing.assert_allclose(scores, scores_of_python, atol=1e-4)


def test_ctranslate2_answers_greedily_as_transformers_and_as_python(case, tmp_path):
    folder, texts, _ = case
    model, tokenizer = convert.from_hugging_face(folder)
    path = export.ctranslate2(model, tmp_path / "ct2", tokenizer)
    ids, lengths = (np.asarray(x) for x in tokenizer.encode(texts))
    names, target_names = tokenizer.for_sources().vocabulary(), tokenizer.vocabulary()
    rows = [[names[i] for i in row[: n - 1]] for row, n in zip(ids, lengths, strict=True)]
    found = ctranslate2.Translator(path).translate_batch(
        *(rows,),
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=marian_folder.MAX_LENGTH - 2,  # without the start and the forced end
        suppress_sequences=[["<pad>"]],
    )
    of_name = {name: i for i, name in enumerate(target_names)}
    found = [[of_name[name] for name in result.hypotheses[0]] for result in found]
    found = tokenizer.decode_as_strings(found)
    expected = expected_of(case, "greedy")["texts"]
    assert [text.strip() for text in found] == [text.strip() for text in expected]
    config = json.loads((folder / "generation_config.json").read_text())
    options = convert.generation_options({**config, "num_beams": 1}, is_encoder_decoder=True)
    translator = export.Translator(model, tokenizer, **options)
    assert found == translator.translate(texts)[0]
