"""Options, texts and folders that the language model recipe takes or refuses."""

import shutil

import pytest
from language_model_runs import SMALL, new_run, parse, run
from recipe_runs import error_of


def fails(capsys, data, out, *options):
    return error_of(capsys, "language_model", *SMALL, "--data-dir", data, "--out", out, *options)


@pytest.fixture
def broken(tmp_path):
    """A small text, to be broken."""
    directory = tmp_path / "broken"
    directory.mkdir()
    for split in ("train", "valid", "test"):
        (directory / f"{split}.txt").write_bytes(b"one two three\n" * 5)
    return directory


def test_bad_texts_are_reported(capsys, broken, tmp_path):
    (broken / "short").write_text("short")
    for name, said in (
        ("missing", "does not exist"),
        ("", "is a directory"),
        ("short", "A tenth of the text"),
    ):
        text = ("--text", broken / name, "--out", tmp_path / "out")
        assert said in error_of(capsys, "language_model", *text)
    (broken / "test.txt").write_text("abc")
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "test" in sentence and "3 tokens" in sentence and not (tmp_path / "out").exists()


DYNAMIC = ("--with", "dynamic=True")


@pytest.mark.parametrize(
    "options, said",
    [
        (("--steps", "0"), "--steps must be at least 1"),
        (("--text", "x"), "exclude each other"),
        (("--stride", "13"), "--stride must be at most the context"),
        (("--max-length", "12"), "--max-length must be less than the context"),
        (("--num-heads", "4"), "--num-heads must divide --hidden-dim"),
        (("--full-attention",), "--full-attention is for adaptive_span_transformer"),
        (("--memory", "5"), "--memory is for transformer_xl"),
        (("--eval-memory", "5"), "--eval-memory is for transformer_xl"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--model", "gtp"), "invalid choice: 'gtp'"),
        (("--temperature", "0"), "--temperature must be above 0"),
        (("--preset", "bert_base"), "--preset must be one of gpt2_small"),
        (
            ("--preset", "gpt2_small", "--model", "llama"),
            "Received: --preset gpt2_small and --model llama",
        ),
        (("--dropout", "1"), "--dropout must be at least 0 and below 1"),
        (("--with", "colour=1"), "--with must name an argument of gpt"),
        (("--with", "vocabulary_size=5"), "--with must name an argument of gpt"),
        (("--with", "num_layers=abc"), "num_layers='abc'"),
        (("--model", "sparse_transformer", "--with", "image_shape=3"), "must be three integers"),
        (("--model", "reformer", "--with", "axial_shape=3"), "--with must fit reformer"),
        (("--tokenizer", "bpe", "--vocabulary-size", "5"), "--vocabulary-size does not fit"),
        (("--model", "reformer", "--context", "13"), "--context must not be a prime or 1"),
        (
            (*("--model", "adaptive_span_transformer", "--full-attention"), *DYNAMIC),
            "--full-attention sets `dynamic` of adaptive_span_transformer: leave out one of them",
        ),
        (
            ("--model", "sparse_transformer", "--full-attention", "--with", "factors='merged'"),
            "--full-attention sets `factors` of sparse_transformer",
        ),
    ],
)
def test_bad_options_are_reported(capsys, broken, tmp_path, options, said):
    assert said in fails(capsys, broken, tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_a_preset_sets_model_sizes_and_arguments():
    sizes = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim", "dropout")
    options = parse("--preset", "transformer_xl_enwik8_24", "--num-layers", "2")
    assert options.model == "transformer_xl" and options.memory == options.eval_memory == 768
    assert [getattr(options, name) for name in sizes] == [2, 8, 1024, 3072, 0.15]
    assert options.more == ("attention_dropout=0.15",)
    options = parse("--preset", "reformer_enwik8", "--with", "num_rounds=4")
    assert options.context == 128 * 512 and "axial_shape=(128, 512)" in options.more
    assert options.more[-1] == "num_rounds=4"
    options = parse("--preset", "reformer_enwik8", "--full-attention")
    assert options.full_attention and not any(x.startswith("attention=") for x in options.more)
    options = parse("--preset", "reformer_enwik8", "--context", "2048")
    assert options.context == 2048 and not any("axial_shape" in more for more in options.more)
    options = parse("--preset", "mistral_7b", "--num-layers", "2")
    assert (options.context, options.more) == (512, ("num_key_value_heads=8",))
    options = parse("--preset", "deep_char_12")
    assert (options.model, options.context, options.more) == ("deep_char_transformer", 512, ())


def test_a_run_is_not_resumed_with_other_options_or_data(capsys, broken, tmp_path):
    out = tmp_path / "out"
    new_run(broken, out).save_settings()
    sentence = fails(capsys, broken, out, "--seed", "7")
    assert "seed=0, now 7" in sentence and "--out" in sentence
    moved = tmp_path / "elsewhere" / "broken"
    shutil.copytree(broken, moved)
    new_run(moved, out)
    with open(moved / "valid.txt", "a") as file:
        file.write("more")
    assert "data have changed" in fails(capsys, moved, out)
    (out / "settings.json").write_text("[]")
    assert "settings.json is damaged; give another --out" in fails(capsys, broken, out)


@pytest.mark.slow
def test_a_start_that_fails_leaves_no_settings(capsys, broken, tmp_path):
    """A model that can be made, and not trained."""
    assert run(broken, tmp_path, "--with", "max_length=5") == 2
    assert "a table of 5" in capsys.readouterr().err
    assert not (tmp_path / "settings.json").exists()
    new_run(broken, tmp_path)


def test_out_must_be_a_directory(capsys, broken):
    for out in (broken / "test.txt", broken / "test.txt" / "run"):
        sentence = fails(capsys, broken, out)
        assert "--out must be a directory" in sentence and f"--out {out}" in sentence
