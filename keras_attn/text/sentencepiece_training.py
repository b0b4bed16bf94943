"""Training of a SentencePiece model, without Keras and TensorFlow."""

import io
import re

from keras_attn.text.character_ids import REPLACEMENT

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)


def train_model(
    sentences,
    vocabulary_size,
    model_type="unigram",
    character_coverage=1.0,
    normalization="identity",
):
    """Return the bytes of a model; the arguments are those of `SentencePiece.train`."""
    import sentencepiece

    # The trainer silently drops an empty sentence, and one with a line end in it.
    lines = [text for sentence in sentences if (text := sentence.replace("\n", " ").strip())]
    if not lines:
        raise ValueError("`sentences` holds no text to learn a vocabulary from.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            model_type=model_type,
            character_coverage=character_coverage,
            normalization_rule_name=normalization,
            # The trainer refuses a limit below ten.
            max_sentence_length=max(10, *(len(line.encode()) for line in lines)),
            unk_surface=REPLACEMENT,  # the library's own " \u2047 " would add spaces around it
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise _readable(error, vocabulary_size, character_coverage, normalization) from error
    return model.getvalue()


def _readable(error, vocabulary_size, character_coverage, normalization):
    """Return the trainer's failure as an error about our arguments."""
    received = f"vocabulary_size={vocabulary_size}, character_coverage={character_coverage}"
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
        return ValueError(
            f"`vocabulary_size` must be at least {too_small[1]}, to hold the four special tokens "
            f"and every character that `character_coverage` asks for. Received: {received}."
        )
    return ValueError(
        f"SentencePiece cannot train: {error}. "
        f"Received: {received}, normalization={normalization!r}."
    )
