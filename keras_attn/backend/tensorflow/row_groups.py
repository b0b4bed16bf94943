"""Groups of rows on TensorFlow: slices of any length, except where XLA compiles."""

import tensorflow as tf

from keras_attn.backend import row_groups
from keras_attn.compat.tensorflow_control_flow import is_in_xla


def map_groups(compute, rows, counts, weights):
    if is_in_xla():
        return row_groups.map_groups.portable(compute, rows, counts, weights)
    rest = tf.shape(rows)[0] - tf.reduce_sum(counts)
    *groups, out = tf.split(rows, tf.concat([counts, [rest]], 0), num=counts.shape[0] + 1)
    # The gradient of `unstack` is one `stack`; that of a slice is padded to all groups' size.
    per_group = zip(*(tf.unstack(w, num=counts.shape[0]) for w in weights), strict=True)
    results = [compute(rows, *own) for rows, own in zip(groups, per_group, strict=True)]
    empty = tf.zeros((tf.shape(out)[0], results[0].shape[-1]), results[0].dtype)
    return tf.ensure_shape(tf.concat([*results, empty], 0), (rows.shape[0], empty.shape[1]))
