"""Tables for `Constrained` that allow a list of texts."""

import numpy as np

from keras_attn.ops.checks import check_that


def allow_texts(texts, tokenizer):
    """Return the table of a `Constrained` that allows exactly these texts, each with its end token.

    A text may be written by any sequence of tokens that spell it. Equal ends of texts share their
    states: the 36,890 days of 101 years as ISO dates need 30. Making the table takes time
    O(C + S V P) and memory O(C + S V), for C characters in all and texts of at most P.

    Args:
        texts: iterable of strings.
        tokenizer: from `keras_attn.text`.

    Returns:
        NumPy int32 (S, V).

    Raises:
        ValueError: if there is no text, or the tokens cannot spell one.

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
    for text, ids in zip(texts, tokenizer.encode_as_lists(texts), strict=True):
        if tokenizer.unk_id in ids:
            raise ValueError(f"The tokens of `tokenizer` cannot spell a text. Received: {text!r}.")
    states, is_end = _minimal_automaton(texts)
    pieces = np.asarray(tokenizer.tokens(np.arange(tokenizer.vocabulary_size))).tolist()
    pieces = [piece.decode(errors="replace") for piece in pieces]
    end = len(states)
    table = np.full((end + 1, len(pieces)), -1, "int32")
    for state in range(end):
        for token, piece in enumerate(pieces):
            if state == 0 and piece.startswith(" "):
                piece = piece[1:]  # a tokenizer of words puts a space before the first, too
            if piece:  # special tokens have no text
                table[state, token] = _walk(states, state, piece)
    table[np.flatnonzero([*is_end, True]), tokenizer.eos_id] = end
    return _without_dead_ends(table, end)


def _minimal_automaton(texts):
    """Return a dict from characters to states for each state, and if a text may end there.

    State 0 is the start.
    """
    nodes, ends = [{}], set()
    for text in texts:
        node = 0
        for character in text:
            if character not in nodes[node]:
                nodes[node][character] = len(nodes)
                nodes.append({})
            node = nodes[node][character]
        ends.add(node)
    numbers, merged = {}, [0] * len(nodes)
    for node in reversed(range(len(nodes))):  # what follows a node was appended after it
        following = sorted((character, merged[to]) for character, to in nodes[node].items())
        key = node in ends, tuple(following)
        merged[node] = numbers.setdefault(key, len(numbers))
    last = len(numbers) - 1  # the start, with the longest text ahead, equals no other node
    states = [{c: last - to for c, to in following} for _, following in numbers]
    return states[::-1], [is_end for is_end, _ in numbers][::-1]


def _walk(states, state, piece):
    for character in piece:
        state = states[state].get(character, -1)
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
