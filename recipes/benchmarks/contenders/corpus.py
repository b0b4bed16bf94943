"""Batches of a corpus in files, and a loop that reads nothing."""

import os
import time

from ..workload import FIRST_WORD, Task

VOCABULARY_SIZE = 8000
BATCH, CONTEXT = 32, 1024
_DOCUMENT = 2**20  # tokens


def make_corpus(folder, num_tokens, num_shards):
    """Write random token ids as a corpus, unless the folder has it; refuse another one."""
    import numpy as np

    from keras_attn import text

    class Random:
        vocabulary_size, tool = VOCABULARY_SIZE, {"random": "0"}

    if os.path.exists(os.path.join(folder, "manifest.json")):
        held, wanted = len(text.TokenFiles(folder)), num_tokens // num_shards * num_shards
        if held != wanted:
            raise ValueError(f"{folder} must have a corpus of {wanted} tokens. Received: {held}.")
        return
    generator, names = np.random.default_rng(0), []
    for part in range(num_shards):
        left = num_tokens // num_shards
        with text.TokenWriter(folder, "train", part, Random()) as shard:
            while left:
                size = min(left, _DOCUMENT)
                shard.add(generator.integers(FIRST_WORD, VOCABULARY_SIZE, size, "uint16"))
                left -= size
        names.append(shard.name)
    text.Characters("a").save(os.path.join(folder, "tokenizer.model"))
    text.Manifest.make(folder, {"train": names}, {}, {})


def reading(folder, batches, way):
    """Batches of segments in a "random" order, in that of the "streams", or "none"."""
    from keras_attn import text

    from ...text.segments import EndlessStreams, ShuffledSegments

    files = text.TokenFiles(folder)
    if way == "streams":
        streams = text.SegmentStreams(files, BATCH, CONTEXT)
        made = EndlessStreams(streams, batches)
    else:
        made = ShuffledSegments(files, CONTEXT, BATCH, batches, 0)
    epoch, facts = iter(range(10**9)), {}

    def call():
        number = next(epoch)
        for index in range(batches if way != "none" else 0):
            made.batch(number, index)

    if way != "none":
        started = time.perf_counter()
        for start in range(0, len(files), len(files) // 64):
            files[start]
        facts["hash_seconds"] = time.perf_counter() - started
    return Task(call=call, units=batches * BATCH * CONTEXT, facts=facts)
