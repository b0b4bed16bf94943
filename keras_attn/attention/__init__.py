"""How attention is computed: inputs, dense attention, plans, linear and fused attention, caches."""

import threading


class Captures(threading.local):
    """The place where this thread's attention layers give their scores to those who ask for them.

    Attributes:
        record: function of an attention layer, its `AttentionInputs`, and a function without
            arguments that returns the scores (B, N, T, S); None if nothing records. It is an
            attribute that is read, so a call without a capture has no cost.
    """

    record = None


captures = Captures()
