"""The sublayers of KerasHub's `TransformerEncoder` and `TransformerDecoder`.

Private: the attributes in `_NAMES`. Holds for KerasHub 0.32, which keras_attn requires.
Upstream: `transformer_encoder.py` and `transformer_decoder.py` in
https://github.com/keras-team/keras-hub/tree/master/keras_hub/src/layers/modeling
Remove when KerasHub names its sublayers publicly.
"""

_NAMES = {
    "self_attention": "_self_attention_layer",
    "self_attention_norm": "_self_attention_layer_norm",
    "cross_attention": "_cross_attention_layer",
    "cross_attention_norm": "_cross_attention_layer_norm",
    "intermediate_dense": "_feedforward_intermediate_dense",
    "output_dense": "_feedforward_output_dense",
    "feed_forward_norm": "_feedforward_layer_norm",
}


def hub_sublayers(layer):
    """Return the sublayers of a KerasHub Transformer layer by the keys of `_NAMES`, if it has them.

    A decoder that was built without a context has `"cross_attention": None`.
    """
    return {key: getattr(layer, name) for key, name in _NAMES.items() if hasattr(layer, name)}
