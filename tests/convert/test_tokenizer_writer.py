"""Files written for a tokenizer are read as the same tokenizer."""

import json
import pathlib

import pytest
from marks import slow

from keras_attn import text
from keras_attn.convert.hugging_face.sentencepiece_models import OWN_FILE
from keras_attn.convert.hugging_face.tensor_files import write_file
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.convert.hugging_face.tokenizer_writer import tokenizer_files

GOLDEN = pathlib.Path(__file__).parent / "golden_ids"
NAMES = [slow("bert"), "gpt2", "roberta", "qwen2", "llama3", "marian", "t5"]


def written(tokenizer, folder, model_type="gpt2"):
    for name, content in tokenizer_files(tokenizer, model_type).items():
        write_file(folder, name, content)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_files_are_read_as_the_same_tokenizer(name, tmp_path):
    tokenizer = read_tokenizer(GOLDEN / name)
    again = read_tokenizer(written(tokenizer, tmp_path, "t5" if name == "t5" else "gpt2"))
    assert type(again) is type(tokenizer) and again.pad_id == tokenizer.pad_id
    assert again.get_config() == tokenizer.get_config()


@pytest.mark.parametrize("name", [slow("bert"), "gpt2", "roberta"])
def test_the_files_of_older_versions_agree(name, tmp_path):
    tokenizer = read_tokenizer(GOLDEN / name)
    (written(tokenizer, tmp_path) / "tokenizer.json").unlink()
    if name != "bert":
        settings = {"tokenizer_class": {"gpt2": "GPT2Tokenizer"}.get(name, "RobertaTokenizer")}
        marks = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        settings |= marks if name == "roberta" else {}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    again = read_tokenizer(tmp_path)
    lines = ["Naïve words, 12345!", " two  spaces\n", "日本"]
    ours, theirs = (t.encode_as_lists(lines) for t in (tokenizer, again))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    for part in ("start", "middle", "end"):
        assert getattr(again.template, part) == getattr(tokenizer.template, part)


@pytest.mark.parametrize("ends", [(True, False), (False, False), (True, True)])
def test_a_sentencepiece_model_keeps_its_bytes(ends, tmp_path):
    lines = ["the cat sat", "a dog ran", "the dogs sat on a mat"]
    model = text.SentencePiece.train(lines, 40)
    start, end = (
        (i,) if is_added else ()
        for i, is_added in zip((model.bos_id, model.eos_id), ends, strict=True)
    )
    tokenizer = text.SentencePiece(model.to_bytes(), text.Template(start, end + start, end))
    folder = written(tokenizer, tmp_path, "llama")
    (folder / OWN_FILE).unlink()
    assert read_tokenizer(folder).template == tokenizer.template  # by tokenizer.json
    (folder / "tokenizer.json").unlink()
    assert read_tokenizer(folder).get_config() == tokenizer.get_config()


@pytest.mark.parametrize("model_type", ["gpt2", "t5"])
def test_another_template_is_written_with_the_rules_alone(model_type, tmp_path):
    model = text.SentencePiece.train(["the cat sat", "a dog ran"], 30)
    template = text.Template((model.bos_id,), (model.eos_id,) * 2, (model.eos_id,))
    tokenizer = text.SentencePiece(model.to_bytes(), template)
    (written(tokenizer, tmp_path, model_type) / OWN_FILE).unlink()
    again = read_tokenizer(tmp_path)
    assert type(again) is text.Metaspace and again.template == template
    lines = ["the cat ran", "  a  dog ", ""]
    ours, theirs = (t.encode_as_lists(lines) for t in (tokenizer, again))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]


@pytest.mark.parametrize("has_word", [False, True])
def test_a_sentencepiece_is_read_as_it_was(has_word, tmp_path):
    tokenizer = text.SentencePiece((GOLDEN / "t5/spiece.model").read_bytes())
    if has_word:
        word = {"content": "two", "id": tokenizer.vocabulary_size}
        config = {**tokenizer.get_config(), "special_tokens": {"two": word["id"]}}
        tokenizer = text.AddedTokens(text.SentencePiece(**config), [word])
    tokenizer.template = text.Template((2,), (), (1,))
    again = read_tokenizer(written(tokenizer, tmp_path), tokenizer.vocabulary_size)
    lines = ["a\u0301\u200b\u0304 two", "\u3000 x\x85two\u2028y"]
    ours, theirs = (t.encode_as_lists(lines) for t in (tokenizer, again))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    assert again.template == tokenizer.template and again.to_bytes() == tokenizer.to_bytes()
    wider = read_tokenizer(tmp_path, tokenizer.vocabulary_size + 1)  # the model has one more id
    assert wider.template == tokenizer.template
    assert wider.vocabulary_size == tokenizer.vocabulary_size + 1


def test_other_rules_decide_in_place_of_the_sentencepiece_that_was_written(tmp_path):
    """A program that saves the folder again may change them."""
    tokenizer = text.SentencePiece((GOLDEN / "t5/spiece.model").read_bytes())
    file = written(tokenizer, tmp_path) / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text())))
    assert type(read_tokenizer(tmp_path)) is text.Metaspace


def test_ids_of_no_text_are_left_out(tmp_path):
    """Which a model has whose table is wider than the vocabulary."""
    model_proto = (GOLDEN / "t5/spiece.model").read_bytes()
    size = text.SentencePiece(model_proto).vocabulary_size
    special = {f"<extra_id_{i}>": size + 99 - i for i in range(100)}
    end = text.SentencePiece(model_proto).template
    config = {"model_proto": model_proto, "template": end, "special_tokens": special}
    size = text.SentencePiece(**config).vocabulary_size
    wider = {**config["special_tokens"], f"<unused {size}>": size}
    tokenizer = text.SentencePiece(**{**config, "special_tokens": wider})
    folder = written(tokenizer, tmp_path, "t5")
    (folder / "tokenizer.json").unlink()
    assert read_tokenizer(folder, size + 1).get_config()["special_tokens"] == wider
    other = text.SentencePiece(**{**config, "special_tokens": {"<more>": size}})
    assert "spiece.model" not in tokenizer_files(other, "t5")


PERCEIVER = ["[PAD]", "[BOS]", "[EOS]", "[MASK]", "[CLS]", "[SEP]"]
BYTES = {
    "byt5": {"more_tokens": ["<extra_id_0>", "<extra_id_1>"], "bos_id": 0},
    "perceiver": {
        "special_tokens": PERCEIVER,
        "pad_id": 0,
        "unk_id": None,
        "bos_id": 4,
        "eos_id": 5,
        "template": text.Template((4,), (5,), (5,)),
    },
}


@pytest.mark.parametrize("name", BYTES)
def test_a_tokenizer_of_bytes_has_no_file_but_its_settings(name, tmp_path):
    tokenizer = text.Bytes(**BYTES[name])
    assert {*tokenizer_files(tokenizer, "t5")} == {"tokenizer_config.json"}
    assert read_tokenizer(written(tokenizer, tmp_path)).get_config() == tokenizer.get_config()
    with pytest.raises(ValueError, match="must be those of ByT5 or Perceiver"):
        tokenizer_files(text.Bytes(["<pad>", "</s>", "<unk>", "<x>"]), "t5")


def test_added_tokens_keep_their_flags(tmp_path):
    inner = read_tokenizer(GOLDEN / "gpt2")
    flags = {"<tool>": {"lstrip": True}, "two": {"single_word": True, "normalized": True}, "  ": {}}
    ids = {token: inner.vocabulary_size + i for i, token in enumerate(flags)}
    inner = text.ByteLevelBPE(**{**inner.get_config(), "added_tokens": ids})
    tokens = [{"content": token, "id": ids[token], **flags[token]} for token in flags]
    tokenizer = text.AddedTokens(inner, tokens)
    again = read_tokenizer(written(tokenizer, tmp_path))
    lines = ["a  <tool>two twos", "two   <tool>  ", ""]
    ours, theirs = (t.encode_as_lists(lines) for t in (tokenizer, again))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    assert again.tokenizer.get_config() == inner.get_config()
    with pytest.raises(ValueError, match="added tokens of `tokenizer` need a `tokenizer.json`"):
        tokenizer_files(text.AddedTokens(text.Bytes(), [{"content": "b", "id": 9}]), "t5")


def test_a_tokenizer_without_a_counterpart_is_refused():
    with pytest.raises(ValueError, match="`tokenizer` must be one of `WordPiece`, .*Received"):
        tokenizer_files(text.Characters("abc"), "gpt2")
