"""SentencePiece models as bytes: their operations, and the models that we write ourselves."""

import struct

from keras_attn.text.tokenizers.operations import load_sentencepiece, load_tensorflow_text, tf

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
UNIGRAM, BPE, _WORD = 1, 2, 3
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of a model
_MODEL_TYPE, _BYTE_FALLBACK, _UNK_SURFACE = 3, 35, 44
_CHARSMAP = 2


def processor(model_proto):
    """Return the library's object for a model; raise ValueError if the bytes hold none."""
    # The library takes no bytes at all for a model, one that is not initialised.
    if isinstance(model_proto, bytes) and model_proto:
        try:
            return load_sentencepiece().SentencePieceProcessor(model_proto=model_proto)
        except RuntimeError:
            pass
    raise ValueError(
        "`model_proto` is not a SentencePiece model, which is bytes; `SentencePiece.load(path)` "
        f"reads a file. Received: model_proto of type {type(model_proto).__name__}."
    )


def operation(model_proto, out_type="int32"):
    """Return the graph operations of a model."""
    # Not FastSentencepieceTokenizer: it silently splits BPE models wrongly, and model servers
    # before 2.12 lack it. Not made once and kept: its resource belongs to the kernel that made
    # it, and `keras.utils.set_random_seed` drops every eager kernel. A new one costs nothing,
    # because TensorFlow finds the kernel of the same model again.
    make = load_tensorflow_text().SentencepieceTokenizer
    return make(model=model_proto, out_type=tf.as_dtype(out_type))


def write_model(pieces, model_type, byte_fallback=False):
    """Return a model without normalisation, for words in which a space is no space.

    Args:
        pieces: iterable of the text, the score and the type of each id. Of two neighbours whose
            join is a NORMAL piece, those of the highest score are merged first by `BPE`.
        model_type: `UNIGRAM` or `BPE`.
        byte_fallback: bool. Write unknown characters by the pieces of type BYTE.
    """
    written = [
        _field(_PIECE, _field(1, text) + _tag(2, 5) + struct.pack("<f", score) + _field(3, kind))
        for text, score, kind in pieces
    ]
    trainer = _field(_MODEL_TYPE, model_type) + _field(_BYTE_FALLBACK, int(byte_fallback))
    return b"".join([*written, _field(_TRAINER, trainer), _normalizer("identity")])


def write_normalizer(charsmap):
    """Return a model that writes a text as one piece, normalised by a map of characters."""
    # All of a text is unknown, and neighbouring unknown words are one piece.
    unknown = _field(_PIECE, _field(1, "<unk>") + _field(3, UNKNOWN))
    trainer = _field(_TRAINER, _field(_MODEL_TYPE, _WORD))
    return unknown + trainer + _normalizer("by a map", _field(_CHARSMAP, charsmap))


def _normalizer(name, charsmap=b""):
    # No dummy prefix, no removal of spaces, no escape for them.
    as_it_is = b"".join(_field(number, 0) for number in (3, 4, 5))
    return _field(_NORMALIZER, _field(1, name) + charsmap + as_it_is)


def read_model(model_proto):
    """Return the type, the pieces and the normaliser of a model.

    Returns:
        `UNIGRAM` or `BPE`; a list of the text, the score and the type of each piece; a dict of
        `charsmap`, bytes, and of the bools `adds_space` and `removes_spaces`.
    """
    parts = [*_fields(model_proto)]
    pieces = [_piece(content) for number, content in parts if number == _PIECE]
    trainer, normalizer = (dict(_fields(dict(parts).get(n, b""))) for n in (_TRAINER, _NORMALIZER))
    rules = {
        "charsmap": normalizer.get(_CHARSMAP, b""),
        "adds_space": bool(normalizer.get(3, 1)),
        "removes_spaces": bool(normalizer.get(4, 1)),
    }
    return trainer.get(_MODEL_TYPE, UNIGRAM), pieces, rules


def _piece(content):
    fields = dict(_fields(content))
    return fields[1].decode(), struct.unpack("<f", fields[2])[0], fields.get(3, NORMAL)


def rearranged(model_proto, tokens):
    """Return a model whose piece i is the piece of that text, or one that no text becomes."""
    parts = [*_fields(model_proto)]
    own = {_piece(content)[0]: content for number, content in parts if number == _PIECE}
    rest = [_field(number, content) for number, content in parts if number != _PIECE]
    control = _tag(2, 5) + struct.pack("<f", 0.0) + _field(3, CONTROL)
    pieces = [_field(_PIECE, own.get(token, _field(1, token) + control)) for token in tokens]
    return b"".join(pieces + rest)


def _fields(message):
    """Yield the number and the content of each field of a protocol buffer."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            yield number, varint()
            continue
        size = varint() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
        yield number, message[place : place + size]
        place += size


def with_unknown_text(model_proto, text):
    """Return a model that decodes the unknown piece as `text`."""
    # Protocol buffers merge the fields of two messages with the same number.
    return model_proto + _field(_TRAINER, _field(_UNK_SURFACE, text))


def _field(number, value):
    """Return a field of a protocol buffer, of an integer, a string or bytes."""
    if isinstance(value, int):
        return _tag(number, 0) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _tag(number, 2) + _varint(len(content)) + content


def _tag(number, wire_type):
    return _varint(number << 3 | wire_type)


def _varint(value):
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
