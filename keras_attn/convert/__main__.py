"""The command `keras-attn convert` by its former name, `python -m keras_attn.convert`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("keras_attn.commands.convert", run_name="__main__", alter_sys=True)
