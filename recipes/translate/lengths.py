"""Scores of a split's short and long sentences apart."""

import itertools

NUM_GROUPS = 4


def scores_by_length(sources, translations, references, score):
    """Return the scores of quarters of the sentences, from the shortest sources to the longest.

    Args:
        sources: list of str.
        translations: list of str.
        references: list of str.
        score: function of translations and references that returns a value and its signature.

    Returns:
        A list of dicts of the `value`, the number of `sentences` and the `max_characters` of their
        sources. One group a sentence if there are fewer than four.
    """
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    ends = [len(order) * group // NUM_GROUPS for group in range(NUM_GROUPS + 1)]
    groups = [order[start:end] for start, end in itertools.pairwise(ends) if start < end]
    return [
        {
            "max_characters": len(sources[group[-1]]),
            "sentences": len(group),
            "value": score(*([texts[i] for i in group] for texts in (translations, references)))[0],
        }
        for group in groups
    ]
