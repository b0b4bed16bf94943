"""Generation token by token with an export's signatures `initial_memory` and `step`.

This is our own addition: TensorFlow Serving has no such call.
"""

import dataclasses
import numbers

import numpy as np

from .errors import Code, ServingError, require
from .json_text import encode
from .predict import predict
from .tensors import check_tensors

_EOS = 3  # of the tokenizers of keras_attn
_MAX_CONTEXT = 64  # tokens before a new one that decide how it is written, such as after a space


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRequest:
    """Body of a streaming request: one prompt, as a text or as token ids.

    Without `temperature` each token is the most likely one. Generation ends after a token of
    `end_tokens` or after `max_tokens`.
    """

    text: str | None = None
    token_ids: list | None = None
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int | None = None
    end_tokens: list = dataclasses.field(default_factory=lambda: [_EOS])

    @classmethod
    def read(cls, document):
        """Return the request in a parsed JSON object; refuse what is none."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(document) - set(known))
        names = ", ".join(known)
        require(not unknown, f"A stream has the keys {names}. Received: {', '.join(unknown)}")
        request = cls(**document)
        has_one = (request.text is None) != (request.token_ids is None)
        require(has_one, "A stream must have either `text` or `token_ids`")
        is_text = request.text is None or isinstance(request.text, str)
        require(is_text, "`text` must be a string")
        is_prompt = request.token_ids is None or _are_ids(request.token_ids) and request.token_ids
        require(is_prompt, "`token_ids` must be a list of at least one token id")
        require(_is_size(request.max_tokens, 1), "`max_tokens` must be an integer of at least 1")
        is_warm = isinstance(request.temperature, numbers.Real) and request.temperature >= 0
        require(is_warm, "`temperature` must be a number of at least 0")
        is_seed = request.seed is None or _is_size(request.seed, 0)
        require(is_seed, "`seed` must be an integer of at least 0")
        require(_are_ids(request.end_tokens), "`end_tokens` must be a list of token ids")
        return request


def stream_tokens(servable, request, limits, request_context):
    """Yield a dict for each token, and one with the `finish_reason` at the end.

    A token has `token_id`, `log_probability` under the model and, if the export has a tokenizer,
    `text`, which are the characters that it adds. Each token is a run of the signature `step`,
    whose memory stays here between the runs.

    Args:
        request: `StreamRequest`.
        limits: `Limits` of the prompt.
        request_context: `RequestContext`; the next step raises if the client has gone away.
    """
    _check_signatures(servable, request)

    def run(signature, **inputs):
        return predict(servable, signature, inputs, request_context=request_context)

    ids = _prompt_ids(run, request)
    check_tensors({"token_ids": ids[None]}, limits)
    random = np.random.default_rng(request.seed)
    memory = run("initial_memory", batch_size=np.int32(1))
    context, unread = ids.tolist(), ids
    has_text = "detokenize" in servable.signatures
    for _ in range(request.max_tokens):
        lengths = np.array([len(unread)], np.int32)
        memory = run("step", token_ids=unread[None], lengths=lengths, **memory)
        token, log_probability = _choose(memory.pop("logits")[0, -1], request.temperature, random)
        event = {"token_id": token, "log_probability": log_probability}
        if has_text:
            event["text"] = _added_text(run, context, token)
        yield event
        if token in request.end_tokens:
            yield {"finish_reason": "end_token"}
            return
        context, unread = [*context[-_MAX_CONTEXT:], token], np.array([token], np.int32)
    yield {"finish_reason": "max_tokens"}


def _check_signatures(servable, request):
    needed = {"initial_memory", "step"} | ({"tokenize"} if request.text is not None else set())
    missing = ", ".join(sorted(needed - set(servable.signatures)))
    if missing:
        message = (
            f"The export cannot stream: it has no signature {missing}. Exports of language models "
            "with a memory have initial_memory and step; with a tokenizer also tokenize."
        )
        raise ServingError(Code.FAILED_PRECONDITION, message)
    is_of_tokens = "token_ids" in servable.signatures["step"].inputs
    require(is_of_tokens, "The export cannot stream: its signature step reads no token ids")


def _prompt_ids(run, request):
    if request.text is None:
        return np.array(request.token_ids, np.int32)
    outputs = run("tokenize", text=np.array([encode(request.text)], object))
    ids = outputs["token_ids"][0, : outputs["lengths"][0]]
    require(len(ids), "`text` must have at least one token")
    return ids


def _choose(logits, temperature, random):
    """Return a token and its log-probability under the model."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max()
    token = shifted.argmax()
    if temperature > 0:  # the largest of logits with Gumbel noise is a sample
        token = (shifted / temperature + random.gumbel(size=shifted.shape)).argmax()
    return int(token), float(shifted[token] - np.log(np.exp(shifted).sum()))


def _added_text(run, context, token):
    """Return the characters that a token adds to the text of those before it."""
    rows = np.array([[*context, 0], [*context, token]], np.int32)  # 0 is padding
    before, after = run("detokenize", token_ids=rows)["text"]
    return after[len(before) :].decode(errors="replace")


def _are_ids(values):
    return isinstance(values, list) and all(_is_size(value, 0) for value in values)


def _is_size(value, least):
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and least <= value < 2**31
