"""Tokenizer of a sentence encoder: with the most tokens that it reads, and its prompts."""

import functools
import types

import numpy as np

from keras_attn.ops.checks import check_pad_id, check_sizes, check_that
from keras_attn.text.tokenizers.loading import from_bytes
from keras_attn.text.tokenizers.operations import lower, tf, valid
from keras_attn.text.tokenizers.tokenizer import Tokenizer, check_strings
from keras_attn.text.tokenizers.vocabularies import read_config


class SentenceTokenizer(Tokenizer):
    """Tokenizer that puts a prompt before each text and cuts both to the length of its model.

        encode(text, prompt=name) = tokenizer.encode(prompts[name] + text, max_length)

    Args:
        tokenizer: another `Tokenizer`.
        max_length: int. Most tokens of a text, special tokens included; None for no limit.
        prompts: dict of texts by name. "query" and "document" are "" unless given.
        default_prompt: name of the prompt of texts that name none; None for no prompt.
        lower_case: bool. If True, prompts and texts are read in lower case.
        pad_id: int. Id of padding; by default that of `tokenizer`.

    Raises:
        ValueError: if `default_prompt` is no name of a prompt, or an argument of another kind.

    Example:
        >>> from keras_attn.text import Characters, SentenceTokenizer
        >>> tokenizer = SentenceTokenizer(Characters("abc"), 4, {"query": "c"}, "query")
        >>> tokenizer.encode(["ab"])[0].numpy().tolist()  # c, a, b and the end
        [[6, 4, 5, 3]]
        >>> tokenizer.encode(["ab"], prompt="document")[0].numpy().tolist()
        [[4, 5, 3]]

    Differs from the paper: none; prompts as sentence-transformers has them.

    Reference: [Su et al., 2023](https://arxiv.org/abs/2212.09741), section 2.1.
    """

    def __init__(
        self,
        tokenizer,
        max_length=None,
        prompts=None,
        default_prompt=None,
        lower_case=False,
        pad_id=None,
    ):
        super().__init__()
        check_that(isinstance(tokenizer, Tokenizer), "a `Tokenizer`", tokenizer=tokenizer)
        if max_length is not None:
            special = len(tokenizer.template.start) + len(tokenizer.template.end)
            check_sizes(least=max(1, special), max_length=max_length)
        check_pad_id(pad_id, tokenizer.vocabulary_size)
        texts = {"query": "", "document": "", **(prompts or {})}
        are_texts = all(isinstance(text, str) for pair in texts.items() for text in pair)
        check_that(are_texts, "a dict of strings by name", prompts=prompts)
        names = ", ".join(texts)
        is_known = default_prompt is None or default_prompt in texts
        check_that(is_known, f"None or one of {names}", default_prompt=default_prompt)
        self.tokenizer, self.max_length = tokenizer, max_length
        # Not dicts: TensorFlow would wrap their content.
        self._prompts = types.SimpleNamespace(texts=texts)
        self.default_prompt, self.lower_case = default_prompt, bool(lower_case)
        self.vocabulary_size, self.template = tokenizer.vocabulary_size, tokenizer.template
        self.pad_id = tokenizer.pad_id if pad_id is None else pad_id
        self.unk_id, self.bos_id = tokenizer.unk_id, tokenizer.bos_id
        self.eos_id = tokenizer.eos_id

    @property
    def packages(self):
        return self.tokenizer.packages

    @property
    def prompts(self):
        """The texts of the prompts by name, a dict."""
        return dict(self._prompts.texts)

    def encode(self, text, max_length=None, end=True, prompt=None):
        """Turn a batch of strings into padded ids, as `Tokenizer.encode`, each after its prompt.

        Args:
            text, max_length, end: as `Tokenizer.encode`. No row is longer than the tokenizer's own
                `max_length`.
            prompt: name of a prompt, or a string tensor or list of one name or of one for each
                text; None, and "" unless it is a name, for the `default_prompt`.

        Returns:
            ids: int32 (B, T), padded with `pad_id`.
            lengths: int32 (B,).

        Raises:
            ValueError: if there is no such prompt, or as `Tokenizer.encode`.
            InvalidArgumentError: for a name in a tensor.
        """
        text = self._with_prompts(text, prompt)
        return super().encode(text, self._least_length(max_length), end)

    def encode_pair(self, first, second, max_length=None):
        first = self._with_prompts(first, None)
        return super().encode_pair(first, second, self._least_length(max_length))

    def prompt_lengths(self, text, prompt=None):
        """Return the number of tokens of each text's prompt, int32 (B,), and 0 for an empty one.

        The token at its start counts, one at its end does not.
        """
        index = self._prompt_index(prompt)
        if tf is None:
            return self._lengths_of_prompts[np.broadcast_to(index, len(text))]
        lengths = tf.gather(tf.constant(self._lengths_of_prompts), index)
        return tf.broadcast_to(lengths, tf.shape(text)[:1])

    def vocabulary(self):
        return self.tokenizer.vocabulary()

    def get_config(self):
        return {
            "tokenizer": self.tokenizer.to_bytes(),
            "changes": self.tokenizer.changed_attributes(),
            "max_length": self.max_length,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
            "lower_case": self.lower_case,
            "pad_id": self.pad_id,
        }

    @classmethod
    def from_bytes(cls, content):
        config = read_config(cls.__name__, content)
        try:
            tokenizer = from_bytes(config.pop("tokenizer"), config.pop("changes"))
            return cls(tokenizer, **config)
        except (TypeError, KeyError) as error:
            raise ValueError(f"The file of a {cls.__name__} is damaged: {error}.") from error

    def _least_length(self, max_length):
        lengths = [length for length in (max_length, self.max_length) if length is not None]
        return min(lengths, default=None)

    def _with_prompts(self, text, prompt):
        """Return the texts behind their prompts."""
        index, texts = self._prompt_index(prompt), self._texts
        if tf is None or not tf.is_tensor(text):
            text = check_strings(text=text)
            if isinstance(index, np.ndarray):
                indices = np.broadcast_to(index, len(text))
                return [texts[i] + valid(each) for i, each in zip(indices, text, strict=True)]
            text = tf.constant(text, tf.string)
        prompts = tf.gather(tf.constant(texts), index)
        return tf.strings.join([tf.broadcast_to(prompts, tf.shape(text)), text])

    @property
    def _texts(self):
        """The texts of the prompts, and no prompt."""
        return [*self._prompts.texts.values(), ""]

    @property
    def _default_index(self):
        names = [*self._prompts.texts]
        return len(names) if self.default_prompt is None else names.index(self.default_prompt)

    def _prompt_index(self, prompt):
        """Return the places in `_texts` of one name or of several, () or (B,)."""
        names = [*self._prompts.texts]
        if tf is not None and tf.is_tensor(prompt):
            return self._prompt_index_in_graph(prompt, names)
        is_one = prompt is None or isinstance(prompt, (str, bytes))
        chosen = [prompt] if is_one else [*prompt]
        places = {None: self._default_index, "": self._default_index}
        places |= {name: place for place, name in enumerate(names)}
        for name in chosen:
            check_that(_text(name) in places, f"one of {', '.join(names)}", prompt=name)
        indices = np.array([places[_text(name)] for name in chosen], "int32")
        return indices[0] if len(chosen) == 1 else indices

    def _prompt_index_in_graph(self, prompt, names):
        is_it = tf.equal(tf.expand_dims(prompt, -1), tf.constant([*names, ""]))
        are_known = tf.reduce_all(tf.reduce_any(is_it, axis=-1))
        message = f"`prompt` must be one of {', '.join(names)}. Received:"
        with tf.control_dependencies([tf.debugging.Assert(are_known, [message, prompt])]):
            index = tf.argmax(tf.cast(is_it, tf.int32), axis=-1, output_type=tf.int32)
        return tf.where(index == len(names), self._default_index, index)

    @functools.cached_property
    def _lengths_of_prompts(self):
        start, end = len(self.template.start), len(self.template.end)
        texts = self._texts
        counts = np.array([len(ids) for ids in self._split_in_python(texts)])
        if self.max_length is not None:
            counts = np.minimum(counts, self.max_length - start - end)
        # As sentence-transformers counts: without a special token at the end.
        lengths = start + counts + end - ((end > 0) | (counts == 0))
        return np.where([text == "" for text in texts], 0, lengths).astype("int32")

    def _split(self, text):
        return self.tokenizer._split(lower(valid(text)) if self.lower_case else text)

    def _split_in_python(self, sentences):
        texts = [lower(valid(text)) for text in sentences] if self.lower_case else sentences
        return self.tokenizer._split_in_python(texts)

    def _join(self, ids):
        return self.tokenizer._join(ids)

    def _join_in_python(self, ids):
        return self.tokenizer._join_in_python(ids)

    @property
    def _surfaces(self):
        return self.tokenizer._surfaces


def _text(name):
    return valid(name) if isinstance(name, bytes) else name
