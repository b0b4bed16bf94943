"""A text cut into segments: stacks that read it so, and the papers' loops in float64.

Letters as in `oracles`; M memory length, L layers. Rows may be cut differently: `counts` (B, number
of segments) says how many tokens of each row are in each segment, the rest of which is padding.
"""

import numpy as np
import oracles
from keras import ops

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.memory import SegmentMemory
from keras_attn.norms import LayerNorm
from keras_attn.residuals import PostNorm, PreNorm

B, T, N, H, D, F, L = 3, 11, 4, 5, 6, 7, 2
X = oracles.random(B, T, D)
EPSILON = 1e-3
RESIDUALS = {"post": PostNorm(LayerNorm(EPSILON)), "pre": PreNorm(LayerNorm(EPSILON))}


def built(residual="post", pattern="causal", score="relative", layers=L, **arguments):
    def block(index):
        attention = {"score": score, "pattern": pattern, "use_bias": False, **arguments}
        return TransformerBlock(
            MultiHeadAttention(N, H, **attention), FeedForward(F), residual=RESIDUALS[residual]
        )

    stack = Stack(block, layers)
    stack.build(X.shape)
    oracles.scramble(stack, scale=0.8)
    return stack


def spread(rows, counts):
    """Rows (B, T, ...) as padded segments, and which of their places are real."""
    starts = np.cumsum(counts, axis=1) - counts
    for s in range(counts.shape[1]):
        width = max(counts[:, s].max(), 1)
        segment = np.zeros((len(rows), width, *rows.shape[2:]), rows.dtype)
        for b, row in enumerate(rows):
            segment[b, : counts[b, s]] = row[starts[b, s] : starts[b, s] + counts[b, s]]
        yield segment, np.arange(width) < counts[:, s, None]


def gather(segments, counts):
    """Padded segments as rows (B, T, ...) again."""
    return np.stack(
        [
            np.concatenate([np.asarray(x)[b, : counts[b, s]] for s, x in enumerate(segments)])
            for b in range(len(counts))
        ]
    )


def same_cuts(lengths):
    """`counts` of rows cut alike."""
    return np.tile(lengths, (B, 1))


def run(stack, x, counts, memory_length, masked=True):
    """Outputs of rows x (B, T, D) read segment by segment, and the last state."""
    memory = SegmentMemory(memory_length)
    state = memory.initial(len(x), stack.num_layers, x.shape[-1])
    outputs = []
    for segment, real in spread(x, counts):
        mask = real if masked else None
        output, read = stack(segment, padding_mask=mask, **state)
        state = memory.extend(state, read, mask)
        outputs.append(output)
    return gather(outputs, counts), state


def oracle(stack, x, counts, memory_length, pre_norm):
    """The same: each row on its own, each layer with a list of what it read."""
    outputs = []
    for row, lengths in zip(x.astype("float64"), counts, strict=True):
        read = [np.zeros((0, D)) for _ in stack.blocks]
        output, start = [], 0
        for length in lengths:
            h = row[start : start + length]
            start += length
            for index, block in enumerate(stack.blocks):
                past = read[index][max(len(read[index]) - memory_length, 0) :]
                read[index] = np.concatenate([read[index], h])
                h = _block(block, past, h, pre_norm)
            if pre_norm:
                h = oracles.layer_norm(h, *oracles.norm_weights(stack.norm), EPSILON)
            output.append(h)
        outputs.append(np.concatenate(output))
    return np.stack(outputs)


def _block(block, past, h, pre_norm):
    weights = oracles.block_weights(block)
    attention_norm, feed_forward_norm = weights["attention_norm"], weights["feed_forward_norm"]

    def norm(x, parameters, here):
        return oracles.layer_norm(x, *parameters, EPSILON) if here else x

    queries = norm(h, attention_norm, pre_norm)
    keys = norm(np.concatenate([past, h]), attention_norm, pre_norm)
    h = norm(h + relative_attention(block.attention, queries, keys), attention_norm, not pre_norm)
    y = oracles.feed_forward(norm(h, feed_forward_norm, pre_norm), weights["feed_forward"])
    return norm(h + y, feed_forward_norm, not pre_norm)


def relative_attention(layer, queries, keys):
    """Causal attention (T, D) with Transformer-XL's score, the queries the last of the keys."""
    kernels = {
        n: oracles.numpy_of(getattr(layer, f"{n}_kernel")) for n in ("query", "key", "value")
    }
    no_bias = np.zeros(kernels["query"].shape[1:])
    q = oracles.project(queries, kernels["query"], no_bias)
    k, v = (oracles.project(keys, kernels[n], no_bias) for n in ("key", "value"))
    u, v_bias, kernel = (oracles.numpy_of(w) for w in layer.score.weights)
    output_kernel = oracles.numpy_of(layer.output_kernel)
    before = len(keys) - len(queries)
    waves = np.zeros((len(keys), kernel.shape[0]))
    for distance in range(len(keys)):
        waves[distance] = oracles.sinusoids(distance, kernel.shape[0], "concat")
    output = np.zeros(queries.shape)
    for n in range(len(q)):
        by_distance = waves @ kernel[:, n]
        for t in range(len(queries)):
            logits = []
            for s in range(before + t + 1):
                r = by_distance[before + t - s]
                logit = (q[n, t] + u[n]) @ k[n, s] + (q[n, t] + v_bias[n]) @ r
                logits.append(logit / np.sqrt(q.shape[-1]))
            for s, weight in enumerate(oracles.softmax(logits, [True] * len(logits))):
                output[t] += weight * (v[n, s] @ output_kernel[n])
    return output


def state_of(memory, length):
    """A state of numpy arrays."""
    return {"memory": ops.convert_to_tensor(memory), "memory_length": ops.array(length, "int32")}
