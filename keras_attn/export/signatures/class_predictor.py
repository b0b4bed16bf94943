"""Signatures of classifiers: images or ids to probabilities."""

import tensorflow as tf
from keras import ops

from keras_attn.export.signatures.halting import halting_of_ids
from keras_attn.export.signatures.model_functions import ModelFunctions, of_ids


class ClassPredictor(ModelFunctions):
    """Classifier as a graph function.

        probabilities = softmax(logits),   class = argmax(logits)

    Without classes the function is `embed`, which gives the features; with one class it is
    `regress`, which gives the logit as a `value`.

    Args:
        model: a `keras_attn.models.Classifier`.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.vit(3, (4, 4, 1), 2, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16)
        >>> predictor = keras_attn.export.ClassPredictor(model)
        >>> predictor.classify(np.zeros((5, 4, 4, 1), "float32"))["probabilities"].shape
        TensorShape([5, 3])

    Reference: [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.1.
    """

    def __init__(self, model):
        super().__init__(model)

        def classify(inputs):
            """Return `probabilities` [B, K] and `class` [B], or `value` [B], or `features`."""
            logits = model(inputs)
            if model.num_classes is None:
                return {"features": logits}
            if model.num_classes == 1:
                return {"value": logits[:, 0]}
            classes = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return {"probabilities": ops.softmax(logits), "class": classes}

        self.predict = classify
        self.kind = {None: "embed", 1: "regress"}.get(model.num_classes, "classify")
        if model.image_shape is None:
            read = self.reader(model)
            self.classify = of_ids()(lambda token_ids, lengths: classify(read(token_ids, lengths)))
            self._halting = halting_of_ids(model, read)
            if self._halting is not None:
                self.halting = of_ids()(self._halting)
        else:
            images = [tf.TensorSpec([None, *model.image_shape], tf.float32, "images")]
            self.classify = tf.function(classify, images, autograph=False)

    @property
    def signatures(self):
        own = {self.kind: self.classify, "serving_default": self.classify}
        return {**own, **self.halting_signatures}
