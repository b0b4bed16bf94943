"""Streaming of tokens: the events, the answer over ASGI, the client, and a real server."""

import asyncio
import contextlib
import json
import types

import numpy as np
import oracles
import pytest
import streaming_model
from small_tokenizers import tokenizer_of
from streaming_model import LOG_PROBABILITY, MAX_POSITIONS, continued

from keras_attn import depth, export, generation, layers, models, patterns
from serving import client as clients
from serving.client.__main__ import main
from serving.client.events import read_tokens
from serving.client.retries import TimeLimit
from serving.errors import ServingError
from serving.limits import Limits
from serving.predict import predict
from serving.request_context import RequestContext
from serving.rest_api import RestApi
from serving.servable import Servable, warm_up
from serving.streaming import StreamRequest, _choose, stream_tokens

PATH = "/v1/models/steps:stream"


@pytest.fixture(scope="module")
def servable(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "1"
    streaming_model.export(path)
    servable = Servable("steps", 1, str(path))
    yield servable
    servable.close()


def stream(servable, **document):
    request = StreamRequest.read(document)
    return list(stream_tokens(servable, request, Limits(), RequestContext()))


def test_each_token_follows_from_all_before_it(servable):
    *tokens, end = stream(servable, token_ids=[70, 4], max_tokens=5)
    expected = continued([70, 4], 5)
    assert [event["token_id"] for event in tokens] == expected
    assert [event["text"] for event in tokens] == list(map(chr, expected))
    np.testing.assert_allclose([e["log_probability"] for e in tokens], LOG_PROBABILITY, rtol=1e-5)
    assert end == {"finish_reason": "max_tokens"}
    assert stream(servable, text="F\4", max_tokens=5) == [*tokens, end]


def test_an_end_token_is_the_last_one(servable):
    expected = continued([70], 9)
    events = stream(servable, token_ids=[70], end_tokens=[1, expected[3]])
    assert [event["token_id"] for event in events[:-1]] == expected[:4]
    assert events[-1] == {"finish_reason": "end_token"}


def test_tokens_are_sampled_at_the_temperature():
    random, logits = np.random.default_rng(0), np.array([2.0, 0.0, -1.0], np.float32)
    request = StreamRequest(temperature=2.0)
    draws = [_choose(logits, request, random) for _ in range(1500)]
    expected = np.exp(logits / 2) / np.exp(logits / 2).sum()
    frequencies = np.bincount([token for token, _ in draws], minlength=3) / 1500
    np.testing.assert_allclose(frequencies, expected, atol=0.04)
    log_probs = logits - np.log(np.exp(logits).sum())
    assert all(score == pytest.approx(log_probs[token], rel=1e-5) for token, score in draws)


@pytest.mark.parametrize(
    "arguments",
    [{"top_k": 3}, {"top_p": 0.75}, {"top_k": 4, "top_p": 0.9}, {"top_p": 0.01}, {"top_k": 99}],
)
def test_tokens_are_drawn_from_those_that_sampling_keeps(arguments):
    random, logits = np.random.default_rng(0), np.array([0.0, 2.0, -1.0, 1.5, 1.0], np.float32)
    request = StreamRequest(temperature=1.5, **arguments)
    tokens = {_choose(logits, request, random)[0] for _ in range(200)}
    shares, _ = generation.Sample(1.5, **arguments).distribution(logits[None])
    assert tokens == {*np.flatnonzero(shares[0])}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "either `text` or `token_ids`"),
        ({"text": "a", "token_ids": [4]}, "either `text` or `token_ids`"),
        ({"text": 3}, "`text` must be a string"),
        ({"text": ""}, "`text` must have at least one token"),
        ({"token_ids": []}, "a list of at least one token id"),
        ({"token_ids": [[4]]}, "a list of at least one token id"),
        ({"token_ids": [2**31]}, "a list of at least one token id"),
        ({"text": "a", "max_tokens": 0}, "`max_tokens` must be an integer"),
        ({"text": "a", "temperature": -1}, "`temperature` must be a number"),
        ({"text": "a", "temperature": True}, "`temperature` must be a number"),
        ({"text": "a", "temperature": float("inf")}, "`temperature` must be a number"),
        ({"text": "a", "temperature": 10**400}, "`temperature` must be a number"),
        ({"text": "a" * (1 << 24 | 1)}, "input text must have at most 16777216 bytes"),
        ({"text": "a", "top_k": 0}, "`top_k` must be an integer"),
        ({"text": "a", "top_p": 1.5}, "`top_p` must be a number in"),
        ({"text": "a", "seed": 1.5}, "`seed` must be an integer"),
        ({"text": "a", "end_tokens": 3}, "`end_tokens` must be a list"),
        ({"text": "a", "instances": []}, "A stream has the keys .* Received: instances"),
    ],
)
def test_wrong_requests_are_refused(servable, document, message):
    with pytest.raises(ServingError, match=message) as error:
        stream(servable, **document)
    assert error.value.http_status == 400


def test_an_export_without_a_memory_is_refused():
    other = types.SimpleNamespace(signatures={"serving_default": None})
    with pytest.raises(ServingError, match="no signature initial_memory, step, tokenize"):
        stream(other, text="a")


class Manager:
    """Lends one servable, and counts who uses it."""

    def __init__(self, servable):
        self.servable, self.users = servable, 0

    def knows(self, name):
        return True

    @contextlib.contextmanager
    def use(self, spec):
        self.users += 1
        try:
            yield self.servable
        finally:
            self.users -= 1


async def ask(api, document, leaves_after=None, path=PATH):
    """Return status, content type, and the pieces of the body with the times of their arrival.

    The client goes away after so many pieces.
    """
    pieces, gone, started = [], asyncio.Event(), {}
    body = iter([{"type": "http.request", "body": json.dumps(document).encode()}])

    async def receive():
        for message in body:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            started.update(message)
        elif message["body"]:
            pieces.append((message["body"], asyncio.get_running_loop().time()))
            if leaves_after == len(pieces):
                gone.set()
                await asyncio.sleep(0.01)  # until the server has noticed

    scope = {"type": "http", "method": "POST", "raw_path": path.encode(), "headers": []}
    await api(scope, receive, send)
    return started["status"], dict(started["headers"])[b"content-type"].decode(), pieces


@pytest.fixture
def manager(servable):
    return Manager(servable)


@pytest.fixture
def api(manager):
    return RestApi(manager, 1, Limits(), 10_000)


def test_events_are_sent_one_by_one(api, manager):
    status, kind, pieces = asyncio.run(ask(api, {"token_ids": [70], "max_tokens": 3}))
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert len(pieces) == 4 and all(p.endswith(b"\n\n") for p, _ in pieces)
    events = [json.loads(piece.removeprefix(b"data: ")) for piece, _ in pieces]
    assert [event.get("token_id") for event in events] == [*continued([70], 3), None]
    assert manager.users == 0


def test_errors_before_the_first_token_have_their_status(api, manager):
    for document, status in (({"text": 3}, 400), ({"token_ids": [70] * MAX_POSITIONS}, 400)):
        code, kind, pieces = asyncio.run(ask(api, document))
        assert (code, kind) == (status, "application/json")
        assert list(json.loads(pieces[0][0])) == ["error"]
    assert manager.users == 0


def test_an_error_after_the_first_token_is_an_event(api, manager):
    document = {"token_ids": [70] * (MAX_POSITIONS - 3), "max_tokens": 9}
    status, _, pieces = asyncio.run(ask(api, document))
    assert status == 200 and len(pieces) == 4
    kind, data = pieces[-1][0].decode().split("\n", 1)
    assert kind == "event: error" and "too much was read" in data
    assert manager.users == 0


def test_a_client_that_goes_away_frees_the_model(api, manager):
    document = {"token_ids": [70], "max_tokens": MAX_POSITIONS - 1, "end_tokens": []}
    _, _, pieces = asyncio.run(ask(api, document, leaves_after=2))
    assert 2 <= len(pieces) < 10 and manager.users == 0


def test_two_streams_share_one_thread(api):
    async def both():
        document = {"token_ids": [70], "max_tokens": 20}
        return await asyncio.gather(ask(api, document), ask(api, document))

    first, second = (pieces for _, _, pieces in asyncio.run(both()))
    assert len(first) == len(second) == 21
    assert first[3][1] < second[-1][1] and second[3][1] < first[-1][1]


def test_a_client_reads_tokens_and_errors():
    def read(*lines):
        return list(read_tokens([line.encode() for line in lines], TimeLimit(9), "place"))

    data = 'data: {"token_id": 5, "log_probability": -0.5, "text": "a"}\n'
    end = 'data: {"finish_reason": "max_tokens"}\n'
    assert read(data, "\n", ": a comment\n", data, "\n", end) == [(5, "a", -0.5)] * 2
    with pytest.raises(clients.ClientError, match="place broke off the stream."):
        read(data, "\n")
    with pytest.raises(clients.ClientError, match="place ended the stream: too long"):
        read(data, "\n", "event: error\n", 'data: {"error": "too long"}\n')


@pytest.fixture(scope="module")
def gpt_servable(tmp_path_factory):
    """A model of 30 positions that streams, its tokenizer, and the export of both."""
    tokenizer = tokenizer_of("byte-level bpe")
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 9}
    model = models.gpt(tokenizer.vocabulary_size, max_length=30, **sizes)
    oracles.scramble(model, scale=0.8)
    how = {"tokenizer": tokenizer, "max_length": 9, "eos_id": [7, tokenizer.eos_id]}
    path = export.saved_model(model, tmp_path_factory.mktemp("gpt"), stream=True, **how)
    servable = Servable("gpt", 1, path)
    warm_up(servable, path)
    yield servable, model, tokenizer
    servable.close()


@pytest.mark.slow
def test_a_model_with_a_cache_of_all_keys_streams_text_up_to_its_positions(gpt_servable):
    servable, model, tokenizer = gpt_servable
    prompt = "the cat 日"
    (ids,) = tokenizer.encode_as_lists([prompt])
    most = 30 - len(ids) + 1
    how = {"max_tokens": 99, "end_tokens": []}
    *events, end = stream(servable, text=prompt, **how)
    assert end == {"finish_reason": "max_positions"} and len(events) == most
    expected, _ = generation.generate(model, ids[None], max_length=most, eos_id=-1)
    assert [event["token_id"] for event in events] == expected[0].numpy().tolist()
    *same, end = stream(servable, text=prompt, max_tokens=most)
    assert end == {"finish_reason": "max_tokens"} and same == events
    assert stream(servable, token_ids=ids.tolist(), **how)[:-1] == events
    with pytest.raises(ServingError, match="at most 30 tokens. Received: a prompt of 31 tokens"):
        stream(servable, token_ids=[5] * 31)


@pytest.mark.slow
def test_an_export_that_streams_answers_whole_texts_with_the_same_text(gpt_servable):
    servable, model, tokenizer = gpt_servable
    of_stream = {"initial_state", "step", "end_tokens", "max_positions", "tokenize", "detokenize"}
    assert of_stream | {"serving_default", "ids", "score"} <= {*servable.signatures}
    outputs = predict(servable, "", {"text": np.array([b"and", b"the 5"], object)})
    for prompt, expected in zip(["and", "the 5"], outputs["continuation"], strict=True):
        *events, _ = stream(servable, text=prompt, max_tokens=9)
        pieces = [event["text"] for event in events]
        assert "".join(pieces) == expected.decode()
        how = {"max_length": 9, "eos_id": [7, tokenizer.eos_id]}
        assert pieces == list(generation.stream(model, tokenizer, prompt, **how))


@pytest.mark.slow
def test_an_export_of_a_stream_streams_ids_up_to_its_end_tokens(tmp_path):
    attention = layers.MultiHeadAttention(2, 4, pattern=patterns.Sinks(2, 5), position="rotary")
    block = layers.TransformerBlock(attention, layers.FeedForward(9))
    model = models.CausalLanguageModel(layers.TokenEmbedding(17, 8), depth.Stack([block]))
    oracles.scramble(model, scale=0.8)
    whole, score = generation.generate(model, [[5, 9, 4]], max_length=12, eos_id=-1)
    whole = whole[0].numpy().tolist()
    end = whole[3]
    path = export.saved_model(model, tmp_path, stream=True, eos_id=[16, end])
    servable = Servable("stream", 1, path)
    *events, _ = stream(servable, token_ids=[5, 9, 4], max_tokens=12, end_tokens=[])
    assert [event["token_id"] for event in events] == whole
    assert sum(e["log_probability"] for e in events) == pytest.approx(float(score[0]), rel=1e-4)
    *events, last = stream(servable, token_ids=[5, 9, 4], max_tokens=12)
    servable.close()
    read = [event["token_id"] for event in events]
    assert read == whole[: len(read)] and read[-1] in (16, end) and len(read) < 12
    assert last == {"finish_reason": "end_token"}


@pytest.fixture
def started(start_server, tmp_path):
    streaming_model.export(tmp_path / "steps" / "1")
    (tmp_path / "monitoring").write_text(
        'prometheus_config { enable: true, path: "/metrics" }', encoding="utf-8"
    )
    flags = ["--model_name=steps", f"--model_base_path={tmp_path / 'steps'}"]
    with start_server(*flags, f"--monitoring_config_file={tmp_path / 'monitoring'}") as server:
        yield server


def test_the_client_streams_from_a_server(started, waiting, capsys):
    url = f"http://{started.host}:{started.rest_port}/v1/models/steps"
    with clients.RestClient(url) as client:
        ids = [token.token_id for token in client.stream([70], max_tokens=6)]
        assert ids == continued([70], 6)
        opened = client.stream("F", max_tokens=2)
        assert len([next(opened), next(opened)]) == 2
        with pytest.raises(StopIteration) as end:
            next(opened)
        assert end.value.value == "max_tokens"
        # Token 3 would end the text after 105 tokens, on a quick machine before the client leaves.
        opened = client.stream("F", max_tokens=MAX_POSITIONS - 1, end_tokens=[])
        assert next(opened) == (71, "G", pytest.approx(LOG_PROBABILITY, rel=1e-5))
        opened.close()  # the server ends the request
        with pytest.raises(clients.ClientError, match="answered 400: `max_tokens` must be"):
            next(client.stream("F", max_tokens=0))
    for each in (
        clients.RestClient(url),
        clients.GrpcClient(f"{started.host}:{started.grpc_port}", "steps"),
    ):
        with each, pytest.raises(clients.ClientError, match="answers step by step.*--stream"):
            each.complete(["F"])
    counted = 'request_count{model_name="steps",status="CANCELLED"} 1.0'
    waiting(lambda: counted in started.request("GET", "/metrics")[2].decode(), 20)
    assert main(["--url", url, "--stream", "--max_tokens", "4", "F", "G"]) == 0
    expected = ["".join(map(chr, continued([ord(c)], 4))) for c in "FG"]
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in expected)


def test_grpc_has_no_stream(capsys):
    with pytest.raises(SystemExit):
        main(["--grpc", "127.0.0.1:1", "--stream", "F"])
    assert "--stream is for --url" in capsys.readouterr().err
