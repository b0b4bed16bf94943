"""Figures of Matplotlib, an optional package, and names of tokens in fonts of any script."""

import functools
import unicodedata
import warnings


def new_figure(width, height):
    """Return an empty figure of `width` x `height` inches, outside pyplot's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need Matplotlib, which is not installed: pip install 'keras_attn[viz]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


MOST_NAMES = 96  # on one axis
MOST_CHARACTERS = 24  # of a name
DEFAULT_FAMILY = "DejaVu Sans"  # which Matplotlib brings with it


def families_for(texts):
    """Return the font families that together have all characters of some texts, in their order.

    Matplotlib takes each character from the first family that has it. Characters that no font of
    this machine has are reported in one warning, by script.
    """
    missing = {character for text in texts for character in text if not character.isspace()}
    families = []
    for family, file in _regular_fonts():
        known = missing & _characters(file)
        if known or not families:
            families.append(family)
            missing -= known
        if not missing:
            return families
    scripts = sorted({unicodedata.name(x, "UNNAMED").split()[0] for x in missing})
    warnings.warn(
        f"No font on this machine has {''.join(sorted(missing)[:20])} ({', '.join(scripts)}): the "
        "picture shows boxes. Install a font of that script, such as one of the Noto fonts.",
        stacklevel=3,
    )
    return families


def _regular_fonts():
    """Yield the family and the file of every upright font, the default one first."""
    from matplotlib import font_manager

    # The light and the narrow files of a family may have fewer characters than the regular one,
    # which comes last here, and so takes the name.
    fonts = sorted(font_manager.fontManager.ttflist, key=_distance_from_regular, reverse=True)
    entries = {
        entry.name: entry.fname
        for entry in fonts
        # Matplotlib's last resort has a box for every character.
        if entry.style == "normal" and not entry.name.startswith("Last Resort")
    }
    yield from sorted(entries.items(), key=lambda entry: (entry[0] != DEFAULT_FAMILY, entry[0]))


def _distance_from_regular(entry):
    """Return how far a font is from the regular width and weight, to be sorted by."""
    from matplotlib import font_manager

    weight = font_manager.weight_dict.get(entry.weight, entry.weight)
    return entry.stretch != "normal", abs(weight - font_manager.weight_dict["normal"])


@functools.lru_cache(maxsize=None)
def _characters(file):
    from matplotlib import font_manager

    return {chr(code) for code in font_manager.get_font(file).get_charmap()}


def shown(token):
    """Return a token as a label shows it, with visible spaces, and cut if it is long."""
    if len(token) > MOST_CHARACTERS:
        token = token[: MOST_CHARACTERS - 1] + "…"
    return token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣") or "∅"


def write_names(axis, names, families, **style):
    """Write names beside an axis, of many every second, third, ... one."""
    step = -(-len(names) // MOST_NAMES) or 1
    places = range(0, len(names), step)
    axis.set_ticks(list(places), [shown(names[place]) for place in places])
    for label in axis.get_ticklabels():
        label.set(family=families, size=8, parse_math=False, **style)
