"""Draw the picture of the README: python -m keras_attn.viz .github/images"""

import argparse

from keras_attn.viz.readme import write_picture


def main():
    parser = argparse.ArgumentParser(prog="python -m keras_attn.viz", description=__doc__)
    parser.add_argument("folder", help="folder for the picture")
    write_picture(parser.parse_args().folder)


if __name__ == "__main__":
    main()
