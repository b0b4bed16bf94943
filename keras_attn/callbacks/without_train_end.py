"""Callbacks of a `fit` after which training continues."""

import keras


class WithoutTrainEnd(keras.callbacks.CallbackList):
    """Pass all events to callbacks but the end of training.

    Use it for the `fit` on the rest of an epoch that `Resume` restored: a callback that acts at the
    end of training, such as `AverageCheckpoints`, then acts after the last `fit` only.

    Args:
        callbacks: list of `keras.callbacks.Callback`s.

    Example:
        >>> import keras
        >>> from keras_attn.callbacks import WithoutTrainEnd
        >>> ends = keras.callbacks.LambdaCallback(on_train_end=lambda logs: print("the end"))
        >>> WithoutTrainEnd([ends]).on_train_end()
    """

    def __init__(self, callbacks):
        super().__init__(callbacks)

    def on_train_end(self, logs=None):
        pass
