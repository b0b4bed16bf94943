"""A loop whose cache may grow."""

from keras import ops


def while_loop(unfinished, body, state, grows):
    """`ops.while_loop` over `state`, a tuple that ends with what is kept for each slot.

    Where that `grows`, the number of slots, axis 2 of all its tensors, changes from step to step,
    which Keras's loop has no way to say and TensorFlow's has.
    """
    if not grows:
        return ops.while_loop(unfinished, body, state)
    import tensorflow as tf

    def grown(x):
        return tf.TensorShape([*x.shape[:2], None, *x.shape[3:]])

    *fixed, slots = state
    shapes = *(x.shape for x in fixed), tf.nest.map_structure(grown, slots)
    return tf.while_loop(unfinished, body, state, shape_invariants=shapes)
