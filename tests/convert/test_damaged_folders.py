"""A folder that is damaged, or of a kind that is not converted, is refused in one sentence."""

import functools
import json

import checkpoint_folders
import numpy as np
import pytest
import safetensors.numpy

from keras_attn.convert import from_hugging_face
from keras_attn.convert.golden import FILE
from keras_attn.convert.hugging_face.conversion import family_of
from keras_attn.convert.hugging_face.families import FAMILIES, encoder_family
from keras_attn.convert.hugging_face.families.family import build

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TABLE = "bert.embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"
QUERY = "bert.encoder.layer.1.attention.self.query.bias"


@pytest.fixture(autouse=True)
def _one_model_of_each_size(monkeypatch):
    """The model of the sizes that most tests share is built once."""
    monkeypatch.setattr(encoder_family, "build", cached_build)


@functools.cache
def _build(function, arguments):
    return build(function, dict(arguments), {})


def cached_build(function, arguments, overrides):
    return _build(function, tuple(arguments.items()))


def write(folder, name="bert", **options):
    """A whole folder, in whose configuration options are changed; None removes one."""
    config, weights, _ = checkpoint_folders.load_golden(name)
    config = {k: v for k, v in {**config, **options}.items() if v is not None}
    return checkpoint_folders.write_folder(folder, config, weights)


def option(name="bert", **options):
    return lambda folder: write(folder, name, **options)


def rename(folder, change, name="bert", **options):
    """Write a folder without a `model_type`, with other names of the tensors."""
    config, weights, _ = checkpoint_folders.load_golden(name)
    config = {**config, **options}
    del config["model_type"]
    renamed = {change(name): value for name, value in weights.items()}
    return checkpoint_folders.write_folder(folder, config, renamed)


def with_tensor(folder, name, tensor, shape=None):
    """Add a tensor to a folder, by default of one row."""
    config, weights, _ = checkpoint_folders.load_golden(name)
    extra = {tensor: np.ones(shape or (1, config["hidden_size"]), "float32")}
    return checkpoint_folders.write_folder(folder, config, {**weights, **extra})


def without_tensors(name, part):
    """Write a folder without the tensors in whose names a part is."""

    def write(folder):
        config, weights, _ = checkpoint_folders.load_golden(name)
        kept = {name: value for name, value in weights.items() if part not in name}
        assert len(kept) < len(weights)
        checkpoint_folders.write_folder(folder, config, kept)

    return write


def with_modules(content):
    """Write a folder with a file of the modules of a sentence encoder."""
    return lambda folder: (write(folder, "bert_features") / "modules.json").write_text(content)


def with_rules(**rules):
    """Write a folder with a `tokenizer.json` of WordPiece in which a part is another."""
    whole = {
        "model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
        **{"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}},
        **{"post_processor": None, "added_tokens": []},
    }
    text = json.dumps({**whole, **rules})
    return lambda folder: (write(folder) / "tokenizer.json").write_text(text)


def rope(**options):
    return option("llama", rope_parameters={"rope_theta": 1e4, **options})


def bytes_of(name, change):
    """Change the bytes of a file."""

    def damage(folder):
        path = write(folder) / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def tensors(change):
    """Change the dict of tensors."""

    def damage(folder):
        path = write(folder) / WEIGHTS
        arrays = safetensors.numpy.load_file(path)
        arrays.update(change(arrays))
        kept = {k: np.ascontiguousarray(x) for k, x in arrays.items() if x is not None}
        safetensors.numpy.save_file(kept, path)

    return damage


def shards(change):
    """Write two shards with an index, and change the index."""

    def damage(folder):
        path = write(folder) / WEIGHTS
        arrays = safetensors.numpy.load_file(path)
        path.unlink()
        index = {}
        for i, names in enumerate([sorted(arrays)[::2], sorted(arrays)[1::2]]):
            file = f"model-{i}.safetensors"
            safetensors.numpy.save_file({name: arrays[name] for name in names}, folder / file)
            index.update(dict.fromkeys(names, file))
        (folder / INDEX).write_text(json.dumps(change(index, folder)))

    return damage


def without(name):
    return lambda folder: (write(folder) / name).unlink()


def golden(change):
    def damage(folder):
        write(folder)
        _, _, arrays = checkpoint_folders.load_golden("bert")
        np.savez(folder / FILE, **arrays)
        change(folder / FILE, arrays)

    return damage


def lose_shard(index, folder):
    (folder / "model-1.safetensors").unlink()
    return {"weight_map": index}


def without_classes(folder):
    config, weights, _ = checkpoint_folders.load_golden("gpt2_classifier")
    del weights["score.weight"]
    checkpoint_folders.write_folder(folder, config, weights)


NO_LENGTH = {"max_position_embeddings": None}
DAMAGES = {
    "classes missing": (without_classes, "lack the tensor 'score.weight'"),
    "an id of padding below 0": (
        option("gpt2_classifier", pad_token_id=-1),
        "`pad_token_id` in config.json must be the id of a token, not -1",
    ),
    "no folder": (lambda folder: None, "does not exist"),
    "no configuration": (without("config.json"), "no file 'config.json'"),
    "configuration cut": (bytes_of("config.json", lambda x: x[:-9]), "'config.json' is cut"),
    "configuration a list": (bytes_of("config.json", lambda x: b"[1]"), "no JSON object"),
    "configuration of lists in lists": (
        bytes_of("config.json", lambda x: b"[" * 100_000),
        "'config.json' is cut or damaged",
    ),
    "configuration in UTF-16": (
        bytes_of("config.json", lambda x: x.decode().encode("utf-16")),
        "'config.json' is cut or damaged",
    ),
    "no weights": (without(WEIGHTS), "no weights"),
    "weights cut": (bytes_of(WEIGHTS, lambda x: x[:-3]), "'model.safetensors' is cut"),
    "bytes added": (bytes_of(WEIGHTS, lambda x: x + b"\0" * 4), "'model.safetensors' is cut"),
    "a shard missing": (shards(lose_shard), "'model-1.safetensors', which the folder lacks"),
    "index without a map": (shards(lambda index, _: {"metadata": {}}), "no `weight_map`"),
    "a tensor missing in a shard": (
        shards(lambda index, _: {"weight_map": {**index, "x": "model-0.safetensors"}}),
        "only the index has the tensor 'x'",
    ),
    "a tensor missing in the index": (
        shards(lambda index, _: {"weight_map": {k: v for k, v in index.items() if k != TABLE}}),
        f"only the file has the tensor '{TABLE}'",
    ),
    "a shard in another folder": (
        shards(lambda index, _: {"weight_map": {**index, TABLE: "../model-0.safetensors"}}),
        "'../model-0.safetensors', which the folder lacks",
    ),
    "a tensor missing": (tensors(lambda x: {QUERY: None}), "lack the tensor 'encoder.layer.1.att"),
    "a tensor left over": (tensors(lambda x: {"a.b": np.ones(2)}), "hold the tensor 'a.b'"),
    "a table transposed": (tensors(lambda x: {TABLE: x[TABLE].T}), "has the shape (12, 29)"),
    "not a number": (tensors(lambda x: {QUERY: x[QUERY] * np.nan}), "not finite"),
    "eight bits": (tensors(lambda x: {QUERY: x[QUERY].astype("int8")}), "of dtype I8"),
    "a tied bias that differs": (
        tensors(lambda x: {f"{BIAS[:-4]}decoder.bias": x[BIAS] + 1}),
        "differs from 'cls.predictions.bias'",
    ),
    "a name in two spellings": (
        tensors(lambda x: {QUERY.replace("bias", "beta"): x[QUERY]}),
        "is there twice",
    ),
    "a name with and without the prefix": (
        tensors(lambda x: {QUERY.removeprefix("bert."): x[QUERY]}),
        "is there twice",
    ),
    "model_type unknown": (option(model_type="bort"), "The model_type 'bort' is not converted"),
    "no model_type, and names of several families": (
        option("llama", model_type=None),
        "no `model_type`, and the names of the tensors do not tell it: give `model_type=`, one of",
    ),
    "no model_type, and RoBERTa's one segment": (
        lambda folder: rename(folder, lambda name: name.removeprefix("bert."), type_vocab_size=1),
        "no `model_type`, and the names of the tensors do not tell it",
    ),
    "rotary positions in a list": (
        option("llama", rope_parameters=[1]),
        "`rope_parameters` in config.json must be an object of options, not [1]",
    ),
    **{
        f"{name} of a {model} in a list": (option(model, **{name: [["a"]]}), message)
        for model, name, message in (
            ("bert", "hidden_act", "The activation hidden_act=[['a']] is not converted"),
            ("gemma3", "layer_types", "`layer_types` in config.json must be a list of strings"),
            ("reformer", "attn_layers", "`attn_layers` in config.json must be a list of strings"),
            ("t5", "feed_forward_proj", "feed_forward_proj=[['a']] is not converted"),
        )
    },
    "layers of a window in quotes": (
        option("qwen2", use_sliding_window=True, max_window_layers="28"),
        "`max_window_layers` in config.json must be a number",
    ),
    "no width": (option(hidden_size=None), "`hidden_size` in config.json must be an integer"),
    "a width in quotes": (option(hidden_size="12"), "above 0, not '12'"),
    "a layer less": (option(num_hidden_layers=1), "and 15 more, which the model has no place"),
    "heads that do not divide": (option(num_attention_heads=5), "num_heads=5"),
    "another vocabulary": (option(vocab_size=31), "where config.json asks for (31, 12)"),
    "padding outside the vocabulary": (option(pad_token_id=29), "`pad_id` must be below 29"),
    "an epsilon below 0": (option(layer_norm_eps=-1e-5), "a number of at least 0, not -1e-05"),
    "an unknown activation": (option(hidden_act="gulu"), "activation hidden_act='gulu'"),
    "relative positions": (
        option(position_embedding_type="relative_key"),
        "position_embedding_type='relative_key' is not converted",
    ),
    **{
        f"{name} of a {model}": (option(model, **{name: value}), f"{name}={value} is not converted")
        for model, name, value in (
            ("marian", "normalize_before", True),
            ("marian", "add_final_layer_norm", True),
            ("marian", "normalize_embedding", True),
            ("bart", "normalize_before", True),
            ("falcon", "alibi", True),
            ("opt", "_remove_final_layer_norm", True),
            ("mpnet", "relative_attention_num_buckets", 16),
        )
    },
    "weights in four bits": (option(quantization_config={"bits": 4}), "quantization_config={"),
    "code of its own": (option(auto_map={"AutoModel": "x"}), "auto_map={"),
    **{
        f"{name}={value} of a {model}": (option(model, **{name: value}), message)
        for model, name, value, message in (
            ("bert", "layer_norm_eps", float("inf"), "a number of at least 0, not inf"),
            ("deberta_v2", "max_relative_positions", [], "must be an integer, not []"),
            ("deberta_v2", "position_buckets", "8", "must be an integer, not '8'"),
            ("deberta_v2", "pos_att_type", [["c2p"]], "must be a list of strings"),
            ("modernbert_classifier", "classifier_pooling", [], "pooling=[] is not converted"),
            ("olmo3", "rope_parameters", {"full_attention": [1]}, "full_attention are [1]"),
            ("qwen2_moe", "mlp_only_layers", "0", "must be a list of integers, not '0'"),
            ("reformer_lsh", "num_buckets", [2, "4"], "must be a list of integers"),
        )
    },
    "a type of rotary positions in a list": (
        rope(rope_type=["yarn"]),
        "The rope_type ['yarn'] is not converted",
    ),
    "other rotary positions": (rope(rope_type="mrope"), "rope_type 'mrope' is not converted"),
    "longrope without factors": (rope(rope_type="longrope"), "need the option 'short_factor'"),
    "linear without a factor": (rope(rope_type="linear"), "need the option 'factor'"),
    "partial rotary positions": (rope(partial_rotary_factor=0.5), "partial_rotary_factor=0.5"),
    "yarn of a negative range": (
        rope(rope_type="yarn", factor=2.0, original_max_position_embeddings=16, beta_fast=-8),
        "'yarn' do not fit: `beta_fast` must be a number above 0",
    ),
    "yarn with another amplitude": (
        rope(rope_type="yarn", factor=2.0, attention_factor="much"),
        "'yarn' do not fit: `amplitude` must be",
    ),
    "llama3 with an empty range": (
        rope(rope_type="llama3", factor=2.0, high_freq_factor=1.0),
        "'llama3' do not fit: `high` must be above `low`",
    ),
    "yarn without a length": (
        option("llama", rope_parameters={"rope_type": "yarn", "factor": 2.0}, **NO_LENGTH),
        "need the option 'original_max_position_embeddings'",
    ),
    "a type of layers too few": (
        option("gemma3", layer_types=["full_attention"]),
        "for each of 3 layers",
    ),
    "an odd window": (option("longformer", attention_window=[4, 5]), "not [4, 5]"),
    "a window too few": (option("longformer", attention_window=[4]), "each of 2 layers, not [4]"),
    "an encoder with another GELU": (
        option("longformer", hidden_act="relu"),
        "hidden_act='relu' is not converted",
    ),
    "a classifier of a Longformer without one": (
        lambda folder: with_tensor(folder, "longformer_features", "classifier.weight"),
        "hold the tensor 'classifier.weight', which the model has no place for",
    ),
    "classes without a pooler": (
        without_tensors("bert_classifier", "pooler"),
        "lack the tensor 'pooler.dense.weight'",
    ),
    "tags without a classifier": (
        option("bert_features", architectures=["BertForTokenClassification"]),
        "lack the tensor 'classifier.weight'",
    ),
    "answers without logits": (
        option("distilbert", architectures=["DistilBertForQuestionAnswering"]),
        "lack the tensor 'qa_outputs.weight'",
    ),
    "a head of its own that a BERT lacks": (
        option(tie_word_embeddings=False),
        "lack the tensor 'cls.predictions.decoder.weight'",
    ),
    "a head of its own that a GPT-2 lacks": (
        option("gpt2", tie_word_embeddings=False),
        "lack the tensor 'lm_head.weight'",
    ),
    "classes or tags of a Llama": (
        option("llama_classifier", architectures=None),
        "are those of a Llama with classes or with tags: name the class of transformers in "
        "`architectures` of config.json.",
    ),
    "tags of a ModernBERT without a name": (
        option("modernbert_tags", architectures=None),
        "are those of a ModernBert with classes or with tags",
    ),
    "classes that a BART lacks": (
        option("bart", architectures=["BartForSequenceClassification"]),
        "lack the tensor 'classification_head.out_proj.weight'",
    ),
    "tags of a BART": (
        option("bart", architectures=["BartForTokenClassification"]),
        "A Bart with tags is not converted, only one with tokens, classes, answers, features.",
    ),
    "classes of a Pegasus": (
        option("pegasus", architectures=["PegasusForSequenceClassification"]),
        "A Pegasus with classes is not converted, only one with tokens, features.",
    ),
    "several ends of a text": (
        option("mbart_classifier", eos_token_id=[2, 3]),
        "`eos_token_id` in config.json must be",
    ),
    "classes of two tables of tokens": (
        lambda folder: with_tensor(
            folder, "bart_classifier", "model.decoder.embed_tokens.weight", (37, 12)
        ),
        "A Bart with classes whose sides have tables of tokens of their own is not converted.",
    ),
    "logits of a BART without a table": (
        option("bart", tie_word_embeddings=False),
        "lack the tensor 'lm_head.weight'",
    ),
    "windows that an option turns off": (
        option("qwen2", use_sliding_window=False),
        "Layers with a window need the option sliding_window",
    ),
    "a window of no keys": (
        option("mistral", sliding_window=0),
        "`sliding_window` in config.json must be an integer above 0, not 0.",
    ),
    "logits over nothing": (
        option("granite", logits_scaling=0),
        "`logits_scaling` in config.json must be a number above 0, not 0.",
    ),
    "distances of distances": (
        option("deberta_v2", pos_att_type=["p2p"]),
        "`pos_att_type` in config.json must be of c2p, p2c, not ['p2p'].",
    ),
    "tags of a T5 with a decoder": (
        option("t5", architectures=["T5ForTokenClassification"]),
        "A T5 with a decoder with tags is not converted, only one with tokens, classes, answers",
    ),
    "logits of a T5 of version 1.1 without a table": (
        option("t5", architectures=["T5Model"], tie_word_embeddings=False),
        "lack the tensor 'lm_head.weight'",
    ),
    "answers of an encoder of T5": (
        option("t5_encoder", architectures=["T5ForQuestionAnswering"]),
        "A T5 with answers is not converted, only one with features, tags.",
    ),
    "repeated blocks of a Perceiver": (
        option("perceiver", num_blocks=2),
        "num_blocks=2 is not converted",
    ),
    "classes of a Perceiver": (
        option("perceiver", architectures=["PerceiverForSequenceClassification"]),
        "A Perceiver with classes is not converted, only one that predicts tokens.",
    ),
    "a first token without a position": (
        option("m2m_100", decoder_start_token_id=1),
        "The option decoder_start_token_id is that of padding, which has no position",
    ),
    "sinusoids of an odd width": (option("marian", d_model=15), "An odd d_model, "),
    "answers of a BigBird": (
        option("big_bird_features", architectures=["BigBirdForQuestionAnswering"]),
        "A BigBird with answers is not converted, only one with features, tokens, classes, tags",
    ),
    "choices of a DistilBERT": (
        option("distilbert_classifier", architectures=["DistilBertForMultipleChoice"]),
        "A DistilBertForMultipleChoice is not converted",
    ),
    "a layer after the pooling": (
        with_modules('[{"type": "sentence_transformers.models.LSTM"}]'),
        "The module 'LSTM' of modules.json is not converted",
    ),
    "modules in an object": (with_modules("{}"), "'modules.json' is cut or damaged"),
    **{
        f"a module that is {module}": (
            with_modules(f"[{module}]"),
            "The module 'None' of modules.json is not converted",
        )
        for module in ('"Pooling"', '{"type": null}', "{}")
    },
    "no biases in BigBird": (option("big_bird", use_bias=False), "use_bias=False is not converted"),
    "another attention of BigBird": (
        option("big_bird", attention_type="etc"),
        "attention_type='etc' is not converted",
    ),
    "tokenizer cut": (
        lambda folder: (write(folder) / "tokenizer.json").write_text("{"),
        "'tokenizer.json' is cut",
    ),
    "tokenizer without a model": (
        lambda folder: (write(folder) / "tokenizer.json").write_text("{}"),
        "'tokenizer.json' is damaged: it has no 'model'",
    ),
    **{
        f"tokenizer whose {part} is {value}": (
            with_rules(**{part: value}),
            "The files of the tokenizer are damaged (",
        )
        for part, value in (("model", []), ("added_tokens", [1]), ("pre_tokenizer", "Whitespace"))
    },
    "a vocabulary of another Marian": (
        lambda folder: [
            (write(folder) / name).write_text(text)
            for name, text in (("source.spm", ""), ("target.spm", ""), ("vocab.json", '{"a": 0}'))
        ],
        "The files of the tokenizer are damaged (ValueError: `vocabulary` must be a dict",
    ),
    "a pointer of Git LFS": (
        bytes_of(WEIGHTS, lambda x: b"version https://git-lfs.github.com/spec/v1\nsize 9\n"),
        "'model.safetensors' is a pointer of Git LFS",
    ),
    "a vocabulary in Latin-1": (
        lambda folder: (write(folder) / "vocab.txt").write_bytes(b"[PAD]\n\xff"),
        "'vocab.txt' is cut or damaged: it is no UTF-8",
    ),
    "golden outputs cut": (
        golden(lambda path, _: path.write_bytes(path.read_bytes()[:-99])),
        f"The file '{FILE}' is cut",
    ),
    "golden outputs of another head": (
        golden(lambda path, x: np.savez(path, **{**x, "columns": x["columns"] + 999})),
        "has other inputs or outputs",
    ),
    "golden outputs of another model": (
        golden(lambda path, x: np.savez(path, **{**x, "outputs": x["outputs"] + 0.01})),
        "outputs differ",
    ),
}


OPTIONS = {
    "reformer": [
        ({"is_decoder": False}, "is_decoder=False is not converted, only True"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True is not converted, only False"),
        ({"attn_layers": ["local", "full"]}, "attn_layers=['local', 'full'] is not converted"),
        ({"attn_layers": []}, "attn_layers=[] is not converted"),
        ({"lsh_num_chunks_before": 2}, "lsh_num_chunks_before=2 is not converted, only 1"),
        ({"local_num_chunks_after": 1}, "local_num_chunks_after=1 is not converted, only 0"),
        ({"axial_pos_embds_dim": [5, 8]}, "dims=(5, 8)"),
        ({"axial_pos_shape": None}, "`axial_pos_shape` in config.json must be a list of integers"),
        ({"num_hidden_layers": 2, "attn_layers": ["local"]}, "and 11 more, which the model has no"),
    ],
    "transformer_xl": [
        ({"attn_type": 1}, "attn_type=1 is not converted, only 0"),
        ({"pre_lnorm": True}, "pre_lnorm=True is not converted, only False"),
        ({"d_embed": 11}, "d_embed=11 is not converted, only 12"),
        ({"sample_softmax": 5}, "sample_softmax=5 is not converted, only -1"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not converted"),
        ({"tie_projs": [False, True, False]}, "tie_projs=[False, True, False] is not converted"),
        ({"tie_projs": [True]}, "tie_projs=[True] is not converted"),
        ({"mem_len": 0}, "same_length=True is not converted without a `mem_len` above 0"),
        ({"cutoffs": [18, 7]}, "`cutoffs` must grow"),
        ({"cutoffs": None}, "`cutoffs` in config.json must be a list of integers"),
        ({"clamp_len": "9"}, "`clamp_len` in config.json must be an integer, not '9'"),
        ({"div_val": 3}, "emb_layers.1.weight' has the shape (11, 6)"),
        ({"vocab_size": 31}, "emb_layers.2.weight' has the shape (11, 3)"),
        ({"n_layer": 1}, "which the model has no place for"),
    ],
}
DAMAGES |= {
    f"{name} with {options}": (option(name, **options), message)
    for name, cases in OPTIONS.items()
    for options, message in cases
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_sentence(damage, tmp_path):
    make, expected = DAMAGES[damage]
    make(tmp_path / "folder")
    with pytest.raises(ValueError) as caught:
        from_hugging_face(tmp_path / "folder")
    message, _, received = str(caught.value).partition(" Received: ")
    assert expected in str(caught.value)
    assert received and "\n" not in message and ". " not in message.rstrip(".")


def _one_of_each_family():
    """Return the name of a golden file by `model_type`; a kernel of a layer is damaged in it."""
    names = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))
    return {checkpoint_folders.load_golden(name)[0]["model_type"]: name for name in names}


TENSOR_DAMAGES = {
    "missing": (lambda x: None, "lack the tensor"),
    "of another shape": (lambda x: np.concatenate([x, x[:1]]), "has the shape"),
    "not finite": (lambda x: np.where(x == x.max(), np.inf, x), "not finite"),
}


@pytest.mark.slow
@pytest.mark.parametrize("index, name", list(enumerate(sorted(_one_of_each_family().values()))))
def test_a_damaged_kernel_is_refused_in_each_family(index, name, tmp_path):
    config, weights, _ = checkpoint_folders.load_golden(name)
    kernels = [key for key, x in weights.items() if x.ndim == 2 and ".0." in key]
    kernel = kernels[len(kernels) // 2]
    change, expected = list(TENSOR_DAMAGES.values())[index % len(TENSOR_DAMAGES)]
    changed = {**weights, kernel: change(weights[kernel])}
    kept = {key: x for key, x in changed.items() if x is not None}
    checkpoint_folders.write_folder(tmp_path, config, kept)
    with pytest.raises(ValueError, match=expected) as caught:
        from_hugging_face(tmp_path)
    assert ".".join(kernel.split(".")[-2:-1]) in str(caught.value)


@pytest.mark.parametrize(
    "name, change, expected",
    [
        ("bert", "module.{}", "bert"),
        ("bert", "{}", "bert"),
        ("bert_features", "{}", "bert"),
        ("distilbert", "{}", "distilbert"),
        ("distilbert_classifier", "model.{}", "distilbert"),
        ("gpt2", "{}", "gpt2"),
        ("roberta", "{}", "roberta"),
        ("transformer_xl", "{}", "transfo-xl"),
    ],
)
def test_names_of_tensors_tell_an_old_family(name, change, expected, tmp_path):
    config, family = family_of(rename(tmp_path, change.format, name))
    assert family is FAMILIES[expected] and config.get("model_type") == expected


def test_an_old_folder_gives_the_outputs_of_transformers(tmp_path):
    """Without a `model_type`, with another prefix, old names of norms and a head of one's own."""

    def old_name(name):
        for new, old in (
            ("LayerNorm.weight", "LayerNorm.gamma"),
            ("LayerNorm.bias", "LayerNorm.beta"),
        ):
            name = name.replace(new, old)
        return f"module.{name}"

    rename(tmp_path, old_name)
    arrays = safetensors.numpy.load_file(tmp_path / WEIGHTS)
    own = {"module.cls.species.weight": np.ones((2, 12), "float32")}
    safetensors.numpy.save_file({**arrays, **own}, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match="'cls.species.weight', which the model has no place for"):
        from_hugging_face(tmp_path)
    model, _ = from_hugging_face(tmp_path, ignore="cls.species.*")
    _, _, expected = checkpoint_folders.load_golden("bert")
    assert checkpoint_folders.difference(model, expected) <= checkpoint_folders.TOLERANCE


def test_an_unknown_model_type_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="`model_type` must be one of .*'gpt2'.*'bert'\\?"):
        from_hugging_face(write(tmp_path), model_type="bort")


@pytest.mark.parametrize("ignore", [3, [3], ["a", None]])
def test_patterns_that_are_no_texts_are_refused(ignore, tmp_path):
    with pytest.raises(ValueError, match="`ignore` must be .*patterns of names"):
        from_hugging_face(write(tmp_path), ignore=ignore)


def test_an_unknown_override_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="arguments of `build_model`: pattern, dropout, pad_id, name. "
    ):
        from_hugging_face(write(tmp_path, "llama"), drop_out=0.1)


def test_whole_golden_outputs_are_accepted(tmp_path):
    golden(lambda path, _: None)(tmp_path)
    model, tokenizer = from_hugging_face(tmp_path)
    assert tokenizer is None and model.count_params()


@pytest.mark.parametrize("folder", [None, 3])
def test_a_folder_that_is_no_path_is_refused(folder):
    with pytest.raises(ValueError, match=f"`folder` must be a path, .* folder={folder}"):
        from_hugging_face(folder)
