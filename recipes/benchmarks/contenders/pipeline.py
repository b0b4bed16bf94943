"""Three ways to batch real sentences, and their padding: alone, and in training."""

import functools

from ..workload import Task
from .fit import LEARNING_RATE

NAIVE, BUCKETS, PACKED = WAYS = ("naive", "buckets", "packed")
MATRIX = "packed, by an attention mask"
SMALL = {"num_layers": 4, "num_heads": 4}


def alone(path, way, tokens_per_batch, row_length):
    """One pass over the dataset that `fit` would read."""
    sentences = _load(path)
    dataset = _batches(sentences, way, tokens_per_batch, row_length).as_dataset()

    def one_pass():
        for _ in dataset:
            pass

    tokens = sum(len(sentence) + 1 for side in sentences if side for sentence in side)
    return Task(call=one_pass, units=tokens, facts={"batches": len(dataset)})


def training(
    path, model, way, tokens_per_batch, row_length, steps, vocabulary_size, hidden_dim=128
):
    """Optimizer steps under `model.fit` on batches at equal distances in an epoch.

    Args:
        path: of a file that `save` wrote.
        model: name of a preset that translates; or "gpt", small, for a file without sources.
        way: one of `WAYS`; or for "gpt" `MATRIX`, which keeps documents apart by a mask of pairs.
        hidden_dim: width of "gpt".
    """
    import keras
    import tensorflow as tf

    import keras_attn
    from keras_attn.text.batches.datasets import dataset_of

    if model == "gpt":
        widths = {"hidden_dim": hidden_dim, "intermediate_dim": 4 * hidden_dim}
        built = keras_attn.models.gpt(vocabulary_size, **SMALL, **widths, max_length=row_length)
    else:
        built = keras_attn.models.create(model, vocabulary_size=vocabulary_size)
    built.compile(
        keras_attn.optimizers.Adam(LEARNING_RATE),
        keras_attn.losses.LabelSmoothedCrossentropy(),
        jit_compile=False,
    )
    if way == MATRIX:
        built.packed = functools.partial(_by_attention_mask, built)
        way = PACKED
    sentences = _load(path)
    # Not shuffled: a few buckets at random may be all short.
    made = _batches(sentences, way, tokens_per_batch, row_length, shuffle=False)
    batches = [made[(2 * step + 1) * len(made) // (2 * steps)] for step in range(steps)]
    if way != PACKED and model == "gpt":
        batches = [({"token_ids": inputs["target_ids"]}, labels) for inputs, labels in batches]
    # One shape only where all batches have one, as from `as_dataset`.
    shape = batches[0][1].shape if way == PACKED else (None, None)
    signature = keras.tree.map_structure(lambda _: tf.TensorSpec(shape, tf.int32), batches[0])
    dataset = dataset_of(lambda rows: map(rows.cut, batches), signature, len(batches))
    ids = [x for inputs, _ in batches for name, x in inputs.items() if "segment" not in name]
    real = sum(int((x != 0).sum()) for x in ids)
    return Task(
        call=lambda: built.fit(dataset, epochs=1, verbose=0),
        units=real,
        facts={
            "parameters": built.count_params(),
            "padding": 1 - real / sum(x.size for x in ids),
            "tokens a batch": real / len(batches),
        },
    )


def _by_attention_mask(model, token_ids, segment_ids):
    """Compute what `model.packed` does from a mask (B, T, T) and the positions that it gives."""
    from keras import ops

    from keras_attn.attention.segments import same_segment

    mask = same_segment(segment_ids, segment_ids)
    index = ops.arange(segment_ids.shape[1])
    earlier = ops.logical_and(mask, index[None, :] < index[:, None])
    places = ops.sum(ops.cast(earlier, "int32"), axis=2)
    x = model.drop(model.position(model.embedding(token_ids), places))
    arguments = {"query_positions": places, "key_positions": places}
    return model.embedding.logits(model.depth(x, attention_mask=mask, **arguments))


def save(path, sources, targets):
    """Save token ids for contenders; `sources` may be None."""
    import numpy as np

    sides = {"targets": targets} if sources is None else {"sources": sources, "targets": targets}
    arrays = {}
    for name, sentences in sides.items():
        arrays[name] = np.concatenate(sentences)
        arrays[f"{name}_ends"] = np.cumsum([*map(len, sentences)])
    np.savez(path, **arrays)


def _load(path):
    import numpy as np

    with np.load(path) as file:
        return tuple(
            np.split(file[name], file[f"{name}_ends"])[:-1] if name in file else None
            for name in ("sources", "targets")
        )


def _batches(sentences, way, tokens_per_batch, row_length, shuffle=True):
    """Return the batches of one of the `WAYS`; without sources the targets take their place."""
    from keras_attn.text import PackedBatches, TokenBatches

    if way == PACKED:
        return PackedBatches(*sentences, tokens_per_batch, row_length, shuffle=shuffle)
    sources, targets = sentences
    sides = (targets if sources is None else sources, targets)
    buckets = TokenBatches(*sides, tokens_per_batch, shuffle=shuffle)
    return buckets if way == BUCKETS else _InAnyOrder(*sides, len(buckets))


class _InAnyOrder:
    """Shuffled batches of a fixed number of pairs, each padded to its longest."""

    def __init__(self, sources, targets, number):
        import numpy as np

        order = np.random.default_rng(0).permutation(len(targets))
        self._sides = sources, targets
        self._batches = np.array_split(order, number)

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        from keras_attn.text import TokenBatches

        rows = self._batches[index]
        sides = ([side[row] for row in rows] for side in self._sides)
        no_limit = len(rows) * max(len(side[row]) + 1 for side in self._sides for row in rows)
        return TokenBatches(*sides, no_limit + len(rows), multiple=1)[0]
