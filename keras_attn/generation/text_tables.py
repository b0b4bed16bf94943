"""Tables for `Constrained` that allow a list of texts."""

import numpy as np

from keras_attn.ops.checks import check_that


def allow_texts(texts, tokenizer):
    """Return the table of a `Constrained` that allows exactly these texts, each with its end token.

    A text may be written by any sequence of tokens whose bytes spell it. Equal ends of texts share
    their states: the 36,890 days of 101 years as ISO dates need 30. Making the table takes time
    O(C + S V P) and memory O(C + S V), for C bytes in all and texts of at most P.

    Args:
        texts: iterable of strings.
        tokenizer: from `keras_attn.text`.

    Returns:
        NumPy int32 (S, V).

    Raises:
        ValueError: if there is no text, or the tokens cannot spell one or have no end token.

    Example:
        >>> from keras_attn.generation import allow_texts
        >>> from keras_attn.text import Characters
        >>> allow_texts(["yes", "no"], Characters("noyes")).shape
        (6, 9)

    Differs from the paper: texts in place of a regular expression.

    Reference: [Willard and Louf, 2023](https://arxiv.org/abs/2307.09702), section 3; equal ends:
        [Daciuk et al., 2000](https://aclanthology.org/J00-1002/), section 2.
    """
    is_list = not isinstance(texts, (str, bytes)) and hasattr(texts, "__iter__")
    check_that(is_list, "a list of strings", texts=texts)
    texts = list(texts)
    check_that(texts, "a list of at least one string", texts=texts)
    check_that(tokenizer.eos_id is not None, "one that has an end token", tokenizer=tokenizer)
    states, is_end = _minimal_automaton([*map(_bytes_of, texts)])
    pieces = np.asarray(tokenizer.tokens(np.arange(tokenizer.vocabulary_size))).tolist()
    first_pieces = _first_pieces(pieces, tokenizer)
    spaces = [
        t for t, (piece, first) in enumerate(zip(pieces, first_pieces)) if piece and not first
    ]
    end = len(states)
    begun = end + 1  # the start again, after a space that the tokenizer drops
    table = np.full((begun + 1, len(pieces)), -1, "int32")
    rows = [(0, 0, first_pieces), (begun, 0, pieces), *((s, s, pieces) for s in range(1, end))]
    for row, state, known in rows:
        for token, piece in enumerate(known):
            if piece:  # special tokens have no text
                table[row, token] = _walk(states, state, piece)
    table[0, spaces] = begun
    table[np.flatnonzero([*is_end, True, is_end[0]]), tokenizer.eos_id] = end
    for text, ids in zip(texts, tokenizer.encode_as_lists(texts), strict=True):
        is_spelled = _follow(table, [*ids, tokenizer.eos_id]) == end
        if not is_spelled and not _can_spell(_bytes_of(text), first_pieces, pieces):
            raise ValueError(f"The tokens of `tokenizer` cannot spell a text. Received: {text!r}.")
    return _without_dead_ends(table if spaces else table[:begun], end)


def _bytes_of(text):
    return text.encode(errors="surrogatepass")  # which no token spells


def _first_pieces(pieces, tokenizer):
    """Return what each token adds at the start of a text, where some tokenizers drop its space."""
    tokens = [token for token, piece in enumerate(pieces) if piece.startswith(b" ")]
    first = list(pieces)
    for token, text in zip(tokens, tokenizer.decode_as_strings([[t] for t in tokens]), strict=True):
        if not text.startswith(" "):
            first[token] = pieces[token][1:]
    return first


def _follow(table, tokens):
    """Return the state after tokens from the start; -1 if they are not allowed."""
    state = 0
    for token in tokens:
        state = table[state, token] if state >= 0 else -1
    return state


def _can_spell(text, first_pieces, pieces):
    """Return True if any tokens spell a text, where those that the tokenizer chooses do not."""
    starts = {0}
    for start in range(len(text)):
        known = pieces if start else first_pieces
        if start in starts:
            starts |= {start + len(x) for x in known if x and text.startswith(x, start)}
    return len(text) in starts


def _minimal_automaton(texts):
    """Return a dict from bytes to states for each state, and if a text may end there.

    State 0 is the start.
    """
    nodes, ends = [{}], set()
    for text in texts:
        node = 0
        for byte in text:
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
            node = nodes[node][byte]
        ends.add(node)
    numbers, merged = {}, [0] * len(nodes)
    for node in reversed(range(len(nodes))):  # what follows a node was appended after it
        following = sorted((byte, merged[to]) for byte, to in nodes[node].items())
        key = node in ends, tuple(following)
        merged[node] = numbers.setdefault(key, len(numbers))
    last = len(numbers) - 1  # the start, with the longest text ahead, equals no other node
    states = [{byte: last - to for byte, to in following} for _, following in numbers]
    return states[::-1], [is_end for is_end, _ in numbers][::-1]


def _walk(states, state, piece):
    for byte in piece:
        state = states[state].get(byte, -1)
        if state < 0:
            break
    return state


def _without_dead_ends(table, end):
    """Forbid the tokens after which no sequence of tokens reaches the end."""
    reaches = np.arange(len(table)) == end  # True for states from which the end can be reached
    while True:
        more = reaches | (reaches[table] & (table >= 0)).any(axis=1)
        if (more == reaches).all():
            return np.where(reaches[table], table, -1).astype("int32")
        reaches = more
