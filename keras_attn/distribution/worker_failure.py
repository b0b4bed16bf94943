"""What is said when another process of a run is gone."""

import sys

import keras

# What TensorFlow 2.21 and JAX 0.10 say where a collective, or what keeps the processes together,
# broke off.
_SIGNS = ("Collective ops is aborted", "coordination service", "heartbeat", "Gloo ")

_SENTENCE = (
    "Another worker of this run is gone: it was killed, or its network was. Start all workers "
    "again with the same commands; training goes on from the last checkpoint."
)


def lost_worker(error):
    """The sentence for an error that means that another worker is gone; None for any other error.

    Under the strategy `multi_worker` all processes take each step together, so that one that dies
    stops the others: on TensorFlow 2.21 with a `tf.errors.UnavailableError` in `fit`, at once or
    when it has not been heard of for some seconds, seldom an `AbortedError`, `InternalError` or
    `CancelledError`. JAX raises its `JaxRuntimeError` or a `ValueError`; where the first process is
    gone it ends the others itself, with the exit code of an abort. Such a process cannot train any
    more, nor join the new one; it should end, by `os._exit`, since either backend would first wait
    for the others, with an exit code that has its scheduler start it again, as all others then do.

    Args:
        error: an exception that `fit`, `evaluate` or `predict` raised.

    Example:

    >>> from keras_attn.distribution import lost_worker
    >>> lost_worker(ValueError("no such file")) is None
    True
    """
    is_lost = isinstance(error, _kinds()) and any(sign in str(error) for sign in _SIGNS)
    return _SENTENCE if is_lost else None


def _kinds():
    """The errors of the backend that is in use, which has been imported if it raised one."""
    backend = keras.backend.backend()
    errors = getattr(sys.modules.get(backend), "errors", None)
    if errors is None:
        return ()
    if backend == "jax":
        return (errors.JaxRuntimeError, ValueError)
    return (
        errors.UnavailableError,
        errors.AbortedError,
        errors.InternalError,
        errors.CancelledError,
    )
