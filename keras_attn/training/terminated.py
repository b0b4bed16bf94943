"""The end of a program that was told to end."""


class Terminated(SystemExit):
    """Training has ended because the process received SIGTERM, for which `Resume` watches; the same
    program, started again, goes on from the last checkpoint.

    A program that does not catch it ends, as one that does not handle the signal, with the exit
    code of a shell's child: 143 = 128 + 15. `except Exception` does not catch it.

    Example:

    >>> from keras_attn.training import Terminated
    >>> Terminated().code
    143
    """

    def __init__(self, code=143):
        super().__init__(code)
