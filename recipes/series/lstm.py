"""LSTM baselines, trained as the model is."""

import keras
from keras import ops

from keras_attn import layers

from .scores import LEVELS


def build_lstm(options, channels):
    """Return a model from series (B, T, C) to quantiles (B, H, C, Q), a row a channel."""
    values = keras.Input((options.context, channels), name="values")
    scaler = layers.SeriesScaler()
    x, loc, scale = scaler(values)
    states = _states(ops.transpose(x, (0, 2, 1)), options, (-1, options.context, 1))
    outputs = keras.layers.Dense(options.horizon * len(LEVELS))(states)
    outputs = ops.reshape(outputs, (-1, channels, options.horizon, len(LEVELS)))
    outputs = ops.transpose(outputs, (0, 2, 1, 3))
    return keras.Model({"values": values}, scaler.inverse(outputs, loc, scale))


def build_lstm_classifier(options, channels, num_classes):
    """Return a model from series (B, T, C) to logits (B, K)."""
    values = keras.Input((options.context, channels), name="values")
    states = _states(values, options, (-1, options.context, channels))
    logits = keras.layers.Dense(num_classes)(keras.layers.Dropout(options.dropout)(states))
    return keras.Model({"values": values}, logits)


def _states(x, options, shape):
    """Return the last states of an LSTM that reads numbers beside 1 where they are observed."""
    observed = ops.logical_not(ops.isnan(x))
    x, observed = ops.where(observed, x, 0.0), ops.cast(observed, x.dtype)
    rows = [ops.reshape(part, shape) for part in (x, observed)]
    return keras.layers.LSTM(options.hidden_dim)(ops.concatenate(rows, axis=-1))
