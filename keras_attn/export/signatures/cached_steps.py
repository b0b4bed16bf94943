"""Signatures of models that generate, step by step: the client holds the cache."""

import keras
import tensorflow as tf

from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    ids_function,
    ids_signature,
    length_mask,
    nearest_ids,
)
from keras_attn.generation.loop import DecodingOptions, Inputs, read_prompt
from keras_attn.generation.tokens import start_of


class CachedSteps(ModelFunctions):
    """Model that generates as graph functions; the client holds a cache that grows.

        logits_1, state_1 = start(prompt),   logits_{t+1}, state_{t+1} = step(token_t, state_t)

    The state is all that `start` returns beside the logits: the keys and values of each layer
    (B, N, M, H), of a causal model `padding_mask` bool (B, M), of an encoder-decoder the keys and
    values of the encoded source and its `mask` bool (B, S). A step takes the state, and returns the
    parts that it changes, with a slot more for each of its tokens. Time O(M) a token.

    Args:
        model: an `EncoderDecoder`, or a `CausalLanguageModel` without a memory.
        bos_id: int. The token before the first target token of an encoder-decoder, by default
            that of the model, or 2.
    """

    def __init__(self, model, bos_id=None):
        super().__init__(model)
        self._model, self._pad_id = model, getattr(model, "pad_id", 0) or 0
        self._step_embedding = getattr(model, "target_embedding", None) or model.embedding
        if bos_id is None and not model.reads_prompt:
            bos_id = start_of(model)
        self._options = DecodingOptions(1, bos_id, eos_ids=(-1,), grows=True, capacity=1)
        constants, cache = model.start(tf.ones((1, 1), tf.int32), None)
        self._structures = constants, cache["layers"]  # which a step packs
        states = self._example_states()
        names = () if model.reads_prompt else ("source_ids", "source_lengths")
        tokens = tf.TensorSpec([None, None], tf.int32, "token_ids")

        def step(token_ids, *tensors):
            """Map ids [B, T] and a state to `logits` [B, T, V] and what changes of the state."""
            return self._step(token_ids, dict(zip(states[0], tensors, strict=True)))

        self.start = ids_function(self._start, *names)
        self.step = tf.function(step, [tokens, *specs_of(*states)], autograph=False)
        if model.reads_prompt:
            self.logits = ids_function(self._logits_of_prompts)
        else:
            specs = [*ids_signature(*names), tf.TensorSpec([None, None], tf.int32, "target_ids")]
            self.logits = tf.function(self._logits_of_targets, specs, autograph=False)

    @property
    def signatures(self):
        return {"logits": self.logits, "start": self.start, "step": self.step}

    def _example_states(self):
        """Return states, dicts, whose shapes differ in the axes that prompts and steps change."""
        started = [self._start(tf.ones((1, n), tf.int32), tf.constant([n])) for n in (1, 2)]
        states = [{name: x for name, x in each.items() if name != "logits"} for each in started]
        later = self._step(tf.ones((1, 1), tf.int32), states[0])
        return [*states, {name: later.get(name, x) for name, x in states[0].items()}]

    def _start(self, ids, lengths):
        """Map prompts or sources [B, S] to `logits` [B, 1, V] of the next token, and a state."""
        mask = length_mask(ids, lengths)
        ids = self.known_ids(tf.where(mask, ids, self._pad_id))
        prompt = read_prompt(self._model, Inputs(ids, mask), self._options, 0)
        state = {
            name: x
            for key, structure in prompt.constants.items()
            for name, x in flatten(key, structure).items()
        }
        state |= flatten("cache", prompt.cache["layers"])
        if self._model.reads_prompt:
            state["padding_mask"] = prompt.padding_mask
        return {"logits": tf.cast(tf.expand_dims(prompt.logits, 1), tf.float32), **state}

    def _step(self, token_ids, state):
        constants, layers = self._structures
        constants = {name: unflatten(name, x, state) for name, x in constants.items()}
        layers = unflatten("cache", layers, state)
        token_ids = nearest_ids(token_ids, self._step_embedding)
        count, attention, more = tf.shape(token_ids)[1], {}, {}
        if self._model.reads_prompt:
            mask = tf.concat([state["padding_mask"], tf.ones_like(token_ids, tf.bool)], axis=1)
            # A slot of padding has the position of the token before it, and no query reads it.
            slots = tf.maximum(tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1, 0)
            attention, more = {"padding_mask": mask, "key_positions": slots}, {"padding_mask": mask}
            positions = slots[:, tf.shape(mask)[1] - count :]
        else:
            num_filled = tf.shape(keras.tree.flatten(layers)[0])[2]
            positions = num_filled + tf.range(count)
        cache = {"index": None, "layers": layers}
        logits, cache = self._model.step(token_ids, constants, cache, positions, **attention)
        state = flatten("cache", cache["layers"]) | more
        return {"logits": tf.cast(logits, tf.float32), **state}

    def _logits_of_prompts(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `logits` [B, T, V]."""
        token_ids = self.read_ids(token_ids, lengths, self._pad_id, self._model.max_length)
        return {"logits": tf.cast(self._model({"token_ids": token_ids}), tf.float32)}

    def _logits_of_targets(self, source_ids, source_lengths, target_ids):
        """Map sources [B, S] with `source_lengths` [B] and targets [B, T] to `logits` [B, T, V].

        The targets begin with `bos_id`, as what the decoder reads.
        """
        mask = length_mask(source_ids, source_lengths)
        source_ids = self.known_ids(tf.where(mask, source_ids, self._pad_id))
        constants, cache = self._model.start(source_ids, None, mask)
        target_ids = nearest_ids(target_ids, self._step_embedding)
        positions = tf.range(tf.shape(target_ids)[1])
        logits, _ = self._model.step(target_ids, constants, cache, positions)
        return {"logits": tf.cast(logits, tf.float32)}


def flatten(name, structure):
    """Flatten nested lists and dicts to a dict with names such as "past_0_key"."""
    paths = keras.tree.flatten_with_path(structure)
    return {"_".join(map(str, (name, *path))): tensor for path, tensor in paths}


def unflatten(name, like, tensors):
    """Invert `flatten`: pack named tensors into the structure of `like`."""
    return keras.tree.pack_sequence_as(like, [tensors[key] for key in flatten(name, like)])


def specs_of(*states):
    """Return a `TensorSpec` for each tensor of a state, of which there are several examples.

    Axis 0 has any size, and so have the axes in which the examples differ.
    """
    specs = []
    for name, x in states[0].items():
        shapes = zip(*(state[name].shape for state in states), strict=True)
        shape = [n[0] if axis and len({*n}) == 1 else None for axis, n in enumerate(shapes)]
        specs.append(tf.TensorSpec(shape, x.dtype, name))
    return specs
