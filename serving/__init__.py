"""An embedded server and clients that speak TensorFlow Serving's REST and gRPC API."""
