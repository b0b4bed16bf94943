"""What Keras 3.15's `fit` needs under a `tf.distribute` strategy.

Two things are put in the place of Keras's own, in this process and once:

- `reduce_per_replica`, which makes one number of the replicas' for the progress bar: over several
  workers 3.15 asks for the mean over the rows of a number that has none, and fails
  (https://github.com/keras-team/keras/issues/20585). It is left alone where it works.
- `_maybe_symbolic_build`, which builds what is not built yet from a first batch: over several
  workers it fails as well, over one it takes an epoch's first batch out of data that count their
  epochs, and averages flags and strings. The data set's shapes say as much.
"""

import keras

ISSUE = "https://github.com/keras-team/keras/issues/20585"
KNOWN = "3.15"


def patch_fit(strategy, is_needed):
    """Makes `fit` work under `strategy`.

    Args:
        strategy: a `tf.distribute.Strategy`.
        is_needed: bool. Whether `fit` does not work at all with what is wrong in the known version.

    Raises:
        ValueError: if it is needed and the version of Keras is neither the known one nor one that
            trains a small model under the strategy.
    """
    if f"{keras.__version__}.".startswith(f"{KNOWN}."):
        from keras.src.backend.tensorflow import trainer

        trainer.TensorFlowTrainer._maybe_symbolic_build = build_by_shapes
        if is_needed and not _reduces_scalars(trainer, strategy):
            trainer.reduce_per_replica = _reducing_scalars(trainer.reduce_per_replica)
    elif is_needed and not fits(strategy):
        raise ValueError(
            f"Keras's `fit` fails over several workers ({ISSUE}), which keras_attn mends in Keras "
            f"{KNOWN} only: install keras=={KNOWN}.*. Received: Keras {keras.__version__}."
        )


def fits(strategy):
    """Whether a model of one weight can be trained under `strategy`; all its workers must ask."""
    rows = 2 * strategy.num_replicas_in_sync
    ones = keras.ops.convert_to_numpy(keras.ops.ones((rows, 1)))
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    try:
        model.fit(ones, ones, batch_size=rows, verbose=0)
    except (ValueError, TypeError, AttributeError, RuntimeError):
        return False
    return True


def build_by_shapes(self, iterator=None, data_batch=None):
    """Instead of `TensorFlowTrainer._maybe_symbolic_build`."""
    parts = (self, self.optimizer, self._compile_loss, self._compile_metrics)
    if self._distribute_strategy is None or all(part is None or part.built for part in parts):
        return  # Keras would trace the model anew in each `fit` and `evaluate`.
    if iterator is not None:
        specs = iterator._get_iterator().element_spec
        data_batch = keras.tree.map_structure(_of_a_replica, specs)
    with self._distribute_strategy.scope():
        self._symbolic_build(data_batch=data_batch)


def _of_a_replica(spec):
    spec = getattr(spec, "_value_specs", [spec])[0]
    if not hasattr(spec, "shape"):
        return None  # no sample weights, say
    return keras.KerasTensor(tuple(spec.shape), spec.dtype.name)


def _reduces_scalars(trainer, strategy):
    import tensorflow as tf

    try:
        trainer.reduce_per_replica(tf.constant(1.0), strategy, "mean")
    except ValueError:
        return False
    return True


def _reducing_scalars(theirs):
    """`reduce_per_replica`, with the mean of what each replica has as a whole."""

    def reduce_per_replica(values, strategy, reduction):
        import tensorflow as tf

        is_of_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if not is_of_workers or reduction not in ("auto", "mean"):
            return theirs(values, strategy, reduction)
        return keras.tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
