"""keras_attn: `gpt` and `transformer_xl`, trained step by step on given batches."""

from .quality import BETAS, EPSILON, Budget, task


def gpt(folder, seed):
    """A decoder with learned positions, without a memory."""
    from keras_attn import models

    budget = Budget.read(folder, "windows", seed)
    sizes = _start(budget)
    max_length = sizes.pop("context")
    sizes.pop("memory")
    return _task(budget, models.gpt(**sizes, dropout=budget.dropout, max_length=max_length))


def transformer_xl(folder, seed):
    """Segments in the text's order, with a memory."""
    from keras_attn import models

    budget = Budget.read(folder, "segments", seed)
    sizes = _start(budget)
    sizes.pop("context")
    memory_length = sizes.pop("memory")
    how = {"dropout": budget.dropout, "attention_dropout": budget.dropout}
    return _task(budget, models.transformer_xl(**sizes, **how, memory_length=memory_length))


def _start(budget):
    import keras

    keras.utils.set_random_seed(budget.seed)
    return dict(budget.sizes)


def _task(budget, model):
    import keras
    import numpy as np

    from keras_attn import losses, memory, optimizers

    rows = budget.batches["tokens"].shape[1]
    trained = model if model.memory is None else memory.StatefulSegments(model, rows)
    optimizer = optimizers.Adam(
        0.0, *BETAS, epsilon=EPSILON, global_clipnorm=budget.clip_norm or None
    )
    trained.compile(optimizer, losses.LabelSmoothedCrossentropy(0.0), jit_compile=False)

    def inputs_of(tokens, reset):
        inputs = {"token_ids": tokens}
        if model.memory is not None:
            inputs["reset"] = np.full(rows, reset)
        return inputs

    def train(tokens, targets, reset, step):
        optimizer.learning_rate = budget.rate(step)
        trained.reset_metrics()  # else the loss is the mean of all steps
        return trained.train_on_batch(inputs_of(tokens, reset), targets)

    def predict(tokens, reset):
        return keras.ops.convert_to_numpy(trained.predict_on_batch(inputs_of(tokens, reset)))

    return task(budget, model.count_params(), train, predict)
