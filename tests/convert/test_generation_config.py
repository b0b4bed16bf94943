"""Options of `generate` from the files of checkpoints."""

import json

import pytest

from keras_attn.convert import generation_options
from keras_attn.generation import Beam, Forbidden, Forced, Greedy, NoRepeat, Sample

START = {"decoder_start_token_id": 9}


def test_options_of_a_translator():
    """The file of an OPUS-MT model; unknown keys are those of no decoding."""
    config = {
        **START,
        "bad_words_ids": [[9]],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 4,
        "pad_token_id": 9,
        "renormalize_logits": True,
        "transformers_version": "4.32.0",
    }
    strategy = Forbidden(Forced(Beam(4, 1.0, "power", False), last_id=0), [9])
    expected = {"strategy": strategy, "eos_id": 0, "max_length": 511, "bos_id": 9}
    assert generation_options(config, is_encoder_decoder=True) == expected


@pytest.mark.parametrize(
    "config, strategy",
    [
        ({}, Greedy()),
        ({"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},)
        + (Beam(3, 2.0, "power", True),),
        ({"forced_bos_token_id": 5}, Forced("greedy", 5, renormalize=False)),
        ({"min_length": 4}, Forced("greedy", min_length=3, renormalize=False)),
        ({"min_new_tokens": 4}, Forced("greedy", min_length=4, renormalize=False)),
        ({"min_new_tokens": 4, "min_length": 7},)
        + (Forced("greedy", min_length=4, renormalize=False),),
        ({"min_new_tokens": 0, "min_length": 7}, Greedy()),
        ({"min_length": 99}, Forced("greedy", min_length=20, renormalize=False)),
        ({"no_repeat_ngram_size": 3}, NoRepeat("greedy", 3, False, counts_bos=True)),
        ({"suppress_tokens": [7, 3]}, Forbidden("greedy", [7, 3], False)),
        ({"forced_bos_token_id": None, "no_repeat_ngram_size": 0}, Greedy()),
    ],
)
def test_strategies_of_encoder_decoders(config, strategy):
    """Without a length transformers generates 20 tokens after the first."""
    options = generation_options({**START, **config}, is_encoder_decoder=True)
    assert options == {"strategy": strategy, "eos_id": -1, "max_length": 20, "bos_id": 9}


@pytest.mark.parametrize(
    "config, strategy",
    [
        ({"do_sample": True}, Sample(top_k=50)),
        ({"do_sample": True, "top_k": 0, "top_p": 0.9, "temperature": 0.6}, Sample(0.6, top_p=0.9)),
        ({"repetition_penalty": 1.5}, Sample(top_k=1, repetition_penalty=1.5)),
        ({"max_length": 50}, Greedy()),
        ({"forced_bos_token_id": 6}, Forced("greedy", 6, renormalize=False, prompt_length=1)),
        ({"forced_eos_token_id": 4}, Forced("greedy", last_id=4, renormalize=False)),
        ({"no_repeat_ngram_size": 3}, NoRepeat("greedy", 3, False)),
        ({"min_length": 9, "min_new_tokens": 3}, Forced("greedy", min_length=3, renormalize=False)),
        # An end token is no bad word, but can be suppressed.
        ({"bad_words_ids": [[4], [5]]}, Greedy()),
        ({"bad_words_ids": [[4], [6]], "suppress_tokens": [5]}, Forbidden("greedy", [6, 5], False)),
    ],
)
def test_strategies_of_causal_models(config, strategy):
    config = {**config, "eos_token_id": [4, 5]}
    options = generation_options(config, is_encoder_decoder=False)
    assert options == {"strategy": strategy, "eos_id": [4, 5]}
    options = generation_options({**config, "max_new_tokens": 7}, is_encoder_decoder=False)
    assert options["max_length"] == 7


def test_a_folder_without_the_file_has_its_options_in_the_configuration(tmp_path):
    config = {**START, "eos_token_id": 5, "num_beams": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = generation_options(config, is_encoder_decoder=True)
    assert generation_options(tmp_path, is_encoder_decoder=True) == expected
    options = generation_options(tmp_path, True, forced_bos_token_id=7, num_beams=None)
    assert options["strategy"] == Forced(Greedy(), 7, renormalize=False)  # a target language
    (tmp_path / "generation_config.json").write_text(json.dumps(START))
    options = generation_options(str(tmp_path), is_encoder_decoder=True)
    assert options["strategy"] == Greedy()


@pytest.mark.parametrize("name", ["num_beams", "max_new_tokens", "temperature", "top_p"])
def test_options_in_quotes_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}='3'"):
        generation_options({"do_sample": True, name: "3"}, is_encoder_decoder=False)


@pytest.mark.parametrize(
    "config, is_encoder_decoder, name",
    [
        ({"encoder_no_repeat_ngram_size": 3}, True, "encoder_no_repeat_ngram_size"),
        ({"bad_words_ids": [[3, 4]]}, True, "bad_words_ids"),
        ({"forced_eos_token_id": 4, "suppress_tokens": [4]}, True, "suppress_tokens"),
        ({"num_beams": 2, "do_sample": True}, True, "do_sample"),
        ({"repetition_penalty": 1.2}, True, "repetition_penalty"),
        ({"min_length": 3}, False, "min_length"),
        ({"decoder_start_token_id": None}, True, "decoder_start_token_id"),
    ],
)
def test_options_without_a_counterpart_are_refused(config, is_encoder_decoder, name):
    with pytest.raises(ValueError, match=f"Received: {name}="):
        generation_options({**START, **config}, is_encoder_decoder)


def test_a_length_penalty_below_0_has_no_counterpart():
    with pytest.raises(ValueError, match="`length_penalty` of the checkpoint has no counterpart"):
        generation_options({**START, "num_beams": 2, "length_penalty": -1.0}, True)


def test_options_that_are_no_dict_are_refused():
    with pytest.raises(ValueError, match="`config` must be the path of a folder, or a dict"):
        generation_options(None, is_encoder_decoder=False)
