"""The recipe from the command line: whole runs, files of images, bad input."""

import math
import sys

import numpy as np
import pytest
import recipe_runs
import tensorflow as tf
from matplotlib.image import imread
from recipe_runs import card, error_of

from keras_attn import patterns
from recipes.common.plots import GAP, image_grid
from recipes.image.architectures import build
from recipes.image.batches import ShuffledBatches
from recipes.image.data import Images, read_images
from recipes.image.shapes import DATASETS
from recipes.image.training import ImageRun

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "6", "--intermediate-dim", "7"),
    *("--batch-size", "5", "--steps", "6", "--epochs", "3", "--learning-rate", "0.01"),
    *("--valid-images", "7", "--test-images", "11", "--samples", "3", "--dropout", "0.1"),
]


def run(out, *options):
    return recipe_runs.run("image", "--out", out, *SMALL, *options)


def parse(*options):
    return recipe_runs.parse("image", *options)


def new_run(out, *options):
    """A run that has not started."""
    return ImageRun(parse("--out", out, *SMALL, *options))


@pytest.mark.slow
def test_a_run_writes_card_samples_and_export(tmp_path, capsys):
    options = ("--likelihood", "logistics", "--pattern", "block_local_2d", "--seed", "5")
    assert run(tmp_path, *options) == 0
    for name in ("card.json", "curve.png", "model.keras"):
        assert (tmp_path / name).stat().st_size > 0
    facts, said = card(tmp_path), capsys.readouterr().out
    value = facts["results"]["test"]["value"]
    assert f"bits_per_dim {value:.4g} (11 images)" in said
    assert facts["images"] == {"train": 1439, "valid": 179, "test": 179}
    # The export scores the test as the recipe did, and draws what is in the picture.
    export = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures
    test = read_images("digits", seed=5)["test"].take(range(11)).astype("int32")
    scores = export["score"](images=tf.constant(test))["bits_per_dim"]
    assert np.mean(scores) == pytest.approx(value, abs=1e-4)
    drawn = export["generate"](batch_size=tf.constant(3), seed=tf.constant(5))["images"].numpy()
    assert drawn.shape == (3, 8, 8, 1) and drawn.max() <= 16
    picture = np.round(imread(tmp_path / "samples.png") * 255)
    np.testing.assert_array_equal(picture[..., :3], image_grid(drawn, 17))
    assert len(facts["history"]) == 3 and facts["steps"] == 6


@pytest.mark.slow
def test_super_resolution_draws_the_small_image_the_sample_and_the_truth(tmp_path):
    options = ("--model", "super_resolution_transformer", "--seed", "5")
    assert run(tmp_path, *options) == 0
    assert card(tmp_path)["results"]["test"]["metric"] == "bits_per_dim"
    truth = read_images("digits", seed=5)["test"].take(range(3)).astype("int32")
    small = np.zeros((3, 4, 4, 1), "int32")
    for cell in np.ndindex(3, 4, 4):
        image, row, column = cell
        square = truth[image, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        small[cell] = round(square.sum() / 4)
    export = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures
    drawn = export["generate"](images=tf.constant(small), seed=tf.constant(5))["images"].numpy()
    cells = []
    for image in range(3):
        enlarged = np.kron(small[image, ..., 0], np.ones((2, 2)))[..., None]
        cells += [enlarged, drawn[image], truth[image]]
    picture = np.round(imread(tmp_path / "samples.png") * 255)
    np.testing.assert_array_equal(picture[..., :3], image_grid(np.stack(cells), 17, columns=12))


@pytest.mark.slow
def test_a_classifier_learns_and_its_export_classifies(tmp_path, capsys):
    options = ("--model", "vit", "--steps", "200", "--hidden-dim", "24", "--test-images", "179")
    assert run(tmp_path, *options, "--batch-size", "16") == 0
    value = card(tmp_path)["results"]["test"]["value"]
    assert value > 0.5 and f"accuracy {value:.4g} (179 images)" in capsys.readouterr().out
    classify = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures["classify"]
    test = read_images("digits")["test"]
    images = test.take(range(179)).astype("float32") / 16
    outputs = classify(images=tf.constant(images))
    assert np.mean(outputs["class"] == test.take_labels(range(179))) == pytest.approx(value)
    np.testing.assert_allclose(tf.reduce_sum(outputs["probabilities"], axis=-1), 1, atol=1e-5)


def test_labels_are_those_of_the_images():
    from sklearn.datasets import load_digits

    digits = load_digits()
    for images in read_images("digits", seed=3).values():
        shown, labels = images.take(range(5)), images.take_labels(range(5))
        for image, label in zip(shown, labels, strict=True):
            (same,) = np.nonzero((digits.images == image[..., 0]).all(axis=(1, 2)))
            assert label in digits.target[same]


@pytest.mark.slow
def test_a_sparse_transformer_scores_the_same_tokens(tmp_path):
    """Bits per dimension are those of the values 0 .. 16 as the ids 1 .. 17 after the start 18."""
    run = new_run(tmp_path, "--model", "sparse_transformer", "--pattern", "strided")
    values = run.splits["test"].take(range(11)).reshape(11, 64).astype("int32")
    ids = np.concatenate([np.full((11, 1), 18), values[:, :-1] + 1], axis=1)
    logits = np.asarray(run.model({"token_ids": ids}), "float64")
    losses = (
        np.log(np.exp(logits).sum(axis=-1))
        - np.take_along_axis(logits, values[..., None] + 1, axis=-1)[..., 0]
    )
    assert logits.shape[-1] == 19
    assert run.evaluate()["test"]["value"] == pytest.approx(losses.mean() / math.log(2), abs=1e-5)
    # A token does not attend to the middle of a row above.
    changed = ids.copy()
    changed[:, 8 + 3] = changed[:, 8 + 3] % 17 + 1
    moved = np.abs(np.asarray(run.model({"token_ids": changed}), "float64") - logits).max(axis=-1)
    assert (moved[:, :11] == 0).all() and (moved[:, 11] > 0).all()
    assert (moved[:, 63] == 0).all()


def test_each_pattern_has_the_sizes_that_are_asked_for():
    def pattern(*options):
        options = parse(*SMALL, *options)
        return build(options, DATASETS[options.dataset]).depth.blocks[0].attention.pattern

    assert pattern() == patterns.BlockLocal1D(16, 16)
    assert pattern("--pattern", "fixed") == patterns.Fixed(8, 2)
    assert pattern("--pattern", "dense") == patterns.Causal()
    made = pattern("--pattern", "block_local_2d", "--query-shape", "4", "2", "--flange", "1", "3")
    assert made == patterns.BlockLocal2D((8, 8), (4, 2), (1, 3))


def test_a_pass_reads_each_image_once():
    images = Images(np.arange(7, dtype="uint8").reshape(7, 1, 1, 1), np.array([3, 5, 0, 6, 1]))
    read = {}
    for start in (0, 3):
        batches = ShuffledBatches(
            images, batch_size=2, steps=3, seed=4, encode=lambda x, _: x.ravel()
        )
        for epoch in range(start, 5):
            numbers = [int(x) for index in range(len(batches)) for x in batches.batch(epoch, index)]
            read.setdefault(epoch, []).append(numbers)
    assert all(again == first for first, *others in read.values() for again in others)
    stream = [x for epoch in range(5) for x in read[epoch][0]]
    passes = [stream[i : i + 5] for i in range(0, 30, 5)]
    assert all(sorted(one) == [0, 1, 3, 5, 6] for one in passes)
    assert len(set(map(tuple, passes))) > 1


def records(random, number):
    """Images, and the bytes of CIFAR-10's binary version: a label, and channel after channel."""
    images = random.integers(0, 256, (number, 32, 32, 3), "uint8")
    rows = [
        bytes([number % 10]) + b"".join(image[:, :, c].tobytes() for c in range(3))
        for number, image in enumerate(images)
    ]
    return images, b"".join(rows)


@pytest.fixture
def cifar10(tmp_path):
    """A directory with a few images, and these by file."""
    directory, random, images = tmp_path / "cifar10", np.random.default_rng(0), {}
    directory.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        images[name], content = records(random, 4)
        (directory / f"{name}.bin").write_bytes(content)
    return directory, images


def rows_of(images):
    return sorted(image.tobytes() for image in images)


def test_cifar10_is_read_and_split(cifar10):
    directory, images = cifar10
    splits = read_images("cifar10", directory, seed=1)
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 18, "valid": 2, "test": 4,
    }  # fmt: skip
    np.testing.assert_array_equal(splits["test"].take(range(4)), images["test_batch"])
    learned = [*splits["train"].take(range(18)), *splits["valid"].take(range(2))]
    written = np.concatenate([images[f"data_batch_{i}"] for i in range(1, 6)])
    assert rows_of(learned) == rows_of(written)
    again, other = (read_images("cifar10", directory, seed)["valid"] for seed in (1, 2))
    assert rows_of(splits["valid"].take(range(2))) == rows_of(again.take(range(2)))
    assert rows_of(again.take(range(2))) != rows_of(other.take(range(2)))


@pytest.mark.parametrize("layout", ["npy", "npz of planes"])
def test_imagenet32_is_read_from_either_layout(tmp_path, layout):
    images = np.random.default_rng(0).integers(0, 256, (14, 32, 32, 3), "uint8")
    parts = {"train_data_batch_1": images[:6], "train_data_batch_2": images[6:11]}
    for name, part in {**parts, "val_data": images[11:]}.items():
        if layout == "npy":
            np.save(tmp_path / f"{name}.npy", part)
        else:
            planes = part.transpose(0, 3, 1, 2).reshape(-1, 3072)
            np.savez(tmp_path / f"{name}.npz", labels=np.arange(len(part)), data=planes)
    splits = read_images("imagenet32", tmp_path)
    np.testing.assert_array_equal(splits["test"].take(range(3)), images[11:])
    learned = [*splits["train"].take(range(10)), *splits["valid"].take(range(1))]
    assert rows_of(learned) == rows_of(images[:11])


def fails(capsys, out, *options):
    error = error_of(capsys, "image", "--out", out, *SMALL, *options)
    assert not out.exists()
    return error


def test_bad_files_of_cifar10_are_reported(capsys, cifar10, tmp_path):
    (directory, _), out = cifar10, tmp_path / "out"

    def said():
        return fails(capsys, out, "--dataset", "cifar10", "--data-dir", str(directory))

    whole = (directory / "test_batch.bin").read_bytes()
    (directory / "test_batch.bin").write_bytes(whole[:-1])
    assert "test_batch.bin must have 3073 bytes for each image" in said()
    (directory / "test_batch.bin").write_bytes(whole[1:] + b"0")
    assert "test_batch.bin must have labels up to 9" in said()
    (directory / "test_batch.bin").write_bytes(b"")
    assert "test_batch.bin is empty" in said()
    (directory / "test_batch.bin").unlink()
    assert "There is no file test_batch.bin, with or without .gz or .zst, in" in said()
    (directory / "data_batch_1").write_bytes(b"a pickle")
    assert "Python version, whose pickles are not read" in said()
    directory = tmp_path / "nowhere"
    assert "no such directory" in said()


def test_bad_files_of_imagenet32_are_reported(capsys, tmp_path):
    directory, out = tmp_path / "imagenet32", tmp_path / "out"

    def said():
        return fails(capsys, out, "--dataset", "imagenet32", "--data-dir", str(directory))

    assert "no such directory" in said()
    directory.mkdir()
    assert "There is no file train*.npy or train*.npz" in said()
    path, images = directory / "train.npy", np.zeros((2, 32, 32, 3), "uint8")
    np.save(path, images)
    assert "There is no file val*.npy" in said()
    np.save(directory / "val.npy", images)
    for wrong in (images[:0], images.astype("float32"), images[:, :8], images[0, 0, 0, 0]):
        np.save(path, wrong)
        assert "train.npy must have an array of uint8 of shape (images, 32, 32, 3)" in said()
    np.save(path, images)
    assert "A tenth of the images to train on must be held out. Received: 2 in" in said()
    path.write_bytes(path.read_bytes()[:-1])
    assert "train.npy is not a complete .npy or .npz file" in said()
    path.unlink()
    np.savez_compressed(directory / "train.npz", data=images)
    content = bytearray((directory / "train.npz").read_bytes())
    content[90] ^= 255  # inside what is compressed
    (directory / "train.npz").write_bytes(content)
    assert "train.npz is not a complete .npy or .npz file" in said()


def test_a_missing_scikit_learn_is_reported(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert "pip install 'keras_attn[recipes]'" in fails(capsys, tmp_path / "out")


@pytest.mark.parametrize(
    "options, said",
    [
        (("--num-heads", "4"), "--num-heads must divide --hidden-dim"),
        (("--dataset", "cifar10"), "--data-dir is where the files of cifar10"),
        (("--data-dir", "x"), "--data-dir is where the files of cifar10"),
        (("--model", "super_resolution_transformer", "--factor", "3"), "--factor must divide"),
        (("--factor", "1"), "--factor must be at least 2"),
        (("--model", "super_resolution_transformer", "--likelihood", "logistics"), "is for image"),
        (("--pattern", "lsh"), "invalid choice: 'lsh'"),
        (("--preset", "gtrxl"), "--preset must be one of sparse_transformer_cifar10"),
        (
            ("--preset", "sparse_transformer_cifar10", "--model", "image_transformer"),
            "--preset must be one of the model's",
        ),
        (("--model", "vit", "--patch-size", "3"), "--patch-size must divide the images, (8, 8)."),
        (("--model", "vit", "--pattern", "strided"), "--likelihood and --pattern are for models"),
        (("--with", "colour=1"), "--with must name an argument of image_transformer"),
        (("--pattern", "fixed", "--summary", "9"), "`summary` must be at most `stride`"),
        (("--likelihood", "logistics", "--temperature", "2"), "--temperature is for"),
        (("--model", "sparse_transformer", "--likelihood", "logistics"), "--likelihood logistics"),
        (("--model", "sparse_transformer", "--pattern", "block_local_1d"), "--pattern must be"),
    ],
)
def test_bad_options_are_reported(capsys, tmp_path, options, said):
    assert said in fails(capsys, tmp_path / "out", *options)


def test_a_preset_sets_model_sizes_and_pattern():
    files = ("--dataset", "cifar10", "--data-dir", "x")
    options = parse(*files, "--preset", "image_transformer_2d", "--num-layers", "2")
    assert (options.pattern, options.num_layers, options.num_heads) == ("block_local_2d", 2, 16)
    assert (options.query_shape, options.flange, options.more) == ((8, 16), (0, 32), ())
    options = parse(*files, "--preset", "image_transformer_cifar10_logistics")
    assert (options.likelihood, options.num_mixtures) == ("logistics", 10)
    assert (options.pattern, options.block_length, options.more) == (
        "block_local_1d", 256, ("key_dim=64",),
    )  # fmt: skip
    options = parse(*files, "--preset", "sparse_transformer_cifar10", "--with", "key_dim=32")
    assert (options.pattern, options.stride, options.dropout) == ("strided", 96, 0.25)
    assert options.more == ("key_dim=64", "key_dim=32")


def test_images_are_arranged_side_by_side():
    picture = image_grid(np.array([0, 16, 8]).reshape(3, 1, 1, 1), 17)
    size = 2 * 48 + 3 * GAP
    assert picture.shape == (size, size, 3)
    assert (picture[GAP, GAP] == 0).all() and (picture[GAP, 2 * GAP + 48] == 255).all()
    assert (picture[2 * GAP + 48, GAP] == 128).all() and (picture[0] == 128).all()


def test_a_run_resumes_with_the_same_images_of_any_directory(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), "uint8")
    options = ("--dataset", "imagenet32", "--data-dir")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "train.npy", images)
        np.save(tmp_path / name / "val.npy", images[:3])
    new_run(tmp_path / "out", *options, tmp_path / "here").save_settings()
    new_run(tmp_path / "out", *options, tmp_path / "there")
    images[19, 31, 31, 2] ^= 1
    np.save(tmp_path / "there" / "train.npy", images)
    with pytest.raises(ValueError, match="The data have changed since the run"):
        new_run(tmp_path / "out", *options, tmp_path / "there")
