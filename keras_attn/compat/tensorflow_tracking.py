"""Layers and variables in lists and dicts, for checkpoints of TensorFlow.

Private: `Trackable._track_trackable` and `tf.__internal__.tracking.AutoTrackable`. TensorFlow
wraps a list to follow it; Keras replaces the wrapper with its own list, which TensorFlow does not
follow. Holds for Keras 3.15 and TensorFlow 2.21, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/issues/19425
Remove when `tf.train.Checkpoint` of a Keras layer stores what its lists hold.
"""

import keras


def track_containers(layer):
    """Let TensorFlow's checkpoints hold what lists and dicts of a layer hold; elsewhere nothing."""
    if keras.backend.backend() != "tensorflow":
        return
    for name, value in list(vars(layer).items()):
        if not name.startswith("_") and isinstance(value, (list, dict)):
            trackable = _trackable_of(value)
            if trackable is not None:
                layer._track_trackable(trackable, name, overwrite=True)


def _trackable_of(values):
    """Return an object with the layers and variables of a container; None if it has none."""
    import tensorflow as tf

    items = values.items() if isinstance(values, dict) else enumerate(values)
    parts = {}
    for key, value in items:
        value = _trackable_of(value) if isinstance(value, (list, dict)) else value
        if isinstance(value, tf.__internal__.tracking.Trackable):
            parts[str(key)] = value
    if not parts:
        return None
    trackable = tf.__internal__.tracking.AutoTrackable()
    for key, part in parts.items():
        trackable._track_trackable(part, key)
    return trackable
