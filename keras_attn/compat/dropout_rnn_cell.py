"""The class by which `keras.layers.RNN` recognises cells with dropout.

Private: `keras.src.layers.rnn.dropout_rnn_cell.DropoutRNNCell`. Holds for Keras 3.15, which
keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/rnn/dropout_rnn_cell.py
Remove when Keras exports the class. `keras.layers.RNN` makes a cell's dropout masks before its loop
only if the cell is an instance, so that all time steps drop the same numbers.
"""

from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell

__all__ = ["DropoutRNNCell"]
