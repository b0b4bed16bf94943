"""A small correct attention layer, and subclasses and other layers with one defect each."""

import keras
from keras import ops


class Attention(keras.layers.Layer):
    """Plain multi-head attention; the broken subclasses override its methods."""

    def __init__(self, num_heads=2, key_dim=4, dropout=0.0, seed=7, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.key_dim, self.dropout, self.seed = num_heads, key_dim, dropout, seed
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype="float32")
        self.supports_masking = True

    def build(self, query_shape, value_shape):
        heads = (self.num_heads, self.key_dim)
        for name, shape in (("query", query_shape), ("key", value_shape), ("value", value_shape)):
            setattr(self, name, self.add_weight((shape[-1], *heads), name=name))
            setattr(self, f"{name}_bias", self.add_weight(heads, "zeros", name=f"{name}_bias"))
        self.merge = self.add_weight((*heads, query_shape[-1]), name="output")
        self.merge_bias = self.add_weight((query_shape[-1],), "zeros", name="output_bias")

    def call(
        self, query, value, key=None, value_mask=None, attention_mask=None,
        use_causal_mask=False, return_attention_scores=False, training=None,
    ):  # fmt: skip
        value_mask = self.implicit(value, value_mask)
        key = value if key is None else key
        q = self.project(query, "query")
        k, v = self.project(key, "key"), self.project(value, "value")
        mask = ops.ones((1, 1, ops.shape(q)[1], ops.shape(k)[1]), "bool")
        if use_causal_mask and self.obeys_causal(return_attention_scores, training):
            mask = mask & self.causal(ops.shape(q)[1], ops.shape(k)[1])
        if value_mask is not None:
            mask = self.pad(mask, ops.convert_to_tensor(value_mask)[:, None, None, :])
        if attention_mask is not None:
            mask = mask & self.spread(self.boolean(ops.convert_to_tensor(attention_mask)))
        weights = self.softmax(self.logits(q, k), mask)
        kept = ops.cast(self.drop(weights, training=training), self.compute_dtype)
        heads = ops.einsum("bnts,bsnh->btnh", kept, self.values(v))
        output = ops.einsum("btnh,nhd->btd", heads, ops.cast(self.merge, heads.dtype))
        output = self.finish(output + self.merge_bias, return_attention_scores)
        return (output, weights) if return_attention_scores else output

    def project(self, x, name):
        return ops.einsum("btd,dnh->btnh", x, getattr(self, name)) + getattr(self, f"{name}_bias")

    def implicit(self, value, mask):
        """`Layer.__call__` has put Keras's mask of `value` into `value_mask`."""
        return mask

    def boolean(self, mask):
        if "float" in keras.backend.standardize_dtype(mask.dtype):
            raise ValueError(f"`attention_mask` must be boolean. Received: dtype={mask.dtype}.")
        return mask

    def spread(self, mask):
        return {2: lambda m: m[None, None], 3: lambda m: m[:, None], 4: lambda m: m}[
            len(mask.shape)
        ](mask)

    def obeys_causal(self, scores, training):
        return True

    def causal(self, length, keys):
        return ops.arange(keys) <= ops.arange(length)[:, None] + keys - length

    def pad(self, mask, real):
        return mask & real

    def logits(self, q, k):
        q, k = ops.cast(q, "float32"), ops.cast(k, "float32")
        return ops.einsum("btnh,bsnh->bnts", q * self.scale(), k)

    def scale(self):
        return self.key_dim**-0.5

    def softmax(self, logits, mask):
        weights = ops.softmax(ops.where(mask, logits, -1e30), axis=-1)
        return ops.where(ops.any(mask, axis=-1, keepdims=True), weights, 0.0)

    def values(self, v):
        return v

    def finish(self, output, scores):
        return output

    def get_config(self):
        names = ("num_heads", "key_dim", "dropout", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class LosesHeads(Attention):
    def get_config(self):
        config = super().get_config()
        del config["num_heads"]
        return config


class BuildsLate(Attention):
    """Leaves the building of a part to its first call."""

    def __init__(self, *arguments, **kwargs):
        super().__init__(*arguments, **kwargs)
        self.last = keras.layers.Dense(12, dtype=self.dtype_policy)

    def finish(self, output, scores):
        return self.last(output)


class ScalesByWidth(Attention):
    def scale(self):
        return (self.num_heads * self.key_dim) ** -0.5


class LeaksWithScores(Attention):
    def obeys_causal(self, scores, training):
        return not scores


class LeaksWithDropout(Attention):
    def obeys_causal(self, scores, training):
        return not (self.dropout and training)


class AlignsToTheFirstKey(Attention):
    def causal(self, length, keys):
        return ops.arange(keys) <= ops.arange(length)[:, None]


class ForgetsPadding(Attention):
    def pad(self, mask, real):
        return mask


class ForgetsKerasMasks(Attention):
    def implicit(self, value, mask):
        return None if mask is getattr(value, "_keras_mask", None) else mask


class BreaksOnEmptyRows(Attention):
    def softmax(self, logits, mask):
        return ops.softmax(ops.where(mask, logits, -float("inf")), axis=-1)


class ChangesWithScores(Attention):
    def finish(self, output, scores):
        return output * (1 + 1e-6) if scores else output


class ReadsFloatsAsBooleans(Attention):
    def boolean(self, mask):
        return ops.cast(mask, "bool")


class IgnoresQueryMask(Attention):
    def call(self, query, value, key=None, query_mask=None, **arguments):
        return super().call(query, value, key, **arguments)


class SpreadsMasksOverHeads(Attention):
    """Takes the batch axis of a mask for that of heads."""

    def spread(self, mask):
        return super().spread(mask[None] if len(mask.shape) == 3 else mask)


class RoundsWeights(Attention):
    def softmax(self, logits, mask):
        weights = super().softmax(logits, mask)
        return ops.cast(ops.cast(weights, self.compute_dtype), "float32")


class OverflowsInFloat16(Attention):
    def logits(self, q, k):
        return ops.cast(ops.einsum("btnh,bsnh->bnts", q * self.scale(), k), "float32")


class HalvesAGradient(Attention):
    def values(self, v):
        return 0.5 * v + ops.stop_gradient(0.5 * v)


class AddsBatchMean(keras.layers.Layer):
    def call(self, x):
        return x + ops.mean(x, axis=0, keepdims=True)


class ReusesDropout(keras.layers.Layer):
    """Drops the same entries in every step."""

    def __init__(self, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout

    def call(self, x, training=None):
        return keras.random.dropout(x, self.dropout, seed=3) if training and self.dropout else x

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}


class CountsInLowPrecision(keras.layers.Layer):
    """Adds sinusoids whose positions are rounded to the compute dtype."""

    def call(self, x):
        positions = ops.cast(ops.arange(ops.shape(x)[1]), self.compute_dtype)
        return x + ops.cast(ops.sin(positions)[None, :, None], x.dtype)


class FixesBatch(keras.layers.Layer):
    def build(self, shape):
        self.rows = shape[0]

    def call(self, x):
        return ops.reshape(x, (self.rows or 2, -1, x.shape[-1]))


class ReadsAGlobal(keras.layers.Layer):
    """Multiplies by a class attribute, which a fresh process does not know."""

    factor = 1.0

    def call(self, x):
        return x * type(self).factor


class ForgetsAState(keras.layers.Layer):
    """Keeps numbers outside its weights."""

    made = 0

    def build(self, shape):
        type(self).made += 1
        self.shift = float(self.made)

    def call(self, x):
        return x + self.shift


class CallsPython(keras.layers.Layer):
    def call(self, x):
        import tensorflow as tf

        y = tf.numpy_function(lambda a: a + a, [x], x.dtype)
        return ops.reshape(y, ops.shape(x))


class GraphDiffers(keras.layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return x if tf.executing_eagerly() else x + 1
