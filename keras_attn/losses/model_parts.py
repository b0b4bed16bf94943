"""Parts of a model that auxiliary losses run one by one."""

import keras

from keras_attn.depth.reversible import Reversible


def split_model(model):
    """Return two functions that run the model's layers as in training.

    The first returns logits and each layer's output; the second logits of any layer's output.
    """
    depth = getattr(model, "depth", None)
    if isinstance(depth, Reversible):
        raise ValueError(
            "`model` must give each layer's output, which a `Reversible` depth does not keep. "
            f"Received: model={model!r}."
        )
    if not hasattr(depth, "blocks") or not isinstance(model.output, keras.KerasTensor):
        raise ValueError(
            "`model` must give logits and have a `depth` that is a `Stack`, as a "
            f"`CausalLanguageModel` without a memory. Received: model={model!r}."
        )
    before = keras.Model(model.input, depth.input)
    after = keras.Model(depth.output, model.output)
    after.supports_masking = True

    def run(inputs):
        x = before(inputs, training=True)
        x, hidden_states = depth(x, return_hidden_states=True, training=True)
        # The last layer's is what the model itself reads, after a closing norm, if there is one.
        return after(x, training=True), [*hidden_states[:-1], x]

    def classify(hidden):
        return after(hidden if depth.norm is None else depth.norm(hidden), training=True)

    return run, classify
