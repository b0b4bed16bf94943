"""The contract of feed-forward layers that mix positions."""

import keras


class PositionMixer(keras.layers.Layer):
    """Base class of feed-forward layers whose output at a position depends on other positions.

    `TransformerBlock` calls such a layer with `padding_mask`; in decoding also with
    `attention_mask`, `query_positions`, `key_positions` and a `cache`, which is then returned after
    the output. Models refuse such layers in packed rows, and segment memories in their blocks.
    """

    def initial_cache(self, batch_size, max_length):
        """Return an empty cache of `max_length` positions, or one that grows if that is None."""
        raise ValueError(f"This layer cannot decode with a cache. Received: {type(self).__name__}.")
