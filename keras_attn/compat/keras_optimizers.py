"""State and hooks of Keras's optimizers.

Private: `keras.optimizers.Adam._momentums`, `_velocities` and `_get_variable_index`;
`keras.optimizers.Optimizer._backend_apply_gradients`, and on TensorFlow
`_all_reduce_sum_gradients`. Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/optimizers/base_optimizer.py and
https://github.com/keras-team/keras/blob/master/keras/src/backend/tensorflow/optimizer.py
Remove `adam_moments` when Keras itself uses a fused operation on TensorFlow, and
`SumBeforeClipping` when it sums gradients over replicas before it clips them.
"""

import keras


def adam_moments(optimizer, variable):
    """Return the two moments (m, v) that an Adam optimizer keeps for a variable."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


class SumBeforeClipping:
    """Optimizer mixin that sums gradients over replicas before it clips them.

    Keras clips the gradients of each replica, then sums them; so `clipnorm`, `global_clipnorm` and
    `clipvalue` depend on the number of replicas. Put the mixin before the optimizer's class.
    """

    def _backend_apply_gradients(self, grads, trainable_variables):
        if _num_replicas() > 1:
            pairs = super()._all_reduce_sum_gradients(zip(grads, trainable_variables, strict=True))
            grads = [gradient for gradient, _ in pairs]
        super()._backend_apply_gradients(grads, trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # summed in `_backend_apply_gradients`


def _num_replicas():
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
