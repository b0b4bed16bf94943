"""Tokenizer of a sentence encoder: prompts, lengths and files."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from keras_attn import text

PROMPTS = {"query": "ca", "x": "b"}
END = 3  # of `Characters`, whose letters have the ids from 4 on


def tokenizer(**options):
    arguments = {"prompts": PROMPTS, "default_prompt": "x", "max_length": 5, **options}
    return text.SentenceTokenizer(text.Characters("abc"), **arguments)


def rows(outputs):
    ids, lengths = map(np.asarray, outputs)
    return [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]


def ids(letters):
    return [4 + "abc".index(letter) for letter in letters] + [END]


def test_a_text_stands_behind_its_prompt_and_is_cut():
    made = tokenizer()
    assert rows(made.encode(["ab", "cccccc"])) == [ids("bab"), ids("bccc")]
    assert rows(made.encode(["ab", "a"], prompt="query")) == [ids("caab"), ids("caa")]
    assert rows(made.encode(["ab", "a"], 3, prompt=["document", ""])) == [ids("ab"), ids("ba")]
    assert rows(tokenizer(default_prompt=None).encode(["ab"])) == [ids("ab")]
    assert rows(tokenizer(lower_case=True).encode(["aB"], prompt="document")) == [ids("ab")]


def test_a_graph_reads_names_of_prompts_from_a_tensor():
    made = tokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def encode(texts, names):
        return *made.encode(texts, prompt=names), made.prompt_lengths(texts, names)

    *outputs, lengths = encode(["ab", "c"], ["query", "document"])
    assert rows(outputs) == [ids("caab"), ids("c")]
    assert lengths.numpy().tolist() == [2, 0]  # without the end, and none of an empty one
    *outputs, lengths = encode(["ab", "c"], [""])
    assert rows(outputs) == [ids("bab"), ids("bc")] and lengths.numpy().tolist() == [1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="one of query, document, x"):
        encode(["ab"], ["passage"])


def test_files_and_copies_keep_prompts_and_length(tmp_path):
    made = tokenizer(pad_id=2)
    made.save(tmp_path / "tokenizer")
    for again in (text.load(tmp_path / "tokenizer"), pickle.loads(pickle.dumps(made))):
        assert again.get_config() == made.get_config()
        np.testing.assert_array_equal(again.encode(["ab", "a"])[0], made.encode(["ab", "a"])[0])
        assert again.fill_id == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"default_prompt": "passage"}, "`default_prompt` must be None or one of query, document"),
        ({"prompts": {"query": 3}}, "`prompts` must be a dict of strings by name"),
        ({"max_length": 0}, "`max_length` must be"),
        ({"pad_id": 7}, "`pad_id` must be"),
    ],
)
def test_arguments_of_another_kind_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tokenizer(**options)
    with pytest.raises(ValueError, match="`prompt` must be one of query, document, x. Received"):
        tokenizer().encode(["a"], prompt="passage")
