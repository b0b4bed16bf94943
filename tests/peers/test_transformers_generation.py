"""Converted models generate the texts of transformers, by greedy decoding and by beam search."""

from pathlib import Path

import generation_cases
import numpy as np
import peers
import pytest

from keras_attn import export
from keras_attn.convert import from_hugging_face, generation_options
from keras_attn.generation import generate

SCRIPT = Path(__file__).with_name("transformers_generation.py")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=generation_cases.CASES)
def converted(request, tmp_path_factory):
    """The name, model, tokenizer and options of a checkpoint."""
    peers.require("torch", "transformers")
    folder = tmp_path_factory.mktemp("checkpoints") / request.param
    options = generation_cases.write(request.param, folder)
    return request.param, *from_hugging_face(folder), options


@pytest.mark.parametrize("kind", ["beam", "greedy"])
def test_texts_and_scores_are_those_of_transformers(converted, kind):
    name, model, tokenizer, options = converted
    expected = peers.results_of(SCRIPT, f"{name}_{kind}")
    if kind == "greedy":
        options = {**options, "num_beams": 1}
    options = generation_options(options, is_encoder_decoder=True)
    texts = generation_cases.texts()
    ids, lengths = tokenizer.encode(texts, max_length=generation_cases.MAX_SOURCE)
    output_ids, scores = (np.asarray(x) for x in generate(model, ids, lengths=lengths, **options))
    theirs, end = expected["ids"], options["eos_id"]
    pairs = [
        (_until(row, end), _until(other, end))
        for row, other in zip(output_ids, theirs, strict=True)
    ]
    assert all(row == other for row, other in pairs)
    assert len({len(row) for row, _ in pairs}) > 2
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
    limit = generation_cases.MAX_SOURCE
    translator = export.Translator(model, tokenizer, max_source_length=limit, **options)
    translations, _ = translator.translate(texts)
    assert [text.strip() for text in translations] == [x.strip() for x in expected["texts"]]


@pytest.mark.parametrize("name", generation_cases.CAUSAL)
def test_continuations_and_distributions_are_those_of_transformers(name, tmp_path):
    expected = peers.results_of(SCRIPT, name)
    generation_cases.write_causal(name, tmp_path / name)
    model, tokenizer = from_hugging_face(tmp_path / name)
    options = generation_options(tmp_path / name, is_encoder_decoder=False)
    texts = generation_cases.texts(generation_cases.PROMPTS)
    ids, lengths = tokenizer.encode(texts, max_length=generation_cases.MAX_PROMPT)
    output_ids, scores = (np.asarray(x) for x in generate(model, ids, lengths=lengths, **options))
    for row, theirs in zip(output_ids, expected["ids"], strict=True):
        assert _until(row, generation_cases.END) == theirs[theirs >= 0].tolist()
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
    sample = generation_options(generation_cases.SAMPLING, is_encoder_decoder=False)["strategy"]
    last = np.asarray(model(ids))[np.arange(len(texts)), np.asarray(lengths) - 1]
    np.testing.assert_allclose(sample.distribution(last)[0], expected["p"], atol=1e-5)


@pytest.mark.parametrize("name", generation_cases.OPTIONS)
def test_options_give_the_ids_of_transformers(name, tmp_path):
    expected = peers.results_of(SCRIPT, f"{name}_options")
    own = generation_cases.write_for_options(name, tmp_path / name)
    model, _ = from_hugging_face(tmp_path / name)
    end = own["eos_token_id"]
    for number, options in enumerate(generation_cases.OPTIONS[name]):
        options = generation_options({**own, **options}, is_encoder_decoder=not model.reads_prompt)
        for prompt in generation_cases.OPTION_PROMPTS:
            ids, _ = generate(model, np.array([prompt]), lengths=np.array([len(prompt)]), **options)
            theirs = expected[f"{number}_{len(prompt)}"].tolist()
            assert _until(np.asarray(ids)[0], end) == theirs, options


def _until(row, end):
    """Return the tokens up to the end; what fills a row after it depends on the program."""
    row = row.tolist()
    return row[: row.index(end) + 1] if end in row else row
