"""Picture of a trained translator's attention to the source: which words a word is made from."""

import argparse
import os
import sys

from keras_attn import startup

from ..common.cli import fail, sentence

CROSS = "cross_attention"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="keras-attn translate alignment",
        description="Translates a text by the model of a finished run, and draws what each token "
        "of the translation attends to in the source.",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="directory of the run")
    add("--text", help="text to translate (default: the first line of the run's unseen.txt)")
    add("--max-length", type=int, default=96, help="most tokens of the translation (default: 96)")
    add("--picture", default="alignment.png", help="file to write (default: alignment.png)")
    options = parser.parse_args(arguments)
    try:
        translation = draw(options.run, options.picture, options.text, options.max_length)
    except (OSError, ValueError, ImportError) as error:
        return fail("recipes.translate.alignment", sentence(error))
    print(f"{translation}\nPicture: {options.picture}")
    return 0


def draw(run, picture, source=None, max_length=96):
    """Draw the cross-attention of a text and its greedy translation; return the translation.

    Args:
        run: str. Directory of a finished run of the recipe.
        picture: str. File to write.
        source: str. Text to translate; by default the first line of the run's `unseen.txt`.
        max_length: int. Most tokens of the translation.

    Raises:
        ValueError: if the run has no model, or the text has no tokens.
    """
    path = os.path.join(run, "model.keras")
    if not os.path.exists(path):
        raise ValueError(f"RUN must be the directory of a finished run. Received: {run}.")
    startup.import_library("tensorflow")  # not for --help, which answers at once
    import keras
    import numpy as np

    from keras_attn import generation, text, viz
    from keras_attn.files import atomic_file

    from . import lstm  # noqa: F401, a file of it names its class

    model = keras.models.load_model(path, compile=False)
    tokenizer = text.load(os.path.join(run, "tokenizer.model"))
    if source is None:
        with open(os.path.join(run, "unseen.txt"), encoding="utf-8") as file:
            source = file.readline().rstrip("\n")
    if not source.strip():
        raise ValueError(f"--text must have a token at least. Received: --text {source!r}.")
    ids = tokenizer.encode([source])[0].numpy()
    target, _ = generation.generate(
        model, ids, max_length=max_length, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id
    )
    target = np.asarray(target)
    target = target[:, : np.count_nonzero(target)]  # padding follows the end
    read = np.insert(target[:, :-1], 0, tokenizer.bos_id, axis=1)
    with viz.capture_attention(model) as scores:
        model({"source_ids": ids, "target_ids": read})
    layers = CROSS if any(path.endswith(CROSS) for path in scores) else None
    names, key_names = (_names(tokenizer, x) for x in (target, ids))
    figure = viz.plot_attention(scores, names, key_names, layers=layers)
    with atomic_file(picture) as temporary:
        figure.savefig(temporary, dpi=150)
    return tokenizer.decode(target)[0].numpy().decode()


def _names(tokenizer, ids):
    """Return the tokens of one row as strings; the end has a name of its own."""
    names = [token.decode() for token in tokenizer.tokens(ids)[0].numpy()]
    return [name or "</s>" for name in names]


if __name__ == "__main__":
    sys.exit(main())
