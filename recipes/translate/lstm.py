"""An LSTM encoder and decoder with additive attention: translation before the Transformer."""

import keras
from keras import ops

from keras_attn import layers, scores
from keras_attn.attention.cache import add_slots
from keras_attn.models.assembly import drop_symbolic, real_tokens, token_input
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import size, sizes

_ARGUMENTS = ("vocabulary_size", "num_layers", "hidden_dim", "dropout")


@keras.saving.register_keras_serializable(package="recipes")
class LSTMTranslator(Model):
    """LSTM encoder and decoder, between them additive attention.

        h = BiLSTM(E[x]),   s_t = LSTM(E[y_{t-1}], s_{t-1}),   s_0 = tanh(W_0 [last states of h])
        c_t = sum_j a_tj h_j,   a_tj = softmax_j(w . tanh(s_t W_s + h_j W_h)),
        logits_t = E tanh(W [s_t, c_t])

    It has the methods that `keras_attn.generation` and `keras_attn.export` call. The states of all
    tokens so far are its cache, from which a step of a beam search takes those of each beam's last
    token. Cost: O((S + T) D^2 + S T D), of which the LSTMs run one token after another.

    Args:
        vocabulary_size: int. Number of tokens V, the id 0 of padding included.
        num_layers: int. Number of LSTM layers L on each side.
        hidden_dim: int. Width D of the table E, of the decoder, and of each direction of the
            encoder.
        dropout: float. Dropout rate of the embeddings and of what the logits are computed from.

    Call arguments:
        source_ids: int32 (B, S), padded with 0.
        target_ids: int32 (B, T), padded likewise.

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if a size is below 1.

    Example:
        >>> import numpy as np
        >>> from recipes.translate.lstm import LSTMTranslator
        >>> model = LSTMTranslator(11, hidden_dim=8)
        >>> model({"source_ids": np.array([[5, 6, 3]]), "target_ids": np.array([[2, 7]])}).shape
        TensorShape([1, 2, 11])

    Differs from the paper: LSTMs in the place of gated recurrent units; the query is s_t, and c_t
        does not enter the recurrence (Luong et al., 2015), so that `fit` runs the decoder in one
        call; projections of the attention layer before its score; one table for all embeddings.

    Reference: [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), section 3 and appendix A;
        the query and W: [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3, eq. 5.
    """

    reads_prompt = False
    max_length = max_source_length = position = None

    def __init__(self, vocabulary_size, num_layers=1, hidden_dim=256, dropout=0.2, name="lstm"):
        check_sizes(vocabulary_size=vocabulary_size, num_layers=num_layers, hidden_dim=hidden_dim)
        states = {"return_sequences": True, "return_state": True}
        parts = {
            "embedding": layers.TokenEmbedding(vocabulary_size, hidden_dim),
            "encoder": [
                keras.layers.Bidirectional(keras.layers.LSTM(hidden_dim, **states))
                for _ in range(num_layers)
            ],
            "bridges": [
                keras.layers.Dense(2 * hidden_dim, "tanh", name=f"bridge_{layer}")
                for layer in range(num_layers)
            ],
            "decoder": [keras.layers.LSTM(hidden_dim, **states) for _ in range(num_layers)],
            "attention": layers.MultiHeadAttention(
                1, hidden_dim, score=scores.Additive(), output_shape=hidden_dim, name="attention"
            ),
            "readout": keras.layers.Dense(hidden_dim, "tanh", name="readout"),
            "drop": keras.layers.Dropout(dropout),
        }
        inputs = {name: token_input(name) for name in ("source_ids", "target_ids")}
        super().__init__(inputs=inputs, outputs=_logits(**parts, **inputs), name=name)
        for part, value in parts.items():
            setattr(self, part, value)
        for argument, value in zip(
            _ARGUMENTS, (vocabulary_size, num_layers, hidden_dim, dropout), strict=True
        ):
            setattr(self, argument, value)

    def get_config(self):
        return {"name": self.name, **{name: getattr(self, name) for name in _ARGUMENTS}}

    def start(self, inputs, max_length, padding_mask=None, whole=True):
        """Encode the source (B, S), as `EncoderDecoder.start` does.

        Returns:
            The constants of all steps; and the empty cache, with slots for the states (B, L, M, D)
            of `max_length` tokens, or one that grows.
        """
        source_ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
        context, mask, initial = self._encode(source_ids, padding_mask)
        constants = {
            "context": self.attention.context_cache(context),
            "mask": mask,
            "initial": [ops.stack(states, axis=1) for states in zip(*initial, strict=True)],
        }
        batch_size, slots = ops.shape(context)[0], 0 if max_length is None else max_length
        shape = (batch_size, self.num_layers, slots, self.hidden_dim)
        cache = {name: ops.zeros(shape, self.compute_dtype) for name in ("hidden", "cell")}
        if max_length is not None:
            cache["index"] = ops.convert_to_tensor(0, "int32")
        return constants, cache

    def step(self, token_ids, constants, cache, positions, key_positions=None, attention_mask=None):
        """Return logits (B, T, V) after `token_ids` (B, T), and the new cache.

        Without a mask the tokens follow each other. With `attention_mask` (B, 1, T, M) and
        `key_positions` (M,) they are the next tokens of T beams, and a beam's mask shows the slots
        of its tokens.
        """
        if (key_positions is None) != (attention_mask is None):
            raise ValueError(
                "An LSTM continues from its last token: `key_positions` need an `attention_mask`, "
                "as a beam search gives both. Received: one of them."
            )
        x, outputs = self.embedding(token_ids), []
        if attention_mask is not None:
            x, cache = self._advance(x, constants, cache, positions, key_positions, attention_mask)
            return self._attend(x, constants), cache
        for number in range(token_ids.shape[1]):
            output, cache = self._advance(x[:, number : number + 1], constants, cache)
            outputs.append(output)
        return self._attend(ops.concatenate(outputs, axis=1), constants), cache

    def cross_attention(self, inputs, padding_mask=None):
        """Return the attention of each target token to the source, (B, 1, 1, T, S), float32."""
        context, mask, initial = self._encode(inputs["source_ids"], padding_mask)
        x = self.embedding(ops.convert_to_tensor(inputs["target_ids"]))
        x = _run_decoder(self.decoder, x, initial)
        _, weights = self.attention(x, context, value_mask=mask, return_attention_scores=True)
        return weights[:, None]

    def _encode(self, source_ids, mask=None):
        """Return the encoded source (B, S, 2 D), its mask, and the decoder's states (L, 2)."""
        source_ids = ops.convert_to_tensor(source_ids)
        mask = real_tokens(source_ids, self.pad_id) if mask is None else mask
        x, initial = _run_encoder(self.encoder, self.bridges, self.embedding(source_ids), mask)
        return x, mask, initial

    def _advance(self, x, constants, cache, *beams):
        """Run the decoder for one more token of each beam, x (B, T, D); return its outputs too."""
        names, index = ("hidden", "cell"), cache.get("index")
        chosen = _parents(size(cache["hidden"], 2), index, *beams)
        states = [
            _select(initial, cache[name], chosen)
            for name, initial in zip(names, constants["initial"], strict=True)
        ]
        batch_size, length, width = sizes(x)
        x, after = ops.reshape(x, (-1, width)), []
        for layer, *before in zip(self.decoder, *(ops.unstack(s, axis=1) for s in states)):
            rows = [ops.reshape(state, (-1, width)) for state in before]
            x, new = layer.cell(x, rows)
            after.append([ops.reshape(state, (batch_size, length, width)) for state in new])
        x = ops.reshape(x, (batch_size, length, width))
        new = {
            name: add_slots(cache[name], ops.stack(states, axis=1), index)
            for name, states in zip(names, zip(*after, strict=True), strict=True)
        }
        return x, new if index is None else {**new, "index": index + length}

    def _attend(self, x, constants):
        """Return the logits of the decoder's outputs (B, T, D)."""
        c, _ = self.attention(x, value_mask=constants["mask"], cache=constants["context"])
        return self.embedding.logits(self.readout(ops.concatenate([x, c], axis=-1)))


def _logits(source_ids, target_ids, embedding, encoder, bridges, decoder, attention, readout, drop):
    """Return the symbolic logits of the whole target."""
    mask = real_tokens(source_ids, embedding.pad_id)
    source, target = (drop_symbolic(drop, embedding(ids)) for ids in (source_ids, target_ids))
    context, initial = _run_encoder(encoder, bridges, source, mask)
    x = _run_decoder(decoder, target, initial)
    c = attention(x, context, value_mask=mask)
    x = readout(ops.concatenate([x, c], axis=-1))
    return embedding.logits(drop_symbolic(drop, x))


def _run_encoder(layers, bridges, x, mask):
    """Return the last layer's outputs, and the decoder's first states of each layer."""
    initial = []
    for layer, bridge in zip(layers, bridges, strict=True):
        x, *states = layer(x, mask=mask)
        initial.append(ops.split(bridge(ops.concatenate(states, axis=-1)), 2, axis=-1))
    return x, initial


def _run_decoder(layers, x, initial):
    for layer, states in zip(layers, initial, strict=True):
        x, *_ = layer(x, initial_state=states)
    return x


def _parents(num_slots, index, positions=None, key_positions=None, attention_mask=None):
    """Return a mask of the slot of the token before each new one, (T, M) or (B, T, M).

    A row without such a slot is that of a first token. `index` counts the filled slots, None if all
    are.
    """
    if attention_mask is None:
        slots = ops.arange(num_slots, dtype="int32")
        return ops.equal(slots, (num_slots if index is None else index) - 1)[None]
    is_before = ops.equal(key_positions[..., None, :], positions[..., None] - 1)
    return ops.logical_and(attention_mask[:, 0], is_before)[..., :num_slots]


def _select(initial, states, chosen):
    """Return the states (B, L, T, D) in the chosen slots; where there is none, the initial ones."""
    weights = ops.cast(chosen, states.dtype)
    first = 1 - ops.sum(weights, axis=-1, keepdims=True)
    weights = ops.concatenate([first, weights], axis=-1)
    weights = weights[:, None] if len(weights.shape) == 3 else weights
    return ops.matmul(weights, ops.concatenate([initial[:, :, None], states], axis=2))
