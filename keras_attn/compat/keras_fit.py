"""`fit` of Keras 3.15 under a `tf.distribute` strategy.

Private: `keras.src.backend.tensorflow.trainer`, of which `patch_fit` replaces two parts once per
process. Holds for Keras 3.15 only; other versions are tried, not patched.
Upstream: https://github.com/keras-team/keras/issues/20585 and
https://github.com/keras-team/keras/blob/master/keras/src/backend/tensorflow/trainer.py

- `reduce_per_replica` reduces the replicas' metrics to one number for the progress bar. Over
  several workers 3.15 asks for the mean over the rows of a scalar, and fails. It is replaced only
  if it fails.
- `_maybe_symbolic_build` builds an unbuilt model from a first batch. Over several workers it fails;
  over one worker it takes a batch from the first epoch of data that count their epochs, and
  averages flags and strings. The shapes of the data set are enough to build.

Remove when the lowest supported Keras trains under `MultiWorkerMirroredStrategy` unpatched
(`can_fit` returns True) and reads no batch to build a model.
"""

import keras

ISSUE = "https://github.com/keras-team/keras/issues/20585"
PATCHED_VERSION = "3.15"


def patch_fit(strategy, is_needed):
    """Make `fit` work under `strategy`; raise a `ValueError` if that is needed but not possible.

    `is_needed` is True if the unpatched `fit` of Keras 3.15 fails under it.
    """
    if f"{keras.__version__}.".startswith(f"{PATCHED_VERSION}."):
        from keras.src.backend.tensorflow import trainer

        trainer.TensorFlowTrainer._maybe_symbolic_build = build_from_element_spec
        if is_needed and not _reduces_scalars(trainer, strategy):
            trainer.reduce_per_replica = _with_scalar_mean(trainer.reduce_per_replica)
    elif is_needed and not can_fit(strategy):
        raise ValueError(
            f"Keras's `fit` fails over several workers ({ISSUE}), which keras_attn corrects in "
            f"Keras {PATCHED_VERSION} only: install keras=={PATCHED_VERSION}.*. "
            f"Received: Keras {keras.__version__}."
        )


def can_fit(strategy):
    """Return True if a model of one weight trains under `strategy`; call it in all workers."""
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


def build_from_element_spec(self, iterator=None, data_batch=None):
    """Replace `TensorFlowTrainer._maybe_symbolic_build`; read shapes instead of a batch."""
    parts = (self, self.optimizer, self._compile_loss, self._compile_metrics)
    if self._distribute_strategy is None or all(part is None or part.built for part in parts):
        return  # Keras would trace the model again in each `fit` and `evaluate`.
    if iterator is not None:
        specs = iterator._get_iterator().element_spec
        data_batch = keras.tree.map_structure(_replica_spec, specs)
    with self._distribute_strategy.scope():
        self._symbolic_build(data_batch=data_batch)


def _replica_spec(spec):
    """Return the symbolic tensor of one replica's part; None for a part without a shape."""
    spec = getattr(spec, "_value_specs", [spec])[0]
    if not hasattr(spec, "shape"):
        return None  # such as absent sample weights
    return keras.KerasTensor(tuple(spec.shape), spec.dtype.name)


def _reduces_scalars(trainer, strategy):
    import tensorflow as tf

    try:
        trainer.reduce_per_replica(tf.constant(1.0), strategy, "mean")
    except ValueError:
        return False
    return True


def _with_scalar_mean(original):
    """Return `reduce_per_replica` that averages the replicas' values as whole numbers."""

    def reduce_per_replica(values, strategy, reduction):
        import tensorflow as tf

        is_multi_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if not is_multi_worker or reduction not in ("auto", "mean"):
            return original(values, strategy, reduction)
        return keras.tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
