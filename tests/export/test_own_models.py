"""Keras models of one's own, from text to what they compute: exports, kinds and refusals."""

import json
import subprocess
import sys

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from fork_server import ROOT
from keras import layers, ops
from scripted_model import ScriptedModel
from small_tokenizers import HARD_TEXTS, MAKERS, tokenizer_of

import keras_attn
from keras_attn import export, text
from keras_attn.export import TextModel
from keras_attn.export.checks import check_labels
from keras_attn.export.signatures.model_functions import ExportOptions
from keras_attn.export.signatures.model_reader import ModelReader
from keras_attn.export.signatures.selection import functions_of
from keras_attn.export.signatures.text_generator import TokenGenerator
from keras_attn.export.signatures.text_model import ModelOutput

TOKENIZER = text.Characters("abcdefg")
V = TOKENIZER.vocabulary_size
TEXTS = ["abc", "a", "gfedcba abx", "ab", ""]
LABELS = ["first", "zweites", "третий"]
FIXED = 7


def token_ids(name=None, length=None, dtype="int32"):
    return keras.Input((length,), dtype=dtype, name=name)


def block():
    attention = keras_attn.layers.MultiHeadAttention(2, 3)
    feed_forward = keras_attn.feed_forward.FeedForward(7)
    return keras_attn.layers.TransformerBlock(attention, feed_forward, residual="pre_norm")


def mean(x, mask):
    """The mean of the positions where a mask is True."""
    weights = ops.expand_dims(ops.cast(mask, "float32"), 2)
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1)


def masked(width=5):
    """An input of ids, and its embeddings with a mask."""
    ids = token_ids()
    return ids, layers.Embedding(V, width, mask_zero=True)(ids)


def our_layers():
    ids = token_ids("words")
    x = block()(keras_attn.layers.TokenEmbedding(V, 6)(ids))
    x = layers.Dropout(0.5)(layers.GlobalAveragePooling1D()(x))
    return keras.Model(ids, layers.Dense(3, activation="softmax")(x))


def sequential():
    model = keras.Sequential(
        [
            layers.Embedding(V, 5, mask_zero=True),
            layers.LSTM(3),
            layers.Dropout(0.5),
            layers.Dense(3),
        ]
    )
    model(np.array([[1, 2]]))
    return model


def sigmoid():
    ids, x = masked(6)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 3)(x, x)]))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(1, activation="sigmoid")(x))


def masks_and_segments():
    inputs = {
        "segment_ids": token_ids("segment_ids"),
        "padding_mask": token_ids("padding_mask", dtype="bool"),
        "token_ids": token_ids("token_ids"),
    }
    x = layers.Embedding(V, 6)(inputs["token_ids"]) + layers.Embedding(2, 6)(inputs["segment_ids"])
    x = keras_attn.layers.MultiHeadAttention(2, 3)(x, x, key_mask=inputs["padding_mask"])
    return keras.Model(inputs, layers.Dense(3)(mean(x, inputs["padding_mask"])))


def two_outputs():
    ids, x = masked()
    tags = layers.Dense(3, activation="softmax")(x)
    stars = layers.Dense(1)(layers.GlobalAveragePooling1D()(x))
    return keras.Model(ids, {"slots": tags, "stars": stars})


def tags():
    ids, x = masked()
    return keras.Model(ids, layers.Dense(3)(layers.MultiHeadAttention(1, 3)(x, x)))


def number():
    ids = token_ids(dtype="float32")  # the default of `keras.Input`
    x = layers.Embedding(V, 5, mask_zero=True)(ids)
    return keras.Model(ids, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))


def vector():
    ids, x = masked()
    lengths = keras.Input((), dtype="int32", name="lengths")
    x = layers.GlobalAveragePooling1D()(x) * ops.cast(ops.expand_dims(lengths, 1), "float32")
    return keras.Model([lengths, ids], layers.UnitNormalization()(x))


@keras.saving.register_keras_serializable("tests")
class OneArgument(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._embedding = layers.Embedding(V, 6, mask_zero=True)
        self.block, self.pool = block(), layers.GlobalAveragePooling1D()
        self.drop, self.head = layers.Dropout(0.5), layers.Dense(3, activation="softmax")

    def call(self, x, training=None):
        x = self.pool(self.block(self._embedding(x)))
        return self.head(self.drop(x, training=training))


class Dictionary(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = layers.Embedding(V, 5), layers.Dense(3)

    def call(self, inputs):
        return {"logits": self.head(mean(self.embedding(inputs["input_ids"]), inputs["mask"]))}


class TwoArguments(Dictionary):
    def call(self, words, padding_mask=None):
        return super().call({"input_ids": words, "mask": padding_mask})["logits"]


class InnerActivation(layers.Layer):
    """Its attribute is that of a part, not of the outputs."""

    activation = staticmethod(keras.activations.linear)

    def call(self, x):
        return ops.softmax(self.activation(x))


def subclassed():
    model = OneArgument()
    model(np.array([[1, 2]]))
    return model


def subclassed_dict():
    model = Dictionary()
    model({"input_ids": np.array([[1, 2]]), "mask": np.array([[True, True]])})
    return model


def subclassed_arguments():
    model = TwoArguments()
    model(np.array([[1, 2]]), padding_mask=np.array([[True, True]]))
    return model


def fixed_length():
    ids = token_ids(length=FIXED)
    x = layers.Flatten()(layers.Embedding(V, 5)(ids))
    return keras.Model(ids, layers.Dense(3)(x))


def unmasked():
    ids = token_ids()
    x = layers.GlobalAveragePooling1D()(layers.Embedding(V, 5)(ids))
    return keras.Model(ids, layers.Dense(3)(x))


CLASSES = {"labels": LABELS}
TAGGERS = ("tags", "two_outputs")
SERVED = ("sequential", "two_outputs", "number", "vector")  # one of each kind of outputs
# The builder, the arguments of `saved_model`, and how Keras calls the model with one row of ids.
MODELS = {
    "our_layers": (our_layers, CLASSES, None),
    "sequential": (sequential, CLASSES, None),
    "sigmoid": (sigmoid, {"labels": ["no", "yes"]}, None),
    "masks_and_segments": (
        masks_and_segments,
        CLASSES,
        lambda ids: {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids == ids},
    ),
    "two_outputs": (two_outputs, {"labels": {"slots": LABELS}}, None),
    "tags": (tags, CLASSES, None),
    "number": (number, {}, None),
    "vector": (vector, {}, lambda ids: [np.array([ids.shape[1]]), ids]),
    "subclassed": (subclassed, CLASSES, None),
    "subclassed_dict": (
        subclassed_dict,
        CLASSES,
        lambda ids: {"input_ids": ids, "mask": ids == ids},
    ),
    "fixed_length": (
        fixed_length,
        {"kind": "classify"},
        lambda ids: np.pad(ids[:, :FIXED], [(0, 0), (0, max(0, FIXED - ids.shape[1]))]),
    ),
}


def build(name):
    model, *rest = MODELS[name]
    keras.utils.set_random_seed(7)
    model = model()
    oracles.scramble(model, scale=0.7)
    return model, *rest


def softmax(logits):
    logits = np.asarray(logits, "float64")
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def expected_outputs(name, model, call, text):
    """The numbers of one text, of a call of the model with its row alone."""
    words = text.split()
    if name in TAGGERS:  # a tagger reads each word with a space before it
        text = "".join(f" {word}" for word in words)
    first = np.cumsum([0, *(1 + len(word) for word in words)])[:-1].astype(int)
    (ids,) = TOKENIZER.encode_as_lists([text])
    ids = np.append(ids, TOKENIZER.eos_id)[None]
    if name == "fixed_length" and ids.shape[1] > FIXED:
        ids = np.append(ids[:, : FIXED - 1], [[TOKENIZER.eos_id]], axis=1)
    outputs = model(ids if call is None else call(ids))
    outputs = keras.tree.map_structure(lambda x: np.asarray(x)[0], outputs)
    if name == "two_outputs":
        tagged = outputs["slots"][first].max(axis=-1)
        return {"stars_value": outputs["stars"][0], "slots_probabilities": tagged}
    if name == "tags":
        return {"probabilities": softmax(outputs)[first].max(axis=-1)}
    if name == "number":
        return {"value": outputs[0]}
    if name == "vector":
        return {"features": outputs}
    if name == "sigmoid":
        return {"probabilities": np.append(1 - outputs, outputs)}
    if name in ("our_layers", "subclassed"):
        return {"probabilities": outputs}
    return {"probabilities": softmax(outputs["logits"] if name == "subclassed_dict" else outputs)}


def assert_outputs_are_those_of_texts(name, outputs, expected, labels):
    """Rows of tags end in empty words, and each text has the label of its probability."""
    for row, wanted in enumerate(expected):
        for key, value in wanted.items():
            output = np.asarray(outputs[key][row])
            if key.endswith("probabilities") and name in TAGGERS:
                assert not output[len(value) :].any()
                output = output[: len(value)]
            np.testing.assert_allclose(output, value, atol=1e-5, err_msg=f"{name}: {key}")
            if key == "probabilities" and name not in TAGGERS:
                assert outputs["label"][row].decode() == labels[np.argmax(value)]


READ = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
folder, names, texts = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
assert "keras_attn" not in sys.modules
answers = {}
for name in names:
    loaded = tf.saved_model.load(f"{folder}/{name}/1")
    serve = loaded.signatures["serving_default"]
    for i, request in enumerate([texts, *([text] for text in texts)]):
        for key, x in serve(text=tf.constant(request)).items():
            x = x.numpy()
            answers[f"{name}/{i}/{key}"] = x.astype("S99") if x.dtype == object else x
np.savez(f"{folder}/answers.npz", **answers)
loaded = tf.saved_model.load(f"{folder}/tokenizers")
np.savez(f"{folder}/ids.npz", **loaded.serve(tf.constant(json.loads(sys.argv[4]))))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pads with the id")
def test_exports_answer_as_the_models_alone_in_batches_and_on_the_server(tmp_path):
    """In a process with TensorFlow and TensorFlow Text only; some also in the embedded server.

    The process also reads Keras's own export of a model whose layers are tokenizers.
    """
    from serving.predict import predict
    from serving.servable import Servable, warm_up

    expected = {}
    for name in MODELS:
        model, options, call = build(name)
        path = export.saved_model(
            model, tmp_path / name, tokenizer=TOKENIZER, max_source_length=16, **options
        )
        expected[name] = [expected_outputs(name, model, call, text) for text in TEXTS]
        if name in SERVED:
            servable = Servable(name, 1, path)
            warm_up(servable, path)  # compares the recorded outputs
            outputs = predict(servable, "serving_default", {"text": np.array(TEXTS, object)})
            labels = options.get("labels", "012")
            assert_outputs_are_those_of_texts(name, outputs, expected[name], labels)
            servable.close()
    strings = keras.Input((), dtype="string")
    tokenizers = {name.replace(" ", "_"): tokenizer_of(name) for name in MAKERS}
    ids = {name: tokenizer(strings, max_length=11) for name, tokenizer in tokenizers.items()}
    keras.Model(strings, ids).export(tmp_path / "tokenizers", verbose=False)
    arguments = [str(tmp_path), *map(json.dumps, ([*MODELS], TEXTS, HARD_TEXTS))]
    command = [sys.executable, "-c", READ, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "answers.npz") as answers:
        for name, (_, options, _) in MODELS.items():
            labels = options.get("labels", "012")
            for i in range(1 + len(TEXTS)):
                prefix = f"{name}/{i}/"
                outputs = {k[len(prefix) :]: x for k, x in answers.items() if k.startswith(prefix)}
                wanted = expected[name] if i == 0 else [expected[name][i - 1]]
                assert_outputs_are_those_of_texts(name, outputs, wanted, labels)
    with np.load(tmp_path / "ids.npz") as ids:
        for name, tokenizer in tokenizers.items():
            np.testing.assert_array_equal(ids[name], tokenizer.encode(HARD_TEXTS, 11)[0])
    assert set(export.inspect(tmp_path / "number").outcomes.values()) == {"same"}


def refuses(model, message, tokenizer=TOKENIZER, **options):
    with pytest.raises(ValueError, match=message):
        TextModel(model, tokenizer, **{"max_length": 9, **options})


@pytest.fixture(scope="module")
def logits():
    ids, x = masked()
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(3)(x))


@pytest.fixture(scope="module")
def per_token():
    ids, x = masked()
    return keras.Model(ids, layers.Dense(3)(x))


def test_the_kind_is_that_of_the_outputs(logits, per_token):
    def kind_of(outputs, **options):
        model = keras.Model(logits.input, outputs)
        (example,) = ModelReader(model, None, TOKENIZER).examples.values()
        return ModelOutput(model, None, example, **options).kind

    pooled = logits.layers[-1].input
    several = ops.sigmoid(logits.output)  # a text may have several of the classes
    assert kind_of(several) == "embed"
    assert kind_of(several, labels=LABELS, kind="classify") == "classify"
    with pytest.raises(ValueError, match="several classes at once.*Received: labels=.*of 3 num"):
        kind_of(several, labels=LABELS)
    assert kind_of(logits.output, labels=LABELS) == "classify"
    assert kind_of(logits.output) == "embed"
    assert kind_of(logits.output, kind="classify") == "classify"
    assert kind_of(ops.softmax(logits.output)) == "classify"
    assert kind_of(ops.cast(layers.Softmax()(logits.output), "float32")) == "classify"
    assert kind_of(pooled) == "embed"
    one = layers.Dense(1)(pooled)
    assert kind_of(one) == kind_of(one[:, 0]) == "regress"
    assert kind_of(one, kind="embed") == "embed"
    assert kind_of(one, labels=["no", "yes"]) == "classify"
    both = keras.Model(logits.input, [one, pooled])
    assert TextModel(both, TOKENIZER, max_length=9).kind == "predict"
    assert TextModel(per_token, TOKENIZER, LABELS, 9).kind == "tag"
    refuses(per_token, r"the shape \(batch, length, 3\): give the `labels` of its words")


def test_probabilities_are_not_changed_again(logits):
    """Those of a softmax or sigmoid, also where a layer follows it, or as `from_logits` says."""
    ids, lengths = np.array([[4, 9, 6, 3]]), [4]
    scores = np.asarray(logits(ids))
    outputs = {
        "softmax": layers.Activation("softmax")(logits.output),
        "cast": ops.cast(ops.softmax(logits.output), "float32"),
        "inner": keras.Sequential([layers.Dense(3, activation="softmax")])(logits.output),
        "sigmoid": ops.sigmoid(logits.output),
        "logits": logits.output,
        "last": layers.Activation("linear", dtype="float32")(layers.Softmax()(logits.output)),
    }
    model = keras.Model(logits.input, outputs)
    kinds = dict.fromkeys(outputs, "classify")
    functions = TextModel(model, TOKENIZER, kind=kinds, max_length=9)
    answers, raw = functions.ids(ids, lengths), model(ids)
    for name in ("softmax", "cast", "inner", "sigmoid", "last"):
        np.testing.assert_allclose(answers[f"{name}_probabilities"], raw[name], atol=1e-6)
    np.testing.assert_allclose(answers["logits_probabilities"], softmax(scores), atol=1e-6)
    model = keras.Model(logits.input, InnerActivation()(logits.output))
    outputs = TextModel(model, TOKENIZER, max_length=9).ids(ids, lengths)
    np.testing.assert_allclose(outputs["probabilities"], model(ids), atol=1e-6)
    halves = keras.Model(logits.input, 0.5 + 0.1 * ops.tanh(logits.output))
    refuses(halves, "logits or probabilities: give `from_logits`", labels=LABELS)
    for from_logits, expected in ((False, halves(ids)), (True, softmax(halves(ids)))):
        functions = TextModel(halves, TOKENIZER, LABELS, 9, from_logits=from_logits)
        probabilities = functions.ids(ids, lengths)["probabilities"]
        np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_inputs_are_known_by_name_by_shape_or_by_the_argument():
    def roles_of(model, names=None):
        return {role: each.name for role, each in ModelReader(model, names).roles.items()}

    words, mask = token_ids("words"), token_ids("real", dtype="bool")
    model = keras.Model([mask, words], mean(layers.Embedding(V, 5)(words), mask))
    assert roles_of(model) == {"token_ids": "words", "padding_mask": "real"}
    other = token_ids("other")
    x = layers.Embedding(V, 5, mask_zero=True)(words), layers.Embedding(2, 5)(other)
    x = layers.GlobalAveragePooling1D()(layers.Add()(x), mask=ops.not_equal(words, 0))
    model = keras.Model({"words": words, "other": other}, x)
    refuses(model, r"`inputs` must name.*Received: inputs=None.*'other' of shape \(None, None\)")
    names = {"token_ids": "words", "segment_ids": "other"}
    assert roles_of(model, names) == names
    refuses(model, "a dict with values among 'other', 'words'", inputs={"token_ids": "x"})
    refuses(model, "a dict with keys among 'token_ids'", inputs={"word": "words"})
    refuses(model, "`inputs` must name", inputs={"token_ids": "words"})
    for dtype, shape in (("float32", ()), ("int32", ()), ("bool", (1,))):
        year = keras.Input(shape, name="year", dtype=dtype)
        model = keras.Model([token_ids("words"), year], ops.cast(year, "float32"))
        with pytest.raises(ValueError, match="`inputs` must name.*'year' of shape"):
            ModelReader(model)
    model = subclassed_arguments()
    names = {"token_ids": "words", "padding_mask": "padding_mask"}
    refuses(model, "`inputs` must name.*a model of 'words', 'padding_mask'")
    assert roles_of(model, names) == names
    functions = TextModel(model, TOKENIZER, LABELS, 9, inputs=names)
    expected = softmax(model(np.array([[4, 5]]), np.array([[True, True]])))
    ids = functions.ids([[4, 5, 6], [4, 7, 8]], [2, 1])["probabilities"]
    np.testing.assert_allclose(ids[:1], expected, atol=1e-6)


def test_ids_of_the_model_are_checked(logits, per_token, assert_ids_are_checked):
    functions = TextModel(logits, TOKENIZER, LABELS, 9)
    assert_ids_are_checked(functions.ids, V, {"token_ids": [[5, 7], [8, 4]], "lengths": [2, 2]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 9 ids.*10"):
        functions.ids(np.ones((1, 10), "int32"), [10])
    tags = TextModel(per_token, None, max_length=9, kind="tag")
    assert set(tags.signatures) == {"tag", "serving_default"}
    outputs = tags.ids([[5, 7, 8], [8, 0, 0]], [3, 1])
    assert outputs["class"].shape == (2, 3)
    assert not outputs["probabilities"][1, 1:].numpy().any()


def test_a_pair_is_read_with_its_segments():
    tokenizer = text.Characters("abcdefg")
    tokenizer.template = text.Template(middle=(3,), end=(3,), second_segment=1)
    model, *_ = build("masks_and_segments")
    functions = TextModel(model, tokenizer, LABELS, 9)
    assert "classify_pair" in functions.signatures
    outputs = functions.pair(["a", "abc"], ["b", "cbagd"])  # the second has a longer row
    ids, segments = np.array([[4, 3, 5, 3]]), np.array([[0, 0, 1, 1]])
    inputs = {"token_ids": ids, "segment_ids": segments, "padding_mask": ids > 0}
    np.testing.assert_allclose(outputs["probabilities"][:1], softmax(model(inputs)), atol=1e-6)


def test_the_padding_of_a_tokenizer_may_not_be_0():
    """`mask_zero` masks the id 0 whatever the tokenizer pads with; the error says what to write."""
    tokenizer = text.Characters("abcdefg")
    tokenizer.pad_id = 3
    ids, x = masked()
    model = keras.Model(ids, layers.GlobalAveragePooling1D()(x))
    refuses(model, r"pad_id=3\)`, or `mask=keras.ops.not_equal\(ids, 3\)`", tokenizer)
    mask = ops.not_equal(ids, 3)
    model = keras.Model(ids, layers.GlobalAveragePooling1D()(x, mask=mask))
    assert TextModel(model, tokenizer, max_length=9).kind == "embed"
    x = keras_attn.layers.TokenEmbedding(V, 5, pad_id=3)(ids)
    model = keras.Model(ids, layers.GlobalAveragePooling1D()(x))
    assert TextModel(model, tokenizer, max_length=9).kind == "embed"


def test_a_model_of_low_precision_is_read():
    """Padding changes how its sums are rounded, by more than the numbers of float32 allow."""
    keras.utils.set_random_seed(3)
    ids = token_ids()
    x = layers.Embedding(V, 64, mask_zero=True, dtype="mixed_float16")(ids)
    x = layers.MultiHeadAttention(4, 16, dtype="mixed_float16")(x, x)
    model = keras.Model(ids, layers.GlobalAveragePooling1D(dtype="mixed_float16")(x))
    oracles.scramble(model, scale=0.7)
    assert TextModel(model, TOKENIZER, max_length=9).kind == "embed"


def test_a_decoder_of_ones_own_generates():
    """A Keras model with what `generate` reads is no model of ids to classes."""

    class Decoder(keras.Model, ScriptedModel):
        def __init__(self):
            keras.Model.__init__(self)
            ScriptedModel.__init__(self, reads_prompt=True)

    assert isinstance(functions_of(Decoder(), ExportOptions()), TokenGenerator)


def test_a_layer_keeps_a_call_of_its_own():
    model = subclassed()

    def patched(x, call=model._embedding.call):
        return call(x)

    model._embedding.call = patched
    assert ModelReader(model).vocabulary_size == V
    assert model._embedding.call is patched


def test_words_that_are_not_utf_8_are_written_as_such(per_token):
    words = TextModel(per_token, TOKENIZER, LABELS, 9).text([b"\xff\xfe abc", b"b"])["words"]
    assert [[word.decode() for word in row] for row in words.numpy()] == [
        ["\ufffd\ufffd", "abc"],
        ["b", ""],
    ]


@pytest.mark.slow
def test_the_embedding_is_known_inside_a_function_of_tensorflow():
    class Compiled(OneArgument):
        @tf.function
        def call(self, x, training=None):
            return super().call(x, training=training)

    model = Compiled()
    model(np.array([[1, 2]]))
    assert ModelReader(model, None, TOKENIZER).vocabulary_size == V


def test_a_text_without_tokens_has_no_label(logits):
    tokenizer = text.Characters("abcdefg")
    tokenizer.template = text.Template()
    functions = TextModel(logits, tokenizer, LABELS, 9)
    outputs = functions.text(["", "ab"])
    assert outputs["label"][0] == b"" and outputs["label"][1] != b""
    assert outputs["probabilities"].numpy().sum(axis=1).round(5).tolist() == [0, 1]
    outputs = functions.text([""])
    assert outputs["probabilities"].numpy().tolist() == [[0, 0, 0]]


def test_arguments_that_do_not_fit_are_refused(logits, per_token, tmp_path):
    labels = "`labels` must be a list of 3 strings, one for each class"
    refuses(logits, labels, labels=["a", "b"])
    refuses(logits, labels, labels="abc")
    refuses(logits, labels, labels=[1, 2, 3])
    refuses(logits, labels, labels={*LABELS})
    refuses(logits, labels, labels=iter(LABELS))
    refuses(logits, labels, labels=3)
    with pytest.raises(ValueError, match=labels):
        check_labels(dict.fromkeys(LABELS), 3)
    refuses(
        logits,
        "`labels` must be None for the kind 'embed'",
        labels=LABELS,
        kind="embed",
    )
    refuses(logits, "`labels` must be a dict only for a model of several", labels={"x": LABELS})
    refuses(logits, r"`kind` must be one of 'classify', 'embed' .*shape \(batch, 3\)", kind="tag")
    refuses(per_token, "`kind` must be one of 'tag'.*Received: kind='embed'", kind="embed")
    refuses(logits, "`from_logits` must be True, False or None", from_logits="yes")
    refuses(logits, "`tokenizer` must be one of at most 11 ids", text.Characters("abcdefgh"))
    refuses(logits, "`tokenizer` must be one of `keras_attn.text`", "tokenizer.model")
    both = keras.Model(logits.input, [logits.output, logits.layers[-1].input])
    refuses(both, "`labels` must be a dict by output, of 'dense", labels=LABELS)
    with pytest.raises(ValueError, match="`model` must be .*a `keras.Model`.*Received: Dense"):
        export.saved_model(logits.layers[-1], tmp_path)
    with pytest.raises(ValueError, match="needs a `tokenizer`.*`model.export"):
        export.saved_model(logits, tmp_path, labels=LABELS)
    for name, value in {"strategy": "greedy", "stream": True, "max_source_length": 2}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            export.saved_model(logits, tmp_path, tokenizer=TOKENIZER, **{name: value})
    bert = keras_attn.models.bert(V, num_layers=1, num_heads=2, hidden_dim=6)
    with pytest.raises(ValueError, match="`kind` must be None, but for a `keras.Model` of your"):
        export.saved_model(bert, tmp_path, kind="embed")


def test_models_that_read_no_ids_or_padding_are_refused():
    refuses(
        unmasked(), r"must not depend on padding.*Embedding\(mask_zero=True\).*Received: a diff"
    )
    refuses(OneArgument(), "`model` must have its weights: call it once")
    refuses(keras.Sequential([layers.Embedding(V, 5)]), "`model` must have its weights")
    numbers = keras.Input((5,))
    refuses(keras.Model(numbers, layers.Dense(2)(numbers)), "must read token ids.*model.export")
    images = keras.Input((4, 4, 3), name="pixels")
    model = keras.Model(images, layers.Dense(2)(layers.Flatten()(images)))
    refuses(model, r"`model.export\(path\)`.*'pixels' of shape \(None, 4, 4, 3\)")
    strings = keras.Input((), dtype="string")
    model = keras.Model(strings, layers.Embedding(V, 5)(TOKENIZER(strings)))
    refuses(model, "must read token ids; Keras's `model.export.*that reads strings")
    ids = token_ids()
    x = layers.Embedding(V, 5, mask_zero=True)(ids)
    model = keras.Model(ids, layers.GlobalAveragePooling1D()(x + layers.Embedding(V, 5)(ids)))
    refuses(model, "must not depend on padding")  # a sum drops the mask
    x = layers.Embedding(V, 5, mask_zero=True)(ids)
    x = layers.GlobalAveragePooling1D()(x)
    refuses(keras.Model(ids, x - ops.mean(x, axis=0)), "must not depend on the other rows")
    ids = token_ids()
    x = layers.Embedding(V, 2)(ids)
    for pooled in (ops.max(x, axis=1), ops.mean(x[:, :4], axis=1)):  # longer texts hide padding
        refuses(keras.Model(ids, pooled), "must not depend on padding")
    pattern = keras_attn.patterns.LSH(16)  # the number of buckets changes beyond two chunks
    x = layers.Embedding(V, 6, mask_zero=True)(ids)
    x = keras_attn.layers.MultiHeadAttention(2, 3, pattern=pattern, score="shared_qk")(x, x)
    model = keras.Model(ids, layers.GlobalAveragePooling1D()(x))
    oracles.scramble(model, scale=0.7)
    refuses(model, "must not depend on padding", max_length=128)
    ids, x = masked()
    model = keras.Model(ids, ops.expand_dims(x, 3))
    refuses(model, r"must have the shape \(batch,\).*Received: shape=\(batch, 5, 5, 1\)")


def test_models_without_one_output_for_the_same_ids_are_refused():
    class Trains(OneArgument):
        def call(self, x, training=True):
            return super().call(x, training=training)

    class Flattens(Dictionary):
        def call(self, ids):
            return self.head(ops.reshape(self.embedding(ids), (-1, 5 * 2)))

    for class_, message in (
        (Trains, "`training` of `call` be None"),
        (Flattens, r"ids of shape \(1, 5\)"),
    ):
        model = class_()
        model(np.array([[1, 2]]))
        refuses(model, message)


@pytest.mark.slow
def test_a_sequential_model_of_padded_rows_reads_rows_of_that_length():
    """A row of any length is read if padding changes no output."""
    ids, lengths = np.array([[5, 7, 9, 4, 3]]), [4]
    mean = layers.GlobalAveragePooling1D()
    for layer, is_masked, most in ((layers.Flatten(), False, 6), (mean, False, 6), (mean, True, 9)):
        embedding = layers.Embedding(V, 5, mask_zero=is_masked)
        model = keras.Sequential([keras.Input((6,)), embedding, layer, layers.Dense(3)])
        functions = TextModel(model, TOKENIZER, max_length=9, kind="embed")
        assert functions.max_length == most
        expected = model(np.array([[5, 7, 9, 4, 0, 0]]))
        features = functions.ids(ids, lengths)["features"]
        np.testing.assert_allclose(features, expected, atol=1e-6)


def test_a_length_that_the_model_cannot_read_is_refused():
    class Positions(keras.Model):
        def __init__(self, count):
            super().__init__()
            self.tokens = layers.Embedding(V, 5)
            self.positions, self.head = layers.Embedding(count, 5), layers.Dense(3)

        def call(self, inputs):
            x = self.positions(ops.arange(ops.shape(inputs["token_ids"])[1]))
            return self.head(mean(self.tokens(inputs["token_ids"]) + x, inputs["padding_mask"]))

    message = (
        r"`model` must read ids of shape \(\d+, {0}\).*Received: at most {0} ids in a row, "
        r"token_ids as .*is not in \[0, {1}\)"
    )
    for count, too_long in ((6, 9), (9, 10)):
        model = Positions(count)
        model({"token_ids": np.array([[1, 2]]), "padding_mask": np.array([[True, True]])})
        refuses(model, message.format(too_long, count), max_length=too_long)
    assert TextModel(model, TOKENIZER, LABELS, 9).kind == "classify"
