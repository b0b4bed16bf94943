"""Models as `tf.Module`s: the functions behind the signatures of an export."""
