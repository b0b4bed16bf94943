"""Generation token by token, by an export's signatures `step` and that of its first state.

TensorFlow Serving has no such call.
"""

import dataclasses
import numbers
import sys

import numpy as np

from keras_attn.text.tokenizers.incremental_decoder import IncrementalDecoder

from .errors import Code, ServingError, require
from .json_text import encode, quote
from .predict import predict
from .tensors import check_tensors

_EOS = 3  # of the tokenizers of keras_attn; of exports without a signature `end_tokens`
_OPTIONAL = ("text", "token_ids", "top_k", "top_p", "seed", "end_tokens")  # keys that may be null
# Signatures that give the state before the first token: of a memory, of a cache.
_STARTS = ("initial_memory", "initial_state")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRequest:
    """Body of a streaming request: one prompt, as a text or as token ids.

    At `temperature` 0 each token is the most likely one. Above 0 a token is drawn from the `top_k`
    most likely ones, and of these from the smallest set whose probability reaches `top_p`.
    Generation ends after a token of `end_tokens`, by default those of the export, or after
    `max_tokens`.
    """

    text: str | None = None
    token_ids: list | None = None
    max_tokens: int = 64
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    end_tokens: list | None = None

    @classmethod
    def read(cls, document):
        """Return the request in a parsed JSON object; refuse any other object."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(document) - set(known))
        names = ", ".join(known)
        require(not unknown, f"A stream has the keys {names}. Received: {', '.join(unknown)}")
        request = cls(**document)
        has_one = (request.text is None) != (request.token_ids is None)
        require(has_one, "A stream must have either `text` or `token_ids`")
        temperature, top_p = request.temperature, request.top_p
        for name, fits, wanted in (
            ("text", isinstance(request.text, str), "a string"),
            ("token_ids", _are_ids(request.token_ids, 1), "a list of at least one token id"),
            ("max_tokens", _is_integer(request.max_tokens, 1), "an integer of at least 1"),
            ("temperature", _is_number(temperature), "a number of at least 0"),
            ("top_k", _is_integer(request.top_k, 1), "an integer of at least 1"),
            ("top_p", _is_number(top_p, 1) and top_p > 0, "a number in (0, 1]"),
            ("seed", _is_integer(request.seed, 0), "an integer of at least 0"),
            ("end_tokens", _are_ids(request.end_tokens), "a list of token ids"),
        ):
            value = getattr(request, name)
            is_absent = value is None and name in _OPTIONAL
            message = f"`{name}` must be {wanted}. Received: {name}={quote(value)}"
            require(fits or is_absent, message)
        return request


def stream_tokens(servable, request, limits, request_context):
    """Yield a dict for each token, and one with the `finish_reason` at the end.

    A token has `token_id`, `log_probability` under the model and, if the export has a tokenizer,
    `text`, which are the characters that it adds: none if further tokens are parts of the same
    character, which comes with the last of them. Each token is a run of the signature `step`, whose
    state stays here between the runs. The reason is "end_token", "max_tokens", or "max_positions"
    if the model has no positions for more.

    Args:
        request: `StreamRequest`.
        limits: `Limits` of the prompt.
        request_context: `RequestContext`; the next step raises if the client has gone away.
    """
    _check_signatures(servable, request)

    def run(signature, **inputs):
        return predict(servable, signature, inputs, request_context=request_context)

    ids = _prompt_ids(run, request, limits)
    check_tensors({"token_ids": ids[None]}, limits)
    random = np.random.default_rng(request.seed)
    state = run(_start_of(servable), batch_size=np.int32(1))
    ends = request.end_tokens
    if ends is None:
        ends = _end_tokens(run, servable)
    most, reason = _most_tokens(run, servable, len(ids), request.max_tokens)
    unread, text = ids, None
    if "detokenize" in servable.signatures:
        text = IncrementalDecoder(lambda row: _decode(run, row), ids.tolist())
    has_lengths = "lengths" in servable.signatures["step"].inputs
    for count in range(1, most + 1):
        if has_lengths:
            state["lengths"] = np.array([len(unread)], np.int32)
        state = run("step", token_ids=unread[None], **state)
        token, log_probability = _choose(state.pop("logits")[0, -1], request, random)
        event = {"token_id": token, "log_probability": log_probability}
        if text is not None:
            event["text"] = text.add(token)
            if token in ends or count == most:
                event["text"] += text.finish()
        yield event
        if token in ends:
            reason = "end_token"
            break
        unread = np.array([token], np.int32)
    yield {"finish_reason": reason}


def _start_of(servable):
    """Return the name of the signature that gives the first state."""
    return next((name for name in _STARTS if name in servable.signatures), _STARTS[0])


def _end_tokens(run, servable):
    """Return the tokens that end a text, as the export names them."""
    if "end_tokens" not in servable.signatures:
        return [_EOS]
    return run("end_tokens", batch_size=np.int32(1))["token_ids"][0].tolist()


def _most_tokens(run, servable, num_read, max_tokens):
    """Return how many tokens can follow `num_read` tokens, and why no more do."""
    if "max_positions" not in servable.signatures:
        return max_tokens, "max_tokens"
    limit = int(run("max_positions", batch_size=np.int32(1))["max_positions"][0])
    message = f"The model reads at most {limit} tokens. Received: a prompt of {num_read} tokens"
    require(num_read <= limit, message)
    most = limit - num_read + 1  # the last one is not read
    return (max_tokens, "max_tokens") if max_tokens <= most else (most, "max_positions")


def _decode(run, ids):
    # One row a run: the tokenizer may lack an id of padding.
    text = run("detokenize", token_ids=np.array([ids], np.int32))["text"][0]
    return text.decode(errors="replace")


def _check_signatures(servable, request):
    needed = {_start_of(servable), "step"} | ({"tokenize"} if request.text is not None else set())
    missing = ", ".join(sorted(needed - set(servable.signatures)))
    if missing:
        message = (
            f"The export cannot stream: it has no signature {missing}. Exports of language models "
            "with a memory have initial_memory and step, those with stream=True initial_state and "
            "step, both with a tokenizer also tokenize."
        )
        raise ServingError(Code.FAILED_PRECONDITION, message)
    is_of_tokens = "token_ids" in servable.signatures["step"].inputs
    require(is_of_tokens, "The export cannot stream: its signature step reads no token ids")


def _prompt_ids(run, request, limits):
    if request.text is None:
        return np.array(request.token_ids, np.int32)
    inputs = {"text": np.array([encode(request.text)], object)}
    check_tensors(inputs, limits)
    outputs = run("tokenize", **inputs)
    ids = outputs["token_ids"][0, : outputs["lengths"][0]]
    require(len(ids), "`text` must have at least one token")
    return ids


def _choose(logits, request, random):
    """Return a token and its log-probability under the model."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max()
    token = shifted.argmax()
    if request.temperature > 0:  # the largest of logits with Gumbel noise is a sample
        scaled = shifted / request.temperature
        noisy = scaled + random.gumbel(size=scaled.shape)
        token = np.where(_is_kept(scaled, request.top_k, request.top_p), noisy, -np.inf).argmax()
    return int(token), float(shifted[token] - np.log(np.exp(shifted).sum()))


def _is_kept(logits, top_k, top_p):
    """Return True at the tokens to draw from, by `top_k` and then by `top_p`; None for all."""
    order = np.argsort(-logits, kind="stable")[:top_k]
    if top_p is not None:
        probabilities = np.exp(logits[order]) / np.exp(logits[order]).sum()
        order = order[np.cumsum(probabilities) - probabilities < top_p]
    return np.isin(np.arange(len(logits)), order)


def _are_ids(values, least=0):
    is_list = isinstance(values, list) and len(values) >= least
    return is_list and all(_is_integer(value, 0) for value in values)


def _is_integer(value, least):
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and least <= value < 2**31


def _is_number(value, most=sys.float_info.max):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and 0 <= value <= most
