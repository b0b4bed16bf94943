"""BLEU of a validation set during training."""

import keras

from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_choice, check_sizes, check_that


class Bleu(ArgumentHints, keras.callbacks.Callback):
    """Translate a validation set every few epochs and log its corpus BLEU as `val_bleu`.

        BLEU = 100 min(1, exp(1 - r / c)) (p_1 p_2 p_3 p_4)^(1/4)

    with the modified n-gram precisions p_n and the lengths c of the translations and r of the
    references. sacrebleu computes it, and the signature that makes the number comparable is
    printed once. Put this callback before those that read `val_bleu`, such as TensorBoard,
    CSVLogger or EarlyStopping.

    Args:
        source: list of str. Sentences to translate.
        references: list of str. One reference for each, not empty.
        translate: function from a list of str to a list of str, with the model being trained.
        every_epochs: int. Number of epochs between two measurements.
        tokenize, lowercase: as in `corpus_bleu`.

    Raises:
        ValueError: if `references` are not one for each source, one is empty, or `translate`
            returns another number of sentences than it was given.
        ImportError: if sacrebleu is not installed.

    Example:
        >>> from keras_attn.callbacks import Bleu
        >>> text = ["the cat sat on the mat ."]
        >>> bleu = Bleu(text, references=text, translate=lambda source: source, tokenize="none")
        >>> logs = {}
        >>> bleu.on_epoch_end(0, logs)
        BLEU signature: nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:...
        >>> round(logs["val_bleu"], 6)
        100.0

    Reference: [Papineni et al., 2002](https://aclanthology.org/P02-1040), section 2.3;
    [Post, 2018](https://arxiv.org/abs/1804.08771).
    """

    def __init__(
        self, source, references, translate, every_epochs=1, tokenize="13a", lowercase=False
    ):
        super().__init__()
        check_that(callable(translate), "a function of a list of sentences", translate=translate)
        source, references = _in_pairs(source=source, references=references)
        check_sizes(every_epochs=every_epochs)
        self.source, self.references = source, references
        self.translate = translate
        self.every_epochs = every_epochs
        self._metric = _metric(tokenize, lowercase)
        self._signature_printed = False

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every_epochs:
            return
        translations = list(self.translate(self.source))
        if len(translations) != len(self.source):
            raise ValueError(
                "`translate` must return one sentence for each source. "
                f"Received: {len(translations)} sentences for {len(self.source)} sources"
            )
        score, signature = _score(self._metric, translations, self.references)
        if logs is not None:
            logs["val_bleu"] = score
        if not self._signature_printed:
            print(f"BLEU signature: {signature}")
            self._signature_printed = True


def corpus_bleu(translations, references, tokenize="13a", lowercase=False):
    """Compute sacrebleu's corpus BLEU, with the signature that makes it comparable.

    Args:
        translations: list of str.
        references: list of str. One reference for each.
        tokenize: str. sacrebleu's tokenizer: "13a" for plain text, "none" for text that is
            tokenised already.
        lowercase: bool. True ignores case.

    Returns:
        The score, a float from 0 to 100, and the signature, a str.

    Raises:
        ValueError: if `references` are not one for each translation, one is empty, or `tokenize` is
            unknown.
        ImportError: if sacrebleu is not installed.

    Example:
        >>> from keras_attn.callbacks import corpus_bleu
        >>> text = ["the cat sat on the mat ."]
        >>> round(corpus_bleu(text, text, tokenize="none")[0], 6)
        100.0

    Reference: [Post, 2018](https://arxiv.org/abs/1804.08771), section 3.
    """
    pairs = _in_pairs(translations=translations, references=references)
    return _score(_metric(tokenize, lowercase), *pairs)


def _in_pairs(references, **sentences):
    """Return sentences and their references as lists; sacrebleu drops those without a partner."""
    ((name, texts),) = sentences.items()
    for key, value in {name: texts, "references": references}.items():
        check_that(not isinstance(value, str), "a list of sentences", **{key: value})
    texts, references = list(texts), list(references)
    if not texts or len(references) != len(texts):
        raise ValueError(
            f"`references` must be one for each of `{name}`, and at least one. "
            f"Received: {len(references)} references for {len(texts)} sentences"
        )
    empty = next((n for n, text in enumerate(references) if not (text and text.strip())), None)
    check_that(
        empty is None, "sentences that are not empty", references=f"an empty one at index {empty}"
    )
    return texts, references


def _score(metric, translations, references):
    score = metric.corpus_score(translations, [references]).score
    return score, str(metric.get_signature())


def _metric(tokenize, lowercase):
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError("Bleu needs sacrebleu: pip install 'keras_attn[recipes]'") from error
    check_choice(BLEU.TOKENIZERS, tokenize=tokenize)
    # `force` only silences the warning that the text looks tokenised.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
