"""Training of a model by the logits of a trained one."""

import collections

import keras
from keras import ops

from keras_attn.backend.replicas import num_replicas
from keras_attn.ops.checks import check_numbers, check_shape, check_that
from keras_attn.ops.token_losses import element_weights, reduce_losses, token_weights
from keras_attn.registry import BuildsOptimizer, Configurable, register, revive

# `added` is the sum of the losses that the student's layers add.
Logits = collections.namedtuple("Logits", ["student", "teacher", "added"])


@register
class Distillation(Configurable, BuildsOptimizer, keras.Model):
    """Train a model on its labels and on the probabilities that a teacher gives.

        loss = (1 - weight) L + weight T^2 mean over i of KL(softmax(v_i / T) || softmax(z_i / T))
            + A

    where L is the compiled loss of the model's logits z, v are the teacher's logits, T is the
    temperature, and A are the losses that the model's layers add, such as the balance of experts or
    a regularizer. The mean is over the real tokens of all replicas. No gradient reaches the
    teacher, which runs as in inference; its `trainable` is set to False.

    It wraps the model that is used afterwards: `fit` the wrapper, and take `.model` to generate and
    export. `evaluate` and `predict` are those of the model. Everything is float64 if the logits
    are, else float32. Cost: a step of the model, and a forward pass of the teacher.

    Use it for small models that imitate a large one with the same classes.

    Args:
        model: a functional model whose output is logits (..., V).
        teacher: another such model, with the same inputs and V.
        temperature: float of at least 1e-6. T; a value above 1 flattens both distributions.
        weight: float in [0, 1]. Weight of the teacher's term.
        ignore_class: int. Positions with this label do not count; None counts all.

    Call arguments:
        inputs: as the model's.

    Returns:
        The model's logits (B, ..., V); while `fit` trains, with those of the teacher.

    Raises:
        ValueError: if a model gives no logits, both are the same model or differ in V,
            `temperature` is below 1e-6, or `weight` is not in [0, 1].

    Example:
        >>> import keras
        >>> from keras_attn.losses import Distillation
        >>> small, large = (keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        ...                 for _ in range(2))
        >>> trained = Distillation(small, large, temperature=4.0, ignore_class=None)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> trained.compile("adam", loss)
        >>> history = trained.fit(keras.ops.ones((5, 4)), keras.ops.ones((5,)), verbose=0)

    Differs from the paper: none; the paper leaves the two weights open.

    Reference: [Hinton et al., 2015](https://arxiv.org/abs/1503.02531), section 2.
    """

    def __init__(self, model, teacher, temperature=2.0, weight=0.5, ignore_class=0, **kwargs):
        super().__init__(**kwargs)
        model, teacher = revive(model), revive(teacher)
        for name, value in {"model": model, "teacher": teacher}.items():
            has_logits = len(getattr(value, "outputs", ())) == 1
            check_that(has_logits, "a functional model that gives logits", **{name: value})
        check_that(teacher is not model, "another model than `model`", teacher=teacher)
        *others, classes = model.outputs[0].shape
        check_shape(teacher.outputs[0], "teacher.output", (*[None] * len(others), classes))
        check_numbers(1e-6, temperature=temperature)  # logits are divided by it
        check_numbers(0, weight=weight)
        check_that(weight <= 1, "in [0, 1]", weight=weight)
        self.model = model
        self.teacher = teacher
        teacher.trainable = False
        self.temperature = temperature
        self.weight = weight
        self.ignore_class = ignore_class
        self.built = True

    def call(self, inputs, training=None):
        logits = self.model(inputs, training=training)
        if not training:
            return logits
        added = _total(self.model.losses)  # JAX gives them here alone
        return Logits(logits, self.teacher(inputs, training=False), added)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, Logits):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = super().compute_loss(x, y, y_pred.student, sample_weight, training)
        divergence = ops.cast(self._divergence(y, y_pred, sample_weight), loss.dtype)
        # The loss of Keras holds those that the layers of both models add.
        label_loss = loss - ops.cast(_total(self.losses), loss.dtype)
        added = ops.cast(y_pred.added, loss.dtype)
        return (1 - self.weight) * label_loss + self.weight * divergence + added

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if isinstance(y_pred, Logits):
            y_pred = y_pred.student
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _divergence(self, labels, logits, sample_weight):
        """Return T^2 times the mean divergence: this replica's share."""
        labels = ops.convert_to_tensor(labels)
        check_shape(labels, "y", tuple(logits.student.shape[:-1]))
        dtype = keras.backend.result_type(logits.student.dtype, "float32")
        student, teacher = (ops.cast(x, dtype) / self.temperature for x in logits[:2])
        student, teacher = ops.log_softmax(student), ops.log_softmax(ops.stop_gradient(teacher))
        losses = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
        real = token_weights(labels, self.ignore_class, dtype=dtype)
        losses = ops.where(ops.equal(real, 0.0), 0.0, losses)
        if sample_weight is not None:
            sample_weight = element_weights(losses, sample_weight, dtype)
        mean = reduce_losses(losses, real, sample_weight, "sum_over_batch_size")
        return self.temperature**2 * mean


def _total(losses):
    """Return the sum of added losses, as a replica counts them."""
    dtype = keras.config.floatx()  # of Keras's sum of all losses
    total = ops.zeros((), dtype)
    for loss in losses:
        total = total + ops.sum(ops.cast(loss, dtype))
    return total / num_replicas()
