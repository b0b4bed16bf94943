"""Draw the picture of the README: python -m keras_attn.viz .github/images"""

import argparse

from keras_attn.deferred_imports import complete


def main():
    parser = argparse.ArgumentParser(prog="python -m keras_attn.viz", description=__doc__)
    parser.add_argument("folder", help="folder for the picture")
    folder = parser.parse_args().folder
    complete("keras_attn", "keras_attn.viz")
    from keras_attn.viz.readme import write_picture  # imports Keras

    write_picture(folder)


if __name__ == "__main__":
    main()
