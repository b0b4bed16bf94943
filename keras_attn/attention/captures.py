"""The place where attention layers give their scores to those who ask for them from outside."""

import threading


class Captures(threading.local):
    """Recorder of the scores of this thread's calls.

    Attributes:
        record: function of an attention layer, its `AttentionInputs`, and a function without
            arguments that returns the scores (B, N, T, S); None if nothing records.
    """

    record = None


# An attribute that is read, not a function that is called: a call without a capture has no cost.
thread = Captures()
