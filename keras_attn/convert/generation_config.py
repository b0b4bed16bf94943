"""Options of `generate` from the `generation_config.json` of a checkpoint."""

import os
import pathlib
import sys

from keras_attn.convert.hugging_face.tensor_files import read_json
from keras_attn.generation import Beam, Forbidden, Forced, Greedy, NoRepeat, Sample
from keras_attn.generation.tokens import end_tokens
from keras_attn.ops.checks import check_numbers, check_sizes, check_that

FILE = "generation_config.json"
# Options that have no counterpart here, and the value by which each changes nothing.
_UNSUPPORTED = {
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "guidance_scale": 1.0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "sequence_bias": None,
    "stop_strings": None,
    "top_h": None,
    "watermarking_config": None,
}
_INTEGERS = (
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens"),
    *("no_repeat_ngram_size", "num_beams", "top_k"),
)
_NUMBERS = ("length_penalty", "min_p", "repetition_penalty", "temperature", "top_p", "typical_p")


def generation_options(config, is_encoder_decoder, **changes):
    """Return the arguments of `keras_attn.generation.generate` for a checkpoint's options.

    The decoded ids are those of `generate` in transformers with the same options; sampled ones have
    the same distribution. Absent options have the defaults of transformers.

    Args:
        config: path of a checkpoint's folder, or the content of its `generation_config.json` as a
            dict. A folder without that file has the options in `config.json`.
        is_encoder_decoder: bool. True for a model that reads a source.
        changes: options in place of those of the file, such as the `forced_bos_token_id` by which
            NLLB, M2M100 and mBART-50 write in a language.

    Returns:
        A dict of `strategy` and `eos_id`; for an encoder-decoder also of `bos_id` and `max_length`.
        For a model that continues a prompt, `max_length` is there only if `max_new_tokens` is: the
        `max_length` of transformers counts the prompt.

    Raises:
        ValueError: if an option has no counterpart, or is of another type.

    Example:
        >>> from keras_attn import convert
        >>> config = {"num_beams": 6, "decoder_start_token_id": 9, "eos_token_id": 0,
        ...     "bad_words_ids": [[9]], "forced_eos_token_id": 0, "max_length": 512,
        ...     "renormalize_logits": True}
        >>> options = convert.generation_options(config, is_encoder_decoder=True)
        >>> options["max_length"], options["bos_id"], type(options["strategy"]).__name__
        (511, 9, 'Forbidden')

    Differs from the paper: none.

    Reference: [Wolf et al., 2020](https://arxiv.org/abs/1910.03771).
    """
    if isinstance(config, (str, os.PathLike)):
        has_file = pathlib.Path(config, FILE).is_file()
        config = read_json(config, FILE if has_file else "config.json")
    check_that(isinstance(config, dict), "the path of a folder, or a dict", config=config)
    options = {k: value for k, value in {**config, **changes}.items() if value is not None}
    _check_options(options, is_encoder_decoder)
    arguments = {"eos_id": options.get("eos_token_id", -1)}
    if "max_new_tokens" in options:
        arguments["max_length"] = options["max_new_tokens"]
    elif is_encoder_decoder:
        # An option counts the first token; without one, transformers generates 20 tokens after it.
        arguments["max_length"] = options.get("max_length", 21) - 1
    shortest = min(_shortest(options), arguments.get("max_length", sys.maxsize))
    arguments["strategy"] = _strategy(options, is_encoder_decoder, shortest)
    if is_encoder_decoder:
        start = options.get("decoder_start_token_id", options.get("bos_token_id"))
        check_that(start is not None, "the id of a token", decoder_start_token_id=start)
        arguments["bos_id"] = start
    return arguments


def _check_options(options, is_encoder_decoder):
    """Refuse options of another type, or without a counterpart."""
    check_sizes(0, **{name: options[name] for name in _INTEGERS if name in options})
    check_numbers(**{name: options[name] for name in _NUMBERS if name in options})
    for name, neutral in _UNSUPPORTED.items():
        if options.get(name, neutral) != neutral:
            _refuse(name, options)
    counts_prompt = not is_encoder_decoder and "min_new_tokens" not in options
    if counts_prompt and options.get("min_length", 0) > 0:
        _refuse("min_length", options)


def _shortest(options):
    """Return the least number of new tokens; `min_length` counts the first, which is not new."""
    return options.get("min_new_tokens", max(options.get("min_length", 0) - 1, 0))


def _strategy(options, is_encoder_decoder, shortest):
    strategy = _choice(options, is_encoder_decoder)
    renormalize = options.get("renormalize_logits", False)
    first, last = (options.get(f"forced_{name}_token_id") for name in ("bos", "eos"))
    if shortest > 0 or (first, last) != (None, None):
        # It is forced where one token is before it, such as the first of a target.
        prompt_length = None if is_encoder_decoder or first is None else 1
        strategy = Forced(strategy, first, last, shortest, renormalize, prompt_length)
    size = options.get("no_repeat_ngram_size", 0)
    if size:
        strategy = NoRepeat(strategy, size, renormalize, counts_bos=is_encoder_decoder)
    words = options.get("bad_words_ids", [])
    if any(len(word) > 1 for word in words):
        _refuse("bad_words_ids", options)
    ends = end_tokens(options.get("eos_token_id", -1))
    suppressed = options.get("suppress_tokens", [])
    if not {first, last}.isdisjoint(suppressed):
        _refuse("suppress_tokens", options)  # which would forbid what is forced
    # A word that is an end token is dropped; `suppress_tokens` may hold it.
    forbidden = sorted({token for word in words for token in word}.difference(ends))
    forbidden += [token for token in suppressed if token not in forbidden]
    return Forbidden(strategy, forbidden, renormalize) if forbidden else strategy


def _choice(options, is_encoder_decoder):
    """Return greedy decoding, sampling or a beam search."""
    beams, is_sampled = options.get("num_beams", 1), options.get("do_sample", False)
    penalty = options.get("repetition_penalty", 1.0)
    # Transformers penalises the first token of a target, too.
    if penalty != 1 and (beams > 1 or is_encoder_decoder):
        _refuse("repetition_penalty", options)
    if beams > 1:
        if is_sampled:
            _refuse("do_sample", options)
        early_stopping = options.get("early_stopping", False)
        if options.get("length_penalty", 1.0) < 0:
            _refuse("length_penalty", options)
        return Beam(beams, options.get("length_penalty", 1.0), "power", early_stopping)
    if is_sampled:
        return Sample(
            temperature=options.get("temperature", 1.0),
            top_k=options.get("top_k", 50) or None,
            top_p=_probability(options, "top_p"),
            min_p=options.get("min_p"),
            typical_p=_probability(options, "typical_p"),
            repetition_penalty=penalty,
        )
    return Greedy() if penalty == 1 else Sample(top_k=1, repetition_penalty=penalty)


def _probability(options, name):
    value = options.get(name, 1.0)
    return None if value == 1 else value


def _refuse(name, options):
    raise ValueError(
        f"The option `{name}` of the checkpoint has no counterpart; give `generate` other "
        f"arguments. Received: {name}={options[name]!r}."
    )
