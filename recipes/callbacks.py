"""Callbacks of runs."""

import keras


class AfterFirstStep(keras.callbacks.Callback):
    """Call a function after the first step, so that a start that fails leaves no settings."""

    def __init__(self, function):
        super().__init__()
        self._function, self._is_called = function, False

    def on_train_batch_end(self, batch, logs=None):
        if not self._is_called:
            self._function()
            self._is_called = True
