"""BPE dropout: sentences that are segmented anew in each epoch."""

import numpy as np
import sentencepiece


class SubwordDropoutBatches:
    """Batches of the same pairs as plain ones, each sentence in other pieces in each epoch.

    Each merge of two pieces is left out with the probability `rate`. The segmentation is a function
    of `(seed, epoch, index)`, so that a resumed run reads the same batches. A batch has the pairs,
    and an epoch the batches, that they have without dropout; the rows are longer. A sentence that
    would be longer than `max_length` keeps its plain segmentation.

    Args:
        batches: a `keras_attn.text.TokenBatches`.
        tokenizer: a `keras_attn.text.SentencePiece` of type "bpe".
        rate: float in [0, 1).
        max_length: int. Longest row, the last token included.
        seed: int.

    Differs from the paper: a pair of pieces that has been left out stays out, unless one of the two
        grows by another merge; the paper draws again at each merge of the word.

    Reference: Provilkov et al., 2020 (https://arxiv.org/abs/1910.13267), section 4.
    """

    def __init__(self, batches, tokenizer, rate, max_length, seed):
        self._batches, self._tokenizer, self._rate = batches, tokenizer, rate
        self._max_length, self._seed = max_length, seed
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())

    def __len__(self):
        return len(self._batches)

    def batch(self, epoch, index):
        """Return the batch at an index of an epoch, in the form of `TokenBatches`."""
        inputs, labels = self._batches.batch(epoch, index)
        rows = [*inputs["source_ids"], *labels]
        rows = self._segmented(rows, [self._seed, epoch, index])
        sources, targets = rows[: len(labels)], rows[len(labels) :]
        begun = [[self._tokenizer.bos_id, *row[:-1]] for row in targets]
        inputs = {"source_ids": self._padded(sources), "target_ids": self._padded(begun)}
        return inputs, self._padded(targets)

    def _segmented(self, rows, seed):
        """Return rows of ids, each with its end, of the same texts in other pieces."""
        plain = [row[row != self._tokenizer.pad_id].tolist() for row in rows]
        texts = self._tokenizer.decode_as_strings(plain)
        number = int(np.random.SeedSequence(seed).generate_state(1)[0]) // 2
        sentencepiece.set_random_generator_seed(number)
        # The library's threads begin with the seed that is set, and it starts new ones for each
        # list; of one thread alone the order of the sentences is known.
        how = {"enable_sampling": True, "alpha": self._rate, "nbest_size": -1, "num_threads": 1}
        segmented = [[*ids, self._tokenizer.eos_id] for ids in self._processor.encode(texts, **how)]
        most = self._max_length
        return [b if len(b) <= most else a for a, b in zip(plain, segmented, strict=True)]

    def _padded(self, rows):
        width = max(map(len, rows))
        return np.array([row + [self._tokenizer.pad_id] * (width - len(row)) for row in rows], "i4")
