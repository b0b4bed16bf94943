"""Shims for private names of Keras, TensorFlow, tf2onnx and KerasHub, one per file.

No other package of keras_attn uses a private name. Each shim names the versions it was written for,
the upstream file or issue, and the condition under which it can be removed. A test per shim in
`tests/compat` fails with a sentence when the upstream name changes.
"""
