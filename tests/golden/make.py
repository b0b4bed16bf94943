"""Write the golden files: models, checkpoints and exports, with the outputs that they give.

    PYTHONPATH=CHECKOUT:tests/support python tests/golden/make.py [NAME ...]

CHECKOUT is a checkout of the version whose files later versions must read; the committed files are
of version 0.2.0, the commit bd1bf8d0. A NAME is the beginning of the names of files to write, such
as `model_gpt` or `export_`; without one all are written. `weights` is the file of initial weights.
Each archive holds what the version wrote and `arrays.npz`, inputs and outputs.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import golden_models
import keras
import numpy as np
import tensorflow as tf
from golden_models import SEED, SIZES, V

from keras_attn import callbacks, depth, export, generation, layers, models, patterns, text

FILES = pathlib.Path(__file__).parent / "files"
ONE_LAYER = {**SIZES, "num_layers": 1, "dropout": 0.0}
TOKENIZER = text.Characters("abcdefg")  # V tokens with the special ones
PIECES = "[PAD] [UNK] [CLS] [SEP] un ##able able to ##s go it".split()
TEXTS = ["abc", "gfedcba", ""]
LENGTHS = {"max_length": 5, "max_source_length": 7}


def flat(prefix, tree):
    """Return arrays by names such as `output/0`, of a dict, a list or one array."""
    if isinstance(tree, dict):
        return {f"{prefix}/{name}": np.asarray(x) for name, x in tree.items()}
    return {f"{prefix}/{index}": np.asarray(x) for index, x in enumerate(keras.tree.flatten(tree))}


def write_model(model, folder, inputs):
    model.save(folder / "model.keras")
    return flat("input", inputs) | flat("output", model(inputs))


def write_builder(name):
    def write(folder):
        model = golden_models.scramble(golden_models.builder(name))
        return write_model(model, folder, golden_models.inputs_of(model))

    return write


def write_own(name):
    def write(folder):
        model = golden_models.scramble(golden_models.OWN_MODELS[name]())
        arrays = write_model(model, folder, golden_models.own_inputs())
        return arrays | {"flags": np.array(json.dumps(golden_models.flags_of(model)))}

    return write


def write_checkpoint(name):
    """Write the checkpoint of a training that ends after three of five batches of an epoch."""

    def write(folder):
        model = golden_models.TRAINED[name]()
        resume = callbacks.Resume(str(folder / "checkpoints"), every_steps=3, keep=1)
        assert resume.restore(model) == (0, 0)
        stop = keras.callbacks.LambdaCallback(on_train_batch_end=stop_after(3))
        try:
            fit(model, [resume, stop])
        except Stopped:
            resume.on_train_end()
        resume = callbacks.Resume(str(folder / "checkpoints"))
        assert resume.restore(model) == (0, 3)
        arrays = flat("restored", golden_models.state_of(model))
        logs = fit(model, [], first=3).history
        return arrays | flat("trained", golden_models.state_of(model)) | flat("logs", logs)

    return write


class Stopped(Exception):
    """The training ends here; Keras takes `StopIteration` for the end of the data."""


def stop_after(batches):
    def stop(batch, logs):
        if batch + 1 == batches:
            raise Stopped

    return stop


def fit(model, used, first=0):
    return model.fit(golden_models.training_data(first), callbacks=used, verbose=0, shuffle=False)


def write_lora(folder):
    """Write adapters of a model with the weights of the seed."""
    model = lora_base()
    layers.add_lora(model, 2, ("query", "value", "intermediate"), alpha=3.0)
    for index, weight in enumerate(model.trainable_variables):
        weight.assign(np.random.default_rng([SEED, index]).normal(size=weight.shape))
    layers.save_lora(model, folder / "lora.npz")
    inputs = golden_models.inputs_of(model)
    lora_base().save(folder / "model.keras")
    return flat("input", inputs) | flat("output", model(inputs))


def lora_base():
    return golden_models.scramble(golden_models.builder("gpt"))


def write_tokenizers(folder):
    lines = ["the cat sat on the mat", "a dog ran over the hill"] * 4
    tokenizers = {
        "characters": text.Characters.train(lines),
        "sentencepiece": text.SentencePiece.train(lines, vocabulary_size=36),
        "wordpiece": text.WordPiece(PIECES),
    }
    arrays = {}
    for name, tokenizer in tokenizers.items():
        tokenizer.save(str(folder / name))
        ids, lengths = tokenizer.encode(["the cat ran", "unable to go", ""])
        arrays |= {f"ids/{name}": np.asarray(ids), f"lengths/{name}": np.asarray(lengths)}
        arrays[f"text/{name}"] = np.asarray(tokenizer.decode(ids)).astype("S")
    return arrays


def tiny(name, **arguments):
    """Return a builder's model of one layer with random weights."""
    arguments = {**ONE_LAYER, **golden_models.BUILDERS[name], **arguments}
    return golden_models.scramble(getattr(models, name)(**arguments), scale=0.5)


def classifier(num_classes, **options):
    bert = tiny("bert")
    names = "embedding", "encoder", "position", "segment", "norm"
    parts = {name: getattr(bert, name) for name in names}
    return golden_models.scramble(models.Classifier(num_classes=num_classes, **parts, **options))


def tagger():
    bert = tiny("bert")
    parts = bert.embedding, bert.position, bert.segment, bert.norm, bert.encoder
    return golden_models.scramble(models.MaskedLanguageModel(*parts, keras.layers.Dense(3)))


def stream_model():
    stack = depth.Stack(
        [golden_models.block(pattern=patterns.Sinks(1, 3), position="rotary") for _ in range(2)]
    )
    model = models.CausalLanguageModel(layers.TokenEmbedding(V, golden_models.D), stack)
    return golden_models.scramble(model)


def halting_classifier():
    block = golden_models.block(pattern="dense")
    embedding = layers.TokenEmbedding(V, golden_models.D)
    model = models.Classifier(embedding, depth.ACT(block, 3, halting_bias=-1.0), 3)
    return golden_models.scramble(model)


def wide_bert():
    """A model with matrices that are large enough to be quantized."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 32}
    return golden_models.scramble(models.bert(37, **sizes, max_length=16), scale=0.2)


# Model, options of `export.saved_model`.
SAVED_MODELS = {
    "translator": (lambda: tiny("transformer"), {"tokenizer": TOKENIZER, **LENGTHS}),
    "id_translator": (lambda: tiny("t5"), {"strategy": generation.Beam(2), **LENGTHS}),
    "text_generator": (lambda: tiny("gpt"), {"tokenizer": TOKENIZER, **LENGTHS}),
    "token_generator": (lambda: tiny("llama"), {"eos_id": [3, 7], **LENGTHS}),
    "compiled": (
        lambda: tiny("gpt"),
        {"compile": "xla", "buckets": export.Buckets((2,), (4,)), **LENGTHS},
    ),
    "token_encoder": (lambda: tiny("bert"), {}),
    "image_classifier": (lambda: tiny("vit"), {}),
    "text_classifier": (
        lambda: classifier(3),
        {"tokenizer": TOKENIZER, "labels": ["first", "zweites", "третий"]},
    ),
    "text_value": (lambda: classifier(1), {"tokenizer": TOKENIZER}),
    "text_features": (lambda: classifier(None, pooling="mean"), {"tokenizer": TOKENIZER}),
    "text_tagger": (
        tagger,
        {"tokenizer": text.WordPiece(PIECES), "labels": ["noun", "verb", "other"]},
    ),
    "halting": (halting_classifier, {}),
    "segment_steps": (lambda: tiny("transformer_xl"), {"tokenizer": TOKENIZER}),
    "trajectory_steps": (lambda: tiny("gtrxl"), {}),
    "token_stream": (stream_model, {"stream": True}),
    "image_generator": (lambda: tiny("image_transformer"), {}),
    "image_enlarger": (lambda: tiny("super_resolution_transformer"), {}),
    "int8": (wide_bert, {"quantize": "int8"}),
    "int4": (wide_bert, {"quantize": "int4"}),
}


def write_saved_model(name):
    """Write an export and the outputs that it records, by signature and name.

    An image that is sampled is recorded too: its seed is one of the inputs.
    """

    def write(folder):
        make, options = SAVED_MODELS[name]
        path = export.saved_model(make(), folder / "export", **options)
        outcomes = export.inspect(path).outcomes
        assert "differs" not in outcomes.values()
        return {"outcomes": np.array(json.dumps(outcomes))}

    return write


ONNX = {
    "encoder": (lambda: tiny("bert"), "encoder"),
    "step": (lambda: tiny("gpt"), "step"),
    "greedy": (lambda: tiny("transformer"), "greedy"),
    "segment_step": (lambda: tiny("transformer_xl", cutoffs=None), "step"),
}


def write_onnx(name):
    def write(folder):
        import onnxruntime

        make, what = ONNX[name]
        path = str(folder / "model.onnx")
        lengths = LENGTHS if what == "greedy" else {"max_length": 5} if name == "step" else {}
        export.onnx(make(), path, what, **lengths)
        session = onnxruntime.InferenceSession(path)
        inputs = {x.name: onnx_input(x.name, x.shape, x.type) for x in session.get_inputs()}
        outputs = dict(
            zip([x.name for x in session.get_outputs()], session.run(None, inputs), strict=True)
        )
        return flat("input", inputs) | flat("output", outputs)

    return write


def onnx_input(name, shape, kind):
    """Return an input: two rows of three tokens, of which the first has two; zeros of a state."""
    if "length" in name and len(shape) == 1:
        return np.array([2, 3] if "memory" not in name else [0, 0], "int32")
    sizes = 2, 3, golden_models.BUILDERS["transformer_xl"]["memory_length"]
    shape = [n if isinstance(n, int) else sizes[axis] for axis, n in enumerate(shape)]
    if "float" in kind:
        return np.zeros(shape, "float32")
    if not shape:
        return np.array(0, "int32")
    return np.random.default_rng(2).integers(4, V, shape).astype("int32")


CTRANSLATE2 = {
    "translator": lambda: tiny("transformer", hidden_dim=16),
    "generator": lambda: tiny("gpt", hidden_dim=16),
    "encoder": lambda: tiny("bert", hidden_dim=16),
}


def write_ctranslate2(name):
    def write(folder):
        path = export.ctranslate2(CTRANSLATE2[name](), folder / "engine")
        return golden_models.engine_outputs(name, path)

    return write


ITEMS = {
    **{f"model_{name}": write_builder(name) for name in golden_models.BUILDERS},
    **{f"own_{name}": write_own(name) for name in golden_models.OWN_MODELS},
    **{f"checkpoint_{name}": write_checkpoint(name) for name in golden_models.TRAINED},
    "lora": write_lora,
    "tokenizers": write_tokenizers,
    **{f"export_{name}": write_saved_model(name) for name in SAVED_MODELS},
    **{f"onnx_{name}": write_onnx(name) for name in ONNX},
    **{f"ctranslate2_{name}": write_ctranslate2(name) for name in CTRANSLATE2},
}


def write_weights():
    content = {"keras": keras.__version__, "tensorflow": tf.__version__}
    for kind, make, names in (
        ("builders", golden_models.builder, golden_models.BUILDERS),
        ("presets", golden_models.preset, models.presets()),
    ):
        content[kind] = {}
        for name in names:
            digest, projection = golden_models.initial_weights(make, name)
            content[kind][name] = {"sha256": digest, "projection": projection}
    with open(FILES / "weights.json", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def main(beginnings):
    FILES.mkdir(exist_ok=True)
    for name, write in ITEMS.items():
        if not name.startswith(beginnings):
            continue
        keras.utils.clear_session()
        keras.utils.set_random_seed(SEED)
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory)
            np.savez(folder / "arrays.npz", **write(folder))
            path = shutil.make_archive(str(FILES / name), "xztar", folder)
        print(name, pathlib.Path(path).stat().st_size, flush=True)
    if "weights".startswith(beginnings):
        write_weights()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or ("",))
