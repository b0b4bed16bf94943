"""Repeated documents: of several with the same hash the first is kept."""

import numpy as np

# Keys of a round: some 130 MB, with what sorting needs 300 MB.
ROUND = 2**22


def kept(counts, read, most=ROUND):
    """Return a bool array over the documents of all parts: True at the first of its kind.

    The keys are sorted in rounds, each of those that begin with certain bits, so memory is bounded
    by a round and one byte for each document.

    Args:
        counts: list of ints. Documents of each part.
        read: function of the index of a part that returns its keys, a uint8 array (documents, 32).
        most: int. Expected keys of a round.
    """
    starts = np.cumsum([0, *counts])
    total = int(starts[-1])
    is_kept = np.zeros(total, bool)
    rounds = 1
    while total > most * rounds and rounds < 2**16:
        rounds *= 2
    for number in range(rounds):
        keys, places = _of_round(number, rounds, starts, read)
        order = np.lexsort((places, *keys.T[::-1]))
        keys, places = keys[order], places[order]
        is_first = np.ones(len(keys), bool)
        is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        is_kept[places[is_first]] = True
    return is_kept


def _of_round(number, rounds, starts, read):
    """Return the keys of a round as four integers each, and their places."""
    keys, places = [np.empty((0, 4), ">u8")], [np.empty(0, "int64")]
    for index in range(len(starts) - 1):
        part = read(index).view(">u8")
        # The first 16 bits decide; splits are made of the same bits, which does no harm.
        chosen = np.flatnonzero((part[:, 0] >> np.uint64(48)) * rounds >> np.uint64(16) == number)
        keys.append(part[chosen])
        places.append(chosen + starts[index])
    return np.concatenate(keys).astype("u8"), np.concatenate(places)
