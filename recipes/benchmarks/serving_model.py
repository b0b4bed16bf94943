"""Model of the serving benchmark, and its answers without a server."""

MAX_LENGTH = 16
LAYERS = 2


def dates(count):
    """So many different dates, in 18 languages."""
    from ..translate.dates import date_pairs

    return [text for text, _ in date_pairs(1, 1, count)["test"]]


def untrained(folder, sentences):
    """Export a `transformer_tiny` of random weights and return the folder.

    It costs what a trained one costs that always writes `MAX_LENGTH` characters.
    """
    import keras

    from keras_attn import export, models, text

    keras.utils.set_random_seed(0)
    tokenizer = text.Characters.train(sentences)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": LAYERS}
    model = models.create("transformer_tiny", **sizes, residual="pre_norm")
    export.saved_model(model, folder, tokenizer=tokenizer, max_length=MAX_LENGTH)
    return folder


def newest(export):
    """The path of the version that a server takes."""
    from keras_attn.export.versions import find_versions

    versions = find_versions(export)
    if not versions:
        raise ValueError(f"export must hold a version's directory. Received: {export}")
    return versions[max(versions)]


class InProcess:
    """The default signature of a version in a directory, called without a server."""

    def __init__(self, version):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401, it registers the ops of the tokenizer

        self._constant = tf.constant
        self._loaded = tf.saved_model.load(version)  # kept: the signature does not hold it
        self._signature = self._loaded.signatures["serving_default"]

    def __call__(self, text):
        """The translation of a sentence and its score."""
        answer = self._signature(text=self._constant([text]))
        return answer["translation"].numpy()[0].decode(), float(answer["score"].numpy()[0])
