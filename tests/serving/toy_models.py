"""Tiny SavedModels whose answers anyone can work out: `python toy_models.py BASE_PATH 00000007`.

Run it to put the model of this suite where a real server finds it, then set
KERAS_ATTN_SERVING_ADDRESS=HOST:REST_PORT:GRPC_PORT and run the suite against that server.
"""

import pathlib
import sys

import tensorflow as tf


def _spec(dtype, *shape, name):
    return tf.TensorSpec(shape, dtype, name=name)


class Small(tf.Module):
    """Says which version answers: quick to write and to load."""

    def __init__(self, version):
        super().__init__()
        self.prefix = tf.Variable(f"{version}:")

    @tf.function(input_signature=[_spec(tf.string, None, name="text")])
    def translate(self, text):
        score = -tf.cast(tf.strings.length(text), tf.float32) / 10.0
        return {"translation": tf.strings.join([self.prefix, text]), "score": score}


class Toy(Small):
    """One signature per thing that the protocol says about tensors."""

    @tf.function(
        input_signature=[_spec(tf.float32, None, name="a"), _spec(tf.int32, None, name="b")]
    )
    def numbers(self, a, b):
        return {"sum": a + tf.cast(b, tf.float32), "twice": 2 * b}

    @tf.function(
        input_signature=[
            _spec(tf.float64, None, name="double"),
            _spec(tf.int64, None, name="long"),
            _spec(tf.uint8, None, name="byte"),
            _spec(tf.bool, None, name="flag"),
        ]
    )
    def types(self, double, long, byte, flag):
        return {"double": double, "long": long, "byte": byte, "flag": tf.logical_not(flag)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def echo(self, x):
        return {"y": tf.identity(x)}

    @tf.function(input_signature=[_spec(tf.string, None, name="x")])
    def as_bytes(self, x):
        return {"x_bytes": tf.identity(x)}

    @tf.function(input_signature=[_spec(tf.string, None, name="x")])
    def as_text(self, x):
        return {"x": tf.identity(x)}

    @tf.function(input_signature=[_spec(tf.float32, None, name="x")])
    def half(self, x):
        return {"y": tf.cast(x, tf.float16)}

    @tf.function(input_signature=[_spec(tf.bfloat16, None, name="x")])
    def takes_bfloat16(self, x):
        return {"y": tf.cast(x, tf.float32)}

    @tf.function(input_signature=[_spec(tf.float32, None, name="x")])
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @tf.function(input_signature=[_spec(tf.float32, None, name="x")])
    def uneven(self, x):
        return {"a": x, "b": tf.concat([x, x], axis=0)}

    @tf.function(input_signature=[_spec(tf.float32, None, name="x")])
    def fails(self, x):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > 0), ["not positive"])]):
            return {"y": tf.identity(x)}

    @tf.function(input_signature=[_spec(tf.string, None, name="inputs")])
    def classify(self, inputs):
        x = self._feature(inputs)
        labels = tf.strings.join([self.prefix, tf.strings.as_string(x, precision=1)])
        return {
            "classes": tf.stack([labels, tf.fill(tf.shape(x), "other")], axis=1),
            "scores": tf.stack([x, 1 - x], axis=1),
        }

    @tf.function(input_signature=[_spec(tf.string, None, name="inputs")])
    def regress(self, inputs):
        return {"outputs": 2 * self._feature(inputs)[:, None]}

    def _feature(self, inputs):
        feature = {"x": tf.io.FixedLenFeature([], tf.float32)}
        return tf.io.parse_example(inputs, feature)["x"]

    @tf.function(input_signature=[_spec(tf.int32, None, name="steps")])
    def slow(self, steps):
        def step(count, value):
            return count + 1, tf.math.floormod(value * 3 + 1, 1000)

        start = tf.zeros([], tf.int32)
        count, _ = tf.while_loop(
            lambda count, _: count < tf.reduce_max(steps), step, (start, start)
        )
        return {"count": tf.fill(tf.shape(steps), count)}


def export_small(base_path, version):
    """Writes a `Small` as `export` does."""
    small = Small(version)
    unfinished = base_path / f"unfinished-{version}"
    tf.saved_model.save(small, str(unfinished), {"serving_default": small.translate})
    unfinished.rename(base_path / str(version))


def export(base_path, version):
    """Writes `base_path/version`, complete or not at all; the version is an int or digits."""
    toy = Toy(version)
    unfinished = base_path / f"unfinished-{version}"
    signatures = {
        name: getattr(toy, name)
        for name in (
            "numbers types echo as_bytes as_text half takes_bfloat16 total uneven fails slow "
            "classify regress"
        ).split()
    }
    tf.saved_model.save(toy, str(unfinished), {"serving_default": toy.translate, **signatures})
    unfinished.rename(base_path / str(version))


def write_warmup(directory, requests):
    """Writes request protos as the warm-up file of a version."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    (directory / "assets.extra").mkdir()
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for request in requests:
            log = PredictionLog()
            kind = type(request).__name__.removesuffix("Request").lower()
            field = {"classification": "classify", "regression": "regress"}.get(kind, kind)
            getattr(log, f"{field}_log").request.CopyFrom(request)
            writer.write(log.SerializeToString())


if __name__ == "__main__":
    export(pathlib.Path(sys.argv[1]), sys.argv[2])
