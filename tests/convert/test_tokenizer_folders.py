"""Tokenizers in folders of Hugging Face, against the ids that transformers gave for them."""

import json
import pathlib
import shutil

import checkpoint_folders
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from marks import slow, slow_but
from token_rows import rows_of

from keras_attn import text
from keras_attn.convert import from_hugging_face
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer

GOLDEN = pathlib.Path(__file__).parent / "golden_ids"
KINDS = {
    "bert": text.WordPiece,
    "gpt2": text.ByteLevelBPE,
    "roberta": text.ByteLevelBPE,
    "qwen2": text.ByteLevelBPE,
    "llama3": text.ByteLevelBPE,
    "t5": text.Metaspace,
    "marian": text.Marian,
}


def golden(path):
    """Return the lists of rows in a file."""
    arrays = [*np.load(path).values()]
    return [
        np.split(values, np.cumsum(lengths)[:-1])
        for values, lengths in zip(arrays[::2], arrays[1::2], strict=True)
    ]


@pytest.fixture(scope="module")
def lines():
    return [bytes(row.astype("uint8")) for row in golden(GOLDEN / "lines.npz")[0]]


def differing(encoded, expected, lines):
    rows = zip(encoded, expected, lines, strict=True)
    return [line for row, other, line in rows if row != other.tolist()]


# Byte-level pairs as in GPT-2, with other words and templates, are slow.
@pytest.mark.parametrize("name", slow_but(["bert", "gpt2", "t5", "marian"], KINDS))
def test_ids_and_texts_are_those_of_transformers(name, lines):
    folder = GOLDEN / name
    tokenizer = read_tokenizer(folder)
    assert type(tokenizer) is KINDS[folder.name]
    ids, pairs, texts = golden(folder / "ids.npz")
    encoded = rows_of(*tokenizer.encode(tf.constant(lines)))
    wrong = differing(encoded, ids, lines)
    both = tokenizer.encode_pair(tf.constant(lines), tf.constant(lines[1:] + lines[:1]))
    wrong_pairs = differing(rows_of(*both[:2]), pairs, lines[1:] + lines[:1])
    wrong_pairs = [second for second in wrong_pairs if second]  # transformers takes "" for none
    assert not wrong and not wrong_pairs
    decoded = tokenizer.decode_as_strings(ids)
    for row, theirs, ours in zip(ids, texts, decoded, strict=True):
        if tokenizer.unk_id not in row:
            assert ours.strip() == bytes(theirs.astype("uint8")).decode().strip()


@pytest.mark.slow
def test_a_converted_folder_has_its_tokenizer(tmp_path, lines):
    shutil.copytree(GOLDEN / "gpt2", tmp_path / "gpt2")
    alone = read_tokenizer(GOLDEN / "gpt2")
    size = alone.vocabulary_size + 3  # of a table that is wider than the vocabulary
    config, weights, _ = checkpoint_folders.load_golden("gpt2")
    checkpoint_folders.write_folder(
        tmp_path / "gpt2", *checkpoint_folders.with_vocabulary(config, weights, size)
    )
    model, tokenizer = from_hugging_face(tmp_path / "gpt2")
    assert tokenizer.vocabulary_size == model.embedding.vocabulary_size == size
    for array, expected in zip(tokenizer.encode(lines[:30]), alone.encode(lines[:30]), strict=True):
        np.testing.assert_array_equal(array, expected)
    assert tokenizer.decode_as_strings([[65, size - 1, 66]]) == alone.decode_as_strings([[65, 66]])


def old_files(name, folder):
    """Write the files that older versions wrote in place of tokenizer.json."""
    content = json.loads((GOLDEN / name / "tokenizer.json").read_text(encoding="utf-8"))
    if name == "t5":
        shutil.copy(next((GOLDEN / name).glob("*.model")), folder)
        return
    vocabulary = content["model"]["vocab"]
    if name == "bert":
        pieces = sorted(vocabulary, key=vocabulary.get)
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        return
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    merges = [" ".join(pair) for pair in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))


CLASSES = {
    "bert": {},
    "gpt2": {"tokenizer_class": "GPT2Tokenizer"},
    "roberta": {"tokenizer_class": "RobertaTokenizerFast", "pad_token": {"content": "<pad>"}},
    "qwen2": {"tokenizer_class": "Qwen2Tokenizer"},
    "t5": {"tokenizer_class": "T5Tokenizer"},
}


@pytest.mark.parametrize("name", slow_but(["gpt2", "t5"], CLASSES))
def test_older_files_give_the_same_tokenizer(name, tmp_path, lines):
    old_files(name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CLASSES[name]))
    old, new = read_tokenizer(tmp_path), read_tokenizer(GOLDEN / name)
    assert type(old) is (text.SentencePiece if name == "t5" else type(new))
    around = [(t.template.start, t.template.middle, t.template.end) for t in (old, new)]
    assert around[0] == around[1]
    marks = [(t.pad_id, t.eos_id, t.bos_id, t.vocabulary_size) for t in (old, new)]
    if name != "qwen2":  # older files hold the tokens that are no text elsewhere
        assert marks[0] == marks[1]
    # The library of SentencePiece reads odd white space by rules of its own.
    plain = [line for line in lines[:60] if line.isascii()] if name == "t5" else lines[:60]
    ours, theirs = (t.encode_as_lists(plain) for t in (old, new))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]


def test_the_model_names_the_class_where_the_tokenizer_does_not(tmp_path):
    old_files("gpt2", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert read_tokenizer(tmp_path).eos_id == read_tokenizer(GOLDEN / "gpt2").eos_id


@pytest.mark.parametrize("name", [slow("bert"), "gpt2", slow("roberta")])
def test_a_file_of_the_first_versions_names_no_type(name, tmp_path, lines):
    """Nor does `tokenizer_config.json` name the special tokens, as in the authors' own folders."""
    folder = edited(tmp_path, name)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    del content["model"]["type"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    class_name = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "roberta": "RobertaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": class_name[name]}))
    tokenizer, expected = read_tokenizer(folder), read_tokenizer(GOLDEN / name)
    assert type(tokenizer) is type(expected)
    ours, theirs = (t.encode_as_lists(lines[:60]) for t in (tokenizer, expected))
    assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    assert tokenizer.eos_id == expected.eos_id is not None


def edited(tmp_path, name, *edits):
    shutil.copytree(GOLDEN / name, tmp_path / name)
    path = tmp_path / name / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for keys, value in edits:
        place = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
    path.write_text(json.dumps(content))
    return tmp_path / name


UNKNOWN = {
    "cleaning": ("bert", ["normalizer", "clean_text"], False, "clean_text is False"),
    "length": ("bert", ["model", "max_input_chars_per_word"], 200, "per_word is 200"),
    "rules": ("bert", ["normalizer", "type"], "NFKC", "its normaliser is NFKC"),
    "steps": ("t5", ["normalizer"], {"type": "Nmt"}, "its normaliser Nmt is not known"),
    "model": ("bert", ["model", "type"], "WordLevel", "it combines WordLevel"),
    "gap": ("bert", ["model", "vocab", "[MASK]"], 9999, "its vocabulary has gaps"),
    "marks": ("bert", ["model", "unk_token"], "<unk>", "without \\['<unk>'\\]"),
    "token": (
        "bert",
        ["added_tokens", 0, "content"],
        "<new>",
        "token '<new>' is not in its vocabulary",
    ),
    "dropout": ("gpt2", ["model", "dropout"], 0.1, "its dropout is 0.1"),
    "ending": ("gpt2", ["model", "end_of_word_suffix"], "</w>", "suffix is '</w>'"),
    "words": ("gpt2", ["pre_tokenizer", "type"], "Whitespace", r"splits words by \['Whitespace'\]"),
    "pattern": (
        "qwen2",
        ["pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"],
        r"\w+",
        "pattern of words is not known",
    ),
    "template": ("bert", ["post_processor", "pair"], [], "of one text and of two differ"),
    "processor": ("bert", ["post_processor", "type"], "Prefix", "come from Prefix"),
    "pieces": ("t5", ["model", "vocab", 5, 0], "</s>", "distinct pieces of one id each"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_rules_are_named_and_have_no_graph(case, tmp_path):
    name, keys, value, sentence = UNKNOWN[case]
    folder = edited(tmp_path, name, (keys, value))
    with pytest.warns(UserWarning, match=f"has no graph: .*{sentence}"):
        assert read_tokenizer(folder) is None


@pytest.mark.parametrize("name", [slow("bert"), "gpt2"])
def test_added_words_in_older_files_are_cut_out(name, tmp_path):
    """Special tokens are plain text."""
    old_files(name, tmp_path)
    size = read_tokenizer(tmp_path).vocabulary_size if name == "bert" else 330
    special = {"mask_token": {"content": "<more>"}, "extra_special_tokens": {"image": "<pic>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**CLASSES[name], **special}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<more>": size, "newword": size + 1}))
    tokenizer = read_tokenizer(tmp_path)
    assert type(tokenizer) is text.AddedTokens
    ids = [row.tolist() for row in tokenizer.encode_as_lists(["a", "anewworda", "<more>"])]
    a = ids[0]
    assert ids[1] == [*a, size + 1, *a] and size not in ids[2]


def test_added_words_of_a_sentencepiece_model_have_no_graph(tmp_path):
    old_files("t5", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CLASSES["t5"]))
    (tmp_path / "added_tokens.json").write_text('{"newword": 9999}')
    with pytest.warns(UserWarning, match="has no graph: it cuts the added token 'newword' out"):
        assert read_tokenizer(tmp_path) is None


@pytest.mark.slow
def test_settings_of_the_class_replace_the_rules_of_its_file(tmp_path):
    """As in transformers, whose class without rules of its own computes by the file."""
    folder = edited(tmp_path, "bert")

    def read(**settings):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return read_tokenizer(folder)

    def rules(**settings):
        config = read(**settings).get_config()
        return config["lower_case"], config["strip_accents"]

    assert rules() == (True, None)
    assert rules(do_lower_case=False, strip_accents=True) == (False, True)
    assert rules(tokenizer_class="BertTokenizerFast", do_lower_case=False) == (False, None)
    assert rules(tokenizer_class="PreTrainedTokenizerFast", do_lower_case=False) == (True, None)
    with pytest.warns(UserWarning, match="its handle_chinese_chars is False"):
        assert read(tokenize_chinese_chars=False) is None


def test_a_file_needs_no_model_beside_it(tmp_path, lines):
    folder = edited(tmp_path, "t5")
    (folder / "spiece.model").unlink()
    config = read_tokenizer(GOLDEN / "t5").get_config()
    assert read_tokenizer(folder).get_config() == config


def test_folders_without_a_known_file(tmp_path):
    assert read_tokenizer(tmp_path) is None
    (tmp_path / "merges.txt").write_text("#version: 0.2")
    with pytest.raises(ValueError, match="files vocab.json, merges.txt, but no 'vocab.json': copy"):
        read_tokenizer(tmp_path)
    old_files("gpt2", tmp_path)
    with pytest.warns(UserWarning, match="pattern of the class '' is not known"):
        assert read_tokenizer(tmp_path) is None
    with pytest.raises(ValueError, match="There is no folder. Received: folder='.*nowhere'"):
        read_tokenizer(tmp_path / "nowhere")


def test_files_of_two_tokenizers_are_refused(tmp_path):
    old_files("gpt2", tmp_path)
    with open(tmp_path / "merges.txt", "a", encoding="utf-8") as file:
        file.write("xx yy\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    with pytest.raises(ValueError, match="do not belong together: .* of the merge 'xx yy'"):
        read_tokenizer(tmp_path)


def test_a_marian_folder_without_one_of_its_models_is_refused(tmp_path):
    shutil.copytree(GOLDEN / "marian", tmp_path / "marian")
    (tmp_path / "marian/target.spm").unlink()
    with pytest.raises(ValueError, match="target.spm, vocab.json, but no 'target.spm': copy it"):
        read_tokenizer(tmp_path / "marian")


@pytest.mark.parametrize("name", slow_but(["gpt2"], KINDS))
def test_a_tokenizer_with_more_ids_than_the_model_is_refused(name):
    size = read_tokenizer(GOLDEN / name).vocabulary_size
    assert read_tokenizer(GOLDEN / name, size).vocabulary_size == size
    with pytest.raises(ValueError, match=f"but the model only {size // 3} ids: it is the token"):
        read_tokenizer(GOLDEN / name, size // 3)


@pytest.mark.parametrize("kind", ["BertProcessing", "RobertaProcessing"])
def test_templates_of_older_files(kind, tmp_path):
    rules = {"type": kind, "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    tokenizer = read_tokenizer(edited(tmp_path, "bert", (["post_processor"], rules)))
    is_bert = kind == "BertProcessing"
    assert tokenizer.template == text.Template((2,), (3,) if is_bert else (3, 3), (3,), is_bert)


@pytest.mark.slow
def test_words_with_the_special_tokens_of_mpnet(tmp_path):
    names = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    folder = edited(tmp_path, "bert")
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = {names.get(token, token): i for token, i in content["model"]["vocab"].items()}
    content["model"]["vocab"] = vocabulary
    for token in content["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    start, end = ([token, vocabulary[token]] for token in ("<s>", "</s>"))
    rules = {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False}
    content["post_processor"] = {**rules, "cls": start, "sep": end}
    path.write_text(json.dumps(content))
    settings = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    settings |= {"tokenizer_class": "MPNetTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer, library = read_tokenizer(folder), tokenizers.Tokenizer.from_file(str(path))
    texts = ["The cat's 3 dogs, naïve", "", "漢字 zzz", "a b"]
    expected = [encoding.ids for encoding in library.encode_batch(texts)]
    assert rows_of(*tokenizer.encode(texts)) == expected
    pairs = library.encode_batch([*zip(texts, reversed(texts), strict=True)])
    ids, lengths, _ = tokenizer.encode_pair(texts, texts[::-1])
    assert rows_of(ids, lengths) == [encoding.ids for encoding in pairs]
    assert tokenizer.decode(ids[:1]).numpy()[0].decode().startswith("the cat")


def test_no_template_is_read_as_no_special_tokens(tmp_path):
    tokenizer = read_tokenizer(edited(tmp_path, "bert", (["post_processor"], None)))
    assert tokenizer.template == text.Template()
