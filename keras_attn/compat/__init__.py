"""Every use of a private name of Keras, TensorFlow, JAX, tf2onnx or KerasHub, one shim a file."""
