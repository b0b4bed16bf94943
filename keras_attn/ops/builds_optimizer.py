"""A mixin of models that train with one trace of their step."""


class BuildsOptimizer:
    """Mixin of a built model that builds its optimizer before the first step.

    Variables made inside the first step would make TensorFlow trace the step twice. Put the mixin
    before `keras.Model`.
    """

    def make_train_function(self, force=False):
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)
