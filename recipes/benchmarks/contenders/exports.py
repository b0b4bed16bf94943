"""A trained translator in each form that it is served in."""

import argparse
import json
import os
import shutil
import tempfile

import numpy as np

from ...common.machine import cores
from ..workload import Task

# Names of the files that hold the weights, or their beginnings.
WEIGHTS = ("variables.data", "model.bin", "model.onnx")


def prepare(run, folder, sentences, batch):
    """Write the files of each contender into a folder, and return facts for the card.

    They are the model of a finished run of `recipes.translate`, and the first `sentences` of its
    first test split with its translations, made in batches.
    """
    import keras

    from keras_attn import export, text

    from ...translate.task import make_task

    with open(os.path.join(run, "card.json"), encoding="utf-8") as file:
        options = argparse.Namespace(**json.load(file)["options"])
    task = make_task(options)
    for name in ("model.keras", "tokenizer.model"):
        shutil.copy(os.path.join(run, name), folder)
    pairs = sorted(task.splits[task.tests[0]][:sentences], key=lambda pair: len(pair[0]))
    sources, references = map(list, zip(*pairs, strict=True))
    keras.config.set_dtype_policy("float32")
    model = keras.saving.load_model(os.path.join(folder, "model.keras"))
    tokenizer = text.load(os.path.join(folder, "tokenizer.model"))
    lengths = options.max_length, options.max_source_length
    translator = export.Translator(model, tokenizer, "greedy", *lengths)
    translations, scores = translator.translate(sources, batch)
    facts = {
        "parameters": model.count_params(),
        "metric": task.metric,
        "value": task.score(translations, references)[0],
        "sentences": len(sources),
    }
    content = {
        "sources": sources,
        "references": references,
        "translations": translations,
        "scores": scores,
        "metric": task.metric,
        "tokenize": task.tokenize,
        "batch": batch,
        "lengths": lengths,
    }
    with open(os.path.join(folder, "task.json"), "w", encoding="utf-8") as file:
        json.dump(content, file)
    return facts


def translating(form, folder):
    """All sentences in one form: an engine of `ENGINES`, or one with `_int8`."""
    import keras

    from keras_attn import text

    from ...translate.task import Task as Translation

    with open(os.path.join(folder, "task.json"), encoding="utf-8") as file:
        content = json.load(file)
    model = keras.saving.load_model(os.path.join(folder, "model.keras"))
    tokenizer = text.load(os.path.join(folder, "tokenizer.model"))
    engine = ENGINES[form.removesuffix("_int8")]
    quantize = "int8" if form.endswith("_int8") else None
    directory = tempfile.mkdtemp(dir=folder)
    sources, size = content["sources"], content["batch"]
    sizes = *content["lengths"], size
    translate, path = engine(model, tokenizer, directory, sizes, quantize)
    batches = [sources[start : start + size] for start in range(0, len(sources), size)]

    def call():
        return [answer for batch in batches for answer in zip(*translate(batch), strict=True)]

    answers, scores = zip(*call(), strict=True)
    task = Translation("", {}, content["metric"], hashes={}, tokenize=content["tokenize"])
    expected = content["translations"]
    facts = {
        "megabytes": file_bytes(path) / 1e6,
        "weight_megabytes": file_bytes(path, WEIGHTS) / 1e6,
        "value": task.score(answers, content["references"])[0],
        "same": sum(a == b for a, b in zip(answers, expected, strict=True)),
        "score_difference": float(np.abs(np.subtract(scores, content["scores"])).max()),
        "sentences": len(sources),
    }
    return Task(call=call, units=len(sources), facts=facts)


# Each engine returns a function from texts to texts and scores, and the path of its files. Its
# sizes are the longest target, the longest source and the number of rows in a batch.


def _saved_model(model, tokenizer, directory, sizes, quantize, **options):
    import tensorflow as tf

    from keras_attn import export

    how = {"strategy": "greedy", "max_length": sizes[0], "max_source_length": sizes[1], **options}
    path = export.saved_model(model, directory, tokenizer=tokenizer, quantize=quantize, **how)
    loaded = tf.saved_model.load(path)

    def translate(texts):
        answer = loaded.signatures["serving_default"](text=tf.constant(texts))
        return [line.decode() for line in answer["translation"].numpy()], answer["score"].numpy()

    return translate, path


def _compiled_saved_model(model, tokenizer, directory, sizes, quantize):
    from keras_attn import export

    options = {"compile": "xla", "buckets": export.Buckets(batches=(sizes[2],))}
    return _saved_model(model, tokenizer, directory, sizes, quantize, **options)


def _onnx(model, tokenizer, directory, sizes, quantize):
    import onnxruntime

    from keras_attn import export

    path = os.path.join(directory, "model.onnx")
    how = {"max_length": sizes[0], "max_source_length": sizes[1]}
    path = export.onnx(model, path, "greedy", quantize=quantize, **how)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def translate(texts):
        ids, counts = tokenizer.encode(texts, max_length=sizes[1])
        inputs = {"source_ids": ids.numpy(), "source_lengths": counts.numpy()}
        read = {x.name for x in session.get_inputs()}
        inputs = {name: inputs[name] for name in inputs if name in read}
        ids, scores = session.run(["ids", "score"], inputs)
        return [line.decode() for line in tokenizer.decode(ids).numpy()], scores

    return translate, path


def _ctranslate2(model, tokenizer, directory, sizes, quantize):
    import ctranslate2

    from keras_attn import export

    path = os.path.join(directory, "model")
    path = export.ctranslate2(model, path, tokenizer, quantize, max_length=max(sizes[:2]))
    engine = ctranslate2.Translator(path, compute_type=quantize or "float32", intra_threads=cores())
    # As ours, the score is a sum, and a translation may be empty.
    score = {"length_penalty": 0, "return_scores": True}
    how = {"beam_size": 1, "min_decoding_length": 0, **score}
    tokens = tokenizer.vocabulary()
    ids = {token: index for index, token in enumerate(tokens)}

    def translate(texts):
        rows = [[tokens[i] for i in row] for row in tokenizer.encode_as_lists(texts)]
        results = engine.translate_batch(rows, max_decoding_length=sizes[0], **how)
        written = [[ids[token] for token in result.hypotheses[0]] for result in results]
        width = max(1, *map(len, written))
        padded = [row + [tokenizer.pad_id] * (width - len(row)) for row in written]
        lines = [line.decode() for line in tokenizer.decode(padded).numpy()]
        return lines, [result.scores[0] for result in results]

    return translate, path


ENGINES = {
    "saved_model": _saved_model,
    "compiled_saved_model": _compiled_saved_model,
    "onnx": _onnx,
    "ctranslate2": _ctranslate2,
}


def file_bytes(path, beginnings=("",)):
    """Return the size of a file, or of the files in a folder whose names begin so."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
        if name.startswith(beginnings)
    )
