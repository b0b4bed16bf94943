"""Signatures of models without a decoder: classifiers, taggers and masked language models."""

import functools

import keras
import tensorflow as tf
from keras import ops

from keras_attn.export.checks import check_labels, check_reads
from keras_attn.export.signatures.model_functions import (
    GraphMethod,
    ModelFunctions,
    call_masked,
    checked_series,
    halting_of_ids,
    ids_function,
    ids_method,
    ids_signature,
    mask_ids,
    series_spec,
    text_function,
    text_method,
)
from keras_attn.generation.forecasting import read_context
from keras_attn.models.encoder_models import Classifier, MaskedLanguageModel
from keras_attn.text import SentenceTokenizer
from keras_attn.text.tokenizers.operations import valid


class ClassPredictor(ModelFunctions):
    """Classifier as a graph function.

        probabilities = softmax(logits),   class = argmax(logits)

    Without classes the function is `embed`, which gives the features; with one class it is
    `regress`, which gives the logit as a `value`. Of a model with `multi_label` the probabilities
    are sigmoid(logits), and there is no `class`.

    Args:
        model: a `keras_attn.models.Classifier`.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.vit(3, (4, 4, 1), 2, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16)
        >>> predictor = keras_attn.export.ClassPredictor(model)
        >>> predictor.classify(np.zeros((5, 4, 4, 1), "float32"))["probabilities"].shape
        TensorShape([5, 3])

    Reference: [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.1.
    """

    @classmethod
    def fits(cls, model, options):
        return isinstance(model, Classifier)

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A classifier")
        return cls(model)

    def __init__(self, model):
        super().__init__(model)

        def classify(inputs):
            """Return `probabilities` [B, K] and `class` [B], or `value` [B], or `features`."""
            logits = call_masked(model, inputs)
            if model.num_classes is None:
                return {"features": logits}
            if model.multi_label:
                return {"probabilities": ops.sigmoid(logits)}
            if model.num_classes == 1:
                return {"value": logits[:, 0]}
            classes = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return {"probabilities": ops.softmax(logits), "class": classes}

        self.predict = classify
        self.kind = {None: "embed", 1: "regress"}.get(model.num_classes, "classify")
        self.kind = "classify" if model.multi_label else self.kind
        if "values" in model.input:
            shape = model.input["values"].shape
            self.series = {"context_length": shape[1], "horizon": None}
            self.classify = tf.function(
                lambda values: classify({"values": read_context(checked_series(values), shape)}),
                [series_spec(model)],
                autograph=False,
            )
        elif model.image_shape is None:
            read = self.reader(model)
            if _reads_prompt_lengths(model):
                specs = [*ids_signature(), tf.TensorSpec([None], tf.int32, "prompt_lengths")]
                self.classify = tf.function(
                    lambda token_ids, lengths, prompt_lengths: classify(
                        {"token_ids": read(token_ids, lengths), "prompt_lengths": prompt_lengths}
                    ),
                    specs,
                    autograph=False,
                )
            else:
                self.classify = ids_function(
                    lambda token_ids, lengths: classify(read(token_ids, lengths))
                )
            self._halting = halting_of_ids(model, read)
            if self._halting is not None:
                self.halting = ids_function(self._halting)
        else:
            images = [tf.TensorSpec([None, *model.image_shape], tf.float32, "images")]
            self.classify = tf.function(classify, images, autograph=False)

    @property
    def signatures(self):
        own = {self.kind: self.classify, "serving_default": self.classify}
        return {**own, **self.halting_signatures}


def _reads_prompt_lengths(model):
    return "prompt_lengths" in model.input


_PAIR = [tf.TensorSpec([None], tf.string, name) for name in ("text", "second_text")]
pair_method = functools.partial(GraphMethod, input_signature=_PAIR)


class TextClassifier(ClassPredictor):
    """Tokenizer and classifier as one graph, from text to labels.

        text -> ids -> softmax(logits) -> label

    With one class the output is a `value`, the logit itself, as a regression has it; without
    classes it is the `features`. Of a model with `multi_label` it is the probability of each label.

    Args:
        model: a `keras_attn.models.Classifier` of token ids.
        tokenizer: from `keras_attn.text`.
        labels: list of the classes' names, in their order; by default their numbers.
        max_length: int. Most tokens of a text, or of a pair, to read; a longer one loses its end.

    Raises:
        ValueError: if the number of labels is not that of the classes, the tokenizer has ids that
            the model lacks, or the model reads images.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16))
        >>> tokenizer = keras_attn.text.Characters("abc")
        >>> model = keras_attn.models.Classifier(
        ...     keras_attn.layers.TokenEmbedding(7, 8), keras_attn.depth.Stack([block]), 2)
        >>> classifier = keras_attn.export.TextClassifier(model, tokenizer, ["no", "yes"])
        >>> classifier.text(["a", "cab"])["label"].numpy().tolist()
        [b'no', b'no']

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.1.
    """

    has_labels = True

    @classmethod
    def fits(cls, model, options):
        is_of_texts = isinstance(model, Classifier) and "token_ids" in model.input
        return is_of_texts and options.tokenizer is not None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.tokenizer, options.labels, options.max_source_length)

    def __init__(self, model, tokenizer, labels=None, max_length=1024):
        super().__init__(model)
        check_reads(model, tokenizer)
        num_classes = model.num_classes or 0
        labels = [*map(str, range(num_classes))] if labels is None else labels
        check_labels(labels, num_classes)
        self.tokenizer, self._labels = tokenizer, tuple(labels)
        self._max_length = min(max_length, model.max_length or max_length)
        self._pad_id = model.pad_id
        self._reads_segments = "segment_ids" in model.input
        if self.halting is not None:
            self.halting = text_function(self._halting_of_text)

    @property
    def signatures(self):
        """The functions by name: of a text, which is the default, of a pair, and of ids."""
        own = {self.kind: self.text, f"{self.kind}_pair": self.pair}
        own |= {"ids": self.classify, "serving_default": self.text}
        return {**own, **self.halting_signatures}

    @text_method
    def text(self, text):
        """Map strings [B] to `label` [B], `probabilities` [B, K] and their `labels` [B, K].

        Of a model with `multi_label` there is no `label`.
        """
        return self._outputs(*self.tokenizer.encode(text, self._max_length))

    @pair_method
    def pair(self, text, second_text):
        """Map pairs, two strings [B], to the outputs of `text`."""
        return self._outputs(*self.tokenizer.encode_pair(text, second_text, self._max_length))

    def _halting_of_text(self, text):
        """Map strings [B] to `tokens`, `steps` and `remainders` [B, T], and `lengths` [B]."""
        token_ids, lengths = self.tokenizer.encode(text, self._max_length)
        tokens = {"tokens": self.tokenizer.tokens(token_ids), "lengths": lengths}
        return {**tokens, **self._halting(token_ids, lengths)}

    def _outputs(self, token_ids, lengths, segment_ids=None):
        inputs = {"token_ids": mask_ids(token_ids, lengths, self._pad_id)}
        if self._reads_segments:
            inputs["segment_ids"] = segment_ids
        outputs = self.predict(inputs)
        return name_classes(outputs, self._labels) if "probabilities" in outputs else outputs


class SentenceEmbedder(TextClassifier):
    """Tokenizer and sentence encoder as one graph, from a text behind its prompt to a vector.

        prompt + text -> ids -> features

    `embed` reads the name of a prompt for each text, or one name for all. Without it, in pairs and
    in the default signature a text has the tokenizer's default prompt; in `embed_query` and
    `embed_document` the prompt of that name.

    Args:
        model: a `keras_attn.models.Classifier` of token ids without classes.
        tokenizer: a `keras_attn.text.SentenceTokenizer`.
        max_length: int. Most tokens of a text to read; by default that of the tokenizer.

    Raises:
        ValueError: as `TextClassifier`.
        InvalidArgumentError: if there is no prompt of a name.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16))
        >>> tokenizer = keras_attn.text.SentenceTokenizer(
        ...     keras_attn.text.Characters("abc"), 5, {"query": "c"})
        >>> model = keras_attn.models.Classifier(
        ...     keras_attn.layers.TokenEmbedding(7, 8), keras_attn.depth.Stack([block]), None,
        ...     pooling="mean")
        >>> embedder = keras_attn.export.SentenceEmbedder(model, tokenizer)
        >>> embedder.signatures["embed"](["ab", "cab"], ["query"])["features"].shape
        TensorShape([2, 8])

    Reference: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084), section 3.
    """

    @classmethod
    def fits(cls, model, options):
        has_prompts = isinstance(options.tokenizer, SentenceTokenizer)
        return has_prompts and super().fits(model, options) and model.num_classes is None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.tokenizer, options.max_source_length)

    def __init__(self, model, tokenizer, max_length=None):
        super().__init__(model, tokenizer, max_length=max_length or tokenizer.max_length or 1024)
        self._reads_prompt_lengths = _reads_prompt_lengths(model)
        names = tf.TensorSpec([None], tf.string, "prompt")
        no_name = tf.constant([""])  # the default prompt
        self.embed = tf.function(
            lambda text, prompt=no_name: self._features(text, prompt),
            [tf.TensorSpec([None], tf.string, "text"), names],
            autograph=False,
        )
        self.embed_query = text_function(lambda text: self._features(text, "query"))
        self.embed_document = text_function(lambda text: self._features(text, "document"))

    @property
    def signatures(self):
        more = {"embed_query": self.embed_query, "embed_document": self.embed_document}
        return {**super().signatures, **more, "embed": self.embed}

    @text_method
    def text(self, text):
        """Map strings [B] to their `features` [B, D]."""
        return self._features(text, None)

    def _features(self, text, prompt):
        ids = self.tokenizer.encode(text, self._max_length, prompt=prompt)
        if self._reads_prompt_lengths:
            ids += (self.tokenizer.prompt_lengths(text, prompt),)
        return self.classify(*ids)  # one function that all signatures share


def name_classes(outputs, labels):
    """Return `outputs` with all `labels` of each row, and its `label` in place of its `class`."""
    names, probabilities = tf.constant(labels), outputs["probabilities"]
    rows = tf.tile(tf.expand_dims(names, 0), [tf.shape(probabilities)[0], 1])
    named = {"probabilities": probabilities, "labels": rows}
    if "class" in outputs:
        named = {"label": tf.gather(names, outputs["class"]), **named}
    return named


class WordIds:
    """Words of a batch of texts, and the ids in which a model reads them.

    Args:
        text: strings (B,).
        tokenizer: from `keras_attn.text`. It reads each word with a space before it.
        max_length: int. Most ids of a text.

    Attributes:
        words: strings (B, W), empty after the last word of a text.
        ids, lengths: int32 (B, T) and (B,).
        first_ids: int32 (B, W), the place of each word's first id.
        is_read: bool (B, W), True for words that have ids among the `max_length`.
    """

    def __init__(self, text, tokenizer, max_length):
        words = tf.strings.split(text)
        template = tokenizer.template
        start, end = len(template.start), len(template.end)
        ids, lengths = tokenizer.encode(tf.strings.join([" ", words.flat_values]))
        pieces = tf.RaggedTensor.from_tensor(ids[:, start:], lengths - start - end)
        pieces = words.with_values(pieces)  # (B, W, number of the word's ids)
        counts = tf.cast(pieces.row_lengths(axis=2).to_tensor(), tf.int32)
        rows = template.around(pieces.merge_dims(1, 2), max_length)
        self.words = valid(words.to_tensor(""))  # JSON is UTF-8
        self.ids, self.lengths = rows.to_tensor(0), tf.cast(rows.row_lengths(), tf.int32)
        self.first_ids = start + tf.cumsum(counts, axis=1, exclusive=True)
        self.is_read = (counts > 0) & (self.first_ids < tf.expand_dims(self.lengths, 1) - end)

    def tag(self, by_id, labels):
        """Return the `labels` and `probabilities` (B, W) of words, from those of ids (B, T, K)."""
        by_word = tf.gather(by_id, tf.where(self.is_read, self.first_ids, 0), batch_dims=1)
        names = tf.gather(tf.constant(labels), tf.argmax(by_word, axis=-1))
        return {
            "labels": tf.where(self.is_read, names, ""),
            "probabilities": tf.where(self.is_read, tf.reduce_max(by_word, axis=-1), 0.0),
        }


class TextTagger(ModelFunctions):
    """Tokenizer and token classifier as one graph, from text to labelled words.

        text -> words -> ids -> softmax(logits at each word's first id) -> labels

    Words are separated by spaces, tabs and line ends. The tokenizer reads each with a space before
    it.

    Args:
        model: a `MaskedLanguageModel` whose head gives the logits of K classes.
        tokenizer: from `keras_attn.text`.
        labels: list of the K names of the classes, in their order.
        max_length: int. Most tokens of a text to read; words after them have no label.

    Raises:
        ValueError: if the number of labels is not that of the classes, or the tokenizer has ids
            that the model lacks.

    Example:
        >>> import keras, keras_attn
        >>> bert = keras_attn.models.bert(7, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, max_length=32)
        >>> head = keras.layers.Dense(2, kernel_initializer="zeros")
        >>> model = keras_attn.models.MaskedLanguageModel(
        ...     bert.embedding, bert.position, bert.segment, bert.norm, bert.encoder, head)
        >>> tagger = keras_attn.export.TextTagger(
        ...     model, keras_attn.text.Characters("abc"), ["noun", "verb"])
        >>> tagger.text(["ab  c"])["labels"].numpy().tolist()
        [[b'noun', b'noun']]

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    has_labels = True

    @classmethod
    def fits(cls, model, options):
        has_names = options.tokenizer is not None and options.labels is not None
        return isinstance(model, MaskedLanguageModel) and has_names

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.tokenizer, options.labels, options.max_source_length)

    def __init__(self, model, tokenizer, labels, max_length=1024):
        super().__init__(model)
        check_reads(model, tokenizer)
        check_labels(labels, model.output.shape[-1])
        self.tokenizer, self._labels = tokenizer, tuple(labels)
        self._max_length = min(max_length, model.max_length or max_length)
        self._logits = lambda *ids: call_masked(model, {"token_ids": mask_ids(*ids, model.pad_id)})

    @property
    def signatures(self):
        return {"tag": self.text, "serving_default": self.text}

    @text_method
    def text(self, text):
        """Map strings [B] to their `words` [B, W], and `labels` and `probabilities` [B, W].

        A text with fewer words than the longest has empty strings at the end. Empty words, and
        words that were not read, have an empty label of probability 0.
        """
        words = WordIds(text, self.tokenizer, self._max_length)
        logits = tf.cast(self._logits(words.ids, words.lengths), tf.float32)  # (B, T, K)
        return {"words": words.words, **words.tag(ops.softmax(logits), self._labels)}


class TokenEncoder(ModelFunctions):
    """Masked language model as graph functions.

        features = Encoder(ids),   logits = Head(features)

    Features and logits are float32 under every dtype policy.

    Args:
        model: a `MaskedLanguageModel`, with a layer named "encoder".

    Example:
        >>> import keras_attn
        >>> encoder = keras_attn.export.TokenEncoder(keras_attn.models.bert(vocabulary_size=10,
        ...     num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=32))
        >>> encoder.logits([[5, 4, 9]], [3])["logits"].shape
        TensorShape([1, 3, 10])

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.
    """

    @classmethod
    def fits(cls, model, options):
        return isinstance(model, MaskedLanguageModel)

    @classmethod
    def from_options(cls, model, options):
        options.check_no_text("A masked language model")
        return cls(model)

    def __init__(self, model):
        super().__init__(model)
        features = keras.Model(model.input, model.encoder_output)
        absent, read = dict.fromkeys(model.input), self.reader(model)
        self._features = lambda *ids: call_masked(features, {**absent, "token_ids": read(*ids)})
        self._logits = lambda *ids: call_masked(model, {"token_ids": read(*ids)})
        halting = halting_of_ids(model, read)
        if halting is not None:
            self.halting = ids_function(halting)

    @property
    def signatures(self):
        own = {"encode": self.encode, "logits": self.logits, "serving_default": self.logits}
        return {**own, **self.halting_signatures}

    @ids_method()
    def encode(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `features` [B, T, D].

        Ids beyond a row's length are padding: they are not read, and their features are undefined.
        """
        return {"features": tf.cast(self._features(token_ids, lengths), tf.float32)}

    @ids_method()
    def logits(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `logits` [B, T, V]."""
        return {"logits": tf.cast(self._logits(token_ids, lengths), tf.float32)}
