"""Sentences of a text that are nearest to a given one, by the features of an export."""

import argparse
import os
import re
import sys

import numpy as np

from keras_attn import startup

from ..common.cli import fail, sentence

BATCH_SIZE = 32


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="keras-attn masked-language-model nearest",
        description="Finds the sentences of a text whose features are nearest to those of a query, "
        "by the signature `encode` of the newest export of a finished run.",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="directory of the run")
    add("query", metavar="QUERY", help="a sentence")
    add("--data-dir", help="directory with texts, as of the recipe, whose test has the sentences")
    add("--text", help="file whose last twentieth has them (default: Python's standard library)")
    add("--count", type=int, default=5, help="sentences to print (default: 5)")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count must be at least 1. Received: --count {options.count}.")
    if options.data_dir and options.text:
        parser.error("--data-dir and --text exclude each other.")
    try:
        from ..text.data import read_text  # not for --help, which answers at once

        text = read_text(options.data_dir, options.text)
        if text.corpus is not None:
            wanted = "--data-dir must have texts, not a prepared corpus"
            raise ValueError(f"{wanted}. Received: --data-dir {options.data_dir}.")
        sentences = split_sentences("".join(text.splits()["test"].blocks()))
        neighbours = nearest(options.run, options.query, sentences, options.count)
    except (OSError, ValueError, ImportError) as error:
        return fail("recipes.masked_language_model.nearest", sentence(error))
    for similarity, sentence_text in neighbours:
        print(f"{similarity:.3f}  {sentence_text}")
    return 0


def split_sentences(text, least_words=4):
    """Return the sentences of a text, once each: paragraphs, cut after full stops."""
    paragraphs = re.split(r"\n\s*\n", text)
    parts = (part for paragraph in paragraphs for part in re.split(r"(?<=[.?!])\s+", paragraph))
    sentences = (" ".join(part.split()) for part in parts)
    return list(dict.fromkeys(x for x in sentences if len(x.split()) >= least_words))


def nearest(run, query, sentences, count=5):
    """Return the `count` sentences nearest to a query, as pairs of similarity and sentence.

        f(x) = mean_t encode(x)_t - mean_s mean_t encode(s)_t,   similarity = cos(f(query), f(s))

    The mean over all sentences is what their features have in common. A sentence longer than the
    training's context is cut.

    Args:
        run: str. Directory of a finished run of the recipe.
        query: str.
        sentences: list of str.
        count: int.

    Raises:
        ValueError: if the run has no export, or the query or all sentences have no tokens.
    """
    export = os.path.join(run, "export")
    if not os.path.isdir(export):
        raise ValueError(f"RUN must be the directory of a finished run. Received: {run}.")
    startup.import_library("tensorflow")  # not for --help
    import tensorflow as tf

    from keras_attn import text
    from keras_attn.export.versions import find_versions

    from ..common import files

    versions = find_versions(export)
    if not versions:
        raise ValueError(f"RUN must be the directory of a finished run. Received: {run}.")
    exported = tf.saved_model.load(versions[max(versions)])
    if "encode" not in exported.signatures:
        wanted = "RUN must be a run of `keras-attn masked-language-model`"
        raise ValueError(f"{wanted}. Received: {run}.")
    tokenizer = text.load(os.path.join(run, "tokenizer.model"))
    settings = os.path.join(run, "settings.json")
    context = files.read_object(settings, "give another RUN", "context")["context"]
    rows = [np.array(row[:context]) for row in tokenizer.encode_as_lists([query, *sentences])]
    if not len(rows[0]):
        raise ValueError(f"QUERY must have a token at least. Received: {query!r}.")
    kept = [i for i, row in enumerate(rows) if len(row)]
    if len(kept) < 2:
        raise ValueError("The text must have a sentence of four words at least.")
    features = _mean_features(exported.signatures["encode"], [rows[i] for i in kept], context)
    features -= features[1:].mean(axis=0)
    features /= np.linalg.norm(features, axis=1, keepdims=True) + 1e-9
    similarities = features[1:] @ features[0]
    order = np.argsort(-similarities, kind="stable")[:count]
    return [(float(similarities[i]), sentences[kept[1:][i] - 1]) for i in order]


def _mean_features(encode, rows, context):
    """Return the mean features of each row's tokens, (number of rows, D)."""
    import tensorflow as tf

    means = []
    for start in range(0, len(rows), BATCH_SIZE):
        part = rows[start : start + BATCH_SIZE]
        ids = np.zeros((len(part), context), "int32")
        for row, tokens in zip(ids, part, strict=True):
            row[: len(tokens)] = tokens
        lengths = np.array([len(tokens) for tokens in part], "int32")
        outputs = encode(token_ids=tf.constant(ids), lengths=tf.constant(lengths))
        real = np.arange(context) < lengths[:, None]
        features = np.where(real[..., None], outputs["features"].numpy(), 0)
        means.append(features.sum(axis=1) / lengths[:, None])
    return np.concatenate(means)


if __name__ == "__main__":
    sys.exit(main())
