"""The command `keras-attn export` by its former name, `python -m keras_attn.export`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("keras_attn.commands.export", run_name="__main__", alter_sys=True)
