"""The command `keras-attn explain` by its former name, `python -m keras_attn.costs`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("keras_attn.commands.explain", run_name="__main__", alter_sys=True)
