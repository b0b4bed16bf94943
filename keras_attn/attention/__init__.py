"""Computation of attention: inputs, dense attention, plans, linear and fused attention, caches."""

import threading


class Captures(threading.local):
    """Hook of this thread that receives the scores of attention layers.

    Attributes:
        record: function of an attention layer, its `AttentionInputs`, and a function without
            arguments that returns the scores (B, N, T, S); None if nothing records. A call without
            a hook only reads this attribute.
    """

    record = None


captures = Captures()
