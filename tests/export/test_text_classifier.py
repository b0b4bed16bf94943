"""Signatures of classifiers of texts: labels, values and features."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, text
from keras_attn.models import Classifier, bert, vit

TOKENIZER = text.Characters("abcde")
LABELS = ["first", "zweites", "третий"]


@pytest.fixture(scope="module")
def parts():
    return bert(11, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=7, max_length=5)


def classifier(parts, num_classes, pooling="mean", **options):
    model = Classifier(
        parts.embedding,
        parts.encoder,
        num_classes,
        position=parts.position,
        pooling=pooling,
        segment=parts.segment,
        norm=parts.norm,
        **options,
    )
    oracles.scramble(model)
    return model


@pytest.mark.slow
def test_a_text_gets_the_label_of_its_highest_probability(parts):
    model = classifier(parts, 3)
    module = export.TextClassifier(model, TOKENIZER, LABELS)
    texts = ["a", "bcd", "eeeeeeeee", ""]
    outputs = module.text(texts)
    assert [label.decode() for label in outputs["labels"][1].numpy()] == LABELS
    for row, sentence in enumerate(texts):
        (ids,) = TOKENIZER.encode_as_lists([sentence])
        ids = np.append(ids[:4], 3)[None]  # five positions
        logits = np.asarray(model({"token_ids": ids}))[0].astype("float64")
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(outputs["probabilities"][row], expected, atol=1e-5)
        assert outputs["label"][row].numpy().decode() == LABELS[logits.argmax()]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_texts_end_at_their_lengths_where_each_id_is_a_token(pooling):
    parts = bert(11, 1, 2, 6, 7, max_length=7, pad_id=None)
    model = classifier(parts, 3, pooling)
    module = export.TextClassifier(model, TOKENIZER)
    texts = ["abc", "e", "dd"]
    probabilities = module.text(texts)["probabilities"]
    ids, lengths = TOKENIZER.encode(texts)
    by_ids = export.ClassPredictor(model).classify(ids, lengths)["probabilities"]
    np.testing.assert_allclose(by_ids, probabilities, atol=1e-6)
    for row, length in enumerate(lengths):
        alone = np.asarray(model(ids[row : row + 1, :length]))[0]
        expected = np.exp(alone) / np.exp(alone).sum()
        np.testing.assert_allclose(probabilities[row], expected, atol=1e-6)


@pytest.mark.slow
def test_a_pair_is_read_with_its_segments(parts):
    model = classifier(parts, 3)
    tokenizer = text.Characters("abcde")
    tokenizer.template = text.Template(middle=(3,), end=(3,), second_segment=1)
    module = export.TextClassifier(model, tokenizer, LABELS)
    probabilities = module.pair(["a"], ["b"])["probabilities"]
    ids = {"token_ids": np.array([[4, 3, 5, 3]]), "segment_ids": np.array([[0, 0, 1, 1]])}
    logits = np.asarray(model(ids))
    np.testing.assert_allclose(probabilities, np.exp(logits) / np.exp(logits).sum(), atol=1e-5)
    single = np.asarray(model({"token_ids": ids["token_ids"]}))
    assert np.abs(single - logits).max() > 1e-3


@pytest.mark.slow
def test_one_class_is_a_value_and_no_class_gives_features(parts):
    model = classifier(parts, 1)
    module = export.TextClassifier(model, TOKENIZER)
    assert set(module.signatures) == {"regress", "regress_pair", "ids", "serving_default"}
    outputs = module.text(["ab"])
    expected = np.asarray(model({"token_ids": np.array([[4, 5, 3]])}))[:, 0]
    np.testing.assert_allclose(outputs["value"], expected, atol=1e-6)
    model = classifier(parts, None)
    module = export.TextClassifier(model, TOKENIZER)
    features = module.text(["ab"])["features"]
    np.testing.assert_allclose(features, model(np.array([[4, 5, 3]])), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [1, 3])
def test_several_labels_have_a_probability_each(parts, num_classes, tmp_path):
    model = classifier(parts, num_classes, multi_label=True)
    names = LABELS[:num_classes]
    path = export.saved_model(model, tmp_path, tokenizer=TOKENIZER, labels=names)
    signatures = tf.saved_model.load(path).signatures
    outputs = signatures["classify"](tf.constant(["ab"]))
    assert outputs.keys() == {"probabilities", "labels"}
    assert [x.decode() for x in outputs["labels"][0].numpy()] == names
    logits = np.asarray(model({"token_ids": np.array([[4, 5, 3]])}), "float64")
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    ids = {"token_ids": tf.constant([[4, 5, 3]]), "lengths": tf.constant([3])}
    np.testing.assert_allclose(signatures["ids"](**ids)["probabilities"], expected, atol=1e-6)


@pytest.mark.slow
def test_batches_without_rows_and_texts_without_tokens_are_answered(parts):
    model = classifier(parts, 3, pooling="first")
    module = export.TextClassifier(model, TOKENIZER, LABELS)
    outputs = module.text(tf.zeros([0], tf.string))
    shapes = {"label": (0,), "probabilities": (0, 3), "labels": (0, 3)}
    assert {name: tuple(x.shape) for name, x in outputs.items()} == shapes
    outputs = module.classify(np.zeros((1, 0), "int32"), np.array([0]))
    bias = np.asarray(model.head.bias, "float64")
    np.testing.assert_allclose(outputs["probabilities"][0], np.exp(bias) / np.exp(bias).sum(), 1e-5)


def test_rows_that_the_model_cannot_read_are_refused(parts, assert_ids_are_checked):
    module = export.TextClassifier(classifier(parts, 3), TOKENIZER, LABELS)
    request = {"token_ids": [[5, 7], [8, 4]], "lengths": [2, 2]}
    assert_ids_are_checked(module.classify, 11, request)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 5 ids.*positions.*6"):
        module.classify(np.ones((1, 6), "int32"), [6])


def test_labels_and_tokenizers_that_do_not_fit_are_refused(parts, tmp_path):
    model = classifier(parts, 3)
    with pytest.raises(ValueError, match="list of 3 strings.*Received: labels=\\['a', 'b'\\]"):
        export.TextClassifier(model, TOKENIZER, ["a", "b"])
    with pytest.raises(ValueError, match="`tokenizer` must be one of at most 11 ids"):
        export.TextClassifier(model, text.Characters("abcdefgh"), LABELS)
    with pytest.raises(ValueError, match="`labels` must be None, but for classes of texts"):
        export.saved_model(model, tmp_path, labels=LABELS)
    images = vit(3, (4, 4, 1), 2, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16)
    with pytest.raises(ValueError, match="classifier.*without a `tokenizer`"):
        export.saved_model(images, tmp_path, tokenizer=TOKENIZER)
