"""Batching (batching/batching_session.cc, batching_util.cc, shared_batch_scheduler.h)."""

import asyncio
import concurrent.futures
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.batch_scheduler import BatchScheduler
from serving.batching_servable import BatchingServable
from serving.config_files import BatchingOptions
from serving.errors import Code, ServingError
from serving.limits import Limits
from serving.predict import GraphCall
from serving.request_context import RequestContext, Workers

FOREVER = 60_000_000
SPLIT = {
    "max_batch_size": 7,
    "enable_large_batch_splitting": True,
    "max_execution_batch_size": 2,
    "batch_timeout_micros": 1000,
}
pytestmark = pytest.mark.point(n=20)


def signature(inputs, outputs):
    """Return a signature of shapes: a dictionary from name to sizes, -1 for a free one."""
    proto = SignatureDef()
    for group, shapes in ((proto.inputs, inputs), (proto.outputs, outputs)):
        for name, shape in shapes.items():
            group[name].name = name
            for size in shape:
                group[name].tensor_shape.dim.add(size=size)
    return proto


class Model:
    """Loaded model that doubles its input and records it."""

    name, version = "model", 1

    def __init__(self, inputs=None, outputs=None, answer=None):
        self.signatures = {
            "serving_default": signature(inputs or {"x": [-1, -1]}, outputs or {"y": [-1, -1]})
        }
        self.seen = []
        self.go = threading.Event()
        self.go.set()
        self._answer = answer or (lambda feeds: [2 * feeds["x"]])

    def run(self, feeds, fetches, request_context=None):
        self.seen.append({name: np.asarray(array).tolist() for name, array in feeds.items()})
        assert self.go.wait(30)
        return self._answer(feeds)


class Requests:
    """Requests to a model with batching, each on a thread of its own."""

    def __init__(self, model, limits=Limits(), **options):
        options = {"num_batch_threads": 1, "batch_timeout_micros": FOREVER, **options}
        options = BatchingOptions(**options)
        self.scheduler = BatchScheduler(options)
        self.servable = BatchingServable(model, self.scheduler, options, limits)
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

        self._queued = threading.Event()
        submit = self.scheduler.submit

        def submit_and_tell(*arguments):
            submit(*arguments)
            self._queued.set()

        self.scheduler.submit = submit_and_tell

    def send(self, x, request_context=None, **more):
        """Return when the request is in the queue, or was answered without one."""
        feeds = {"x": np.array(x), **{name: np.array(value) for name, value in more.items()}}
        self._queued.clear()
        future = self.pool.submit(self.servable.run, feeds, ["y"], request_context)
        while not (future.done() or self._queued.wait(0.01)):
            pass
        return future


def answer(future):
    return future.result(30)[0].tolist()


def refusal(future):
    with pytest.raises(ServingError) as info:
        future.result(30)
    return info.value.code.name, info.value.message


def test_requests_run_together_and_each_gets_its_own_rows():
    model = Model()
    requests = Requests(model, max_batch_size=5)
    first, second = requests.send([[1], [2]]), requests.send([[3], [4], [5]])
    assert (answer(first), answer(second)) == ([[2], [4]], [[6], [8], [10]])
    assert model.seen == [{"x": [[1], [2], [3], [4], [5]]}]


def test_a_batch_runs_when_its_timeout_has_passed():
    model = Model()
    requests = Requests(model, max_batch_size=5, batch_timeout_micros=20_000)
    assert answer(requests.send([[1]])) == [[2]]


def test_shorter_tensors_are_padded_with_their_own_first_element():
    model = Model()
    requests = Requests(model, max_batch_size=3, pad_variable_length_inputs=True)
    first, second = requests.send([[1, 2, 3]]), requests.send([[7], [8]])
    # Not each row's first element: the tensor's.
    assert answer(second) == [[14, 14, 14], [16, 14, 14]]
    assert answer(first) == [[2, 4, 6]]
    assert model.seen == [{"x": [[1, 2, 3], [7, 7, 7], [8, 7, 7]]}]


def test_an_empty_tensor_fails_to_be_padded_and_fails_alone():
    requests = Requests(Model(), max_batch_size=2, pad_variable_length_inputs=True)
    good, empty = requests.send([[1, 2]]), requests.send(np.zeros((1, 0)))
    message = "Got empty tensor in batch of non-empty tensors."
    assert refusal(empty) == ("INVALID_ARGUMENT", message)
    assert answer(good) == [[2, 4]]


def test_requests_that_padding_would_make_too_large_run_alone():
    model = Model()
    options = {"max_batch_size": 3, "pad_variable_length_inputs": True}
    requests = Requests(model, Limits(max_ids=8), **options)
    long, short = requests.send([[1, 2, 3]]), requests.send([[7], [8]])
    assert (answer(long), answer(short)) == ([[2, 4, 6]], [[14], [16]])
    assert model.seen == [{"x": [[1, 2, 3]]}, {"x": [[7], [8]]}]


def test_different_shapes_fail_without_padding():
    model = Model()
    requests = Requests(model, max_batch_size=2)
    for future in [requests.send([[1, 2]]), requests.send([[3]])]:
        code, message = refusal(future)
        assert code == "FAILED_PRECONDITION"
        assert message.startswith("Tensors with name 'x' from different tasks have different shap")
    assert model.seen == []


def test_a_batch_is_filled_with_the_first_row_of_its_last_request():
    model = Model()
    requests = Requests(
        model, max_batch_size=7, allowed_batch_sizes=(2, 5, 7), batch_timeout_micros=300_000
    )
    first, second = requests.send([[1]]), requests.send([[2], [3]])
    assert (answer(first), answer(second)) == ([[2]], [[4], [6]])
    assert model.seen == [{"x": [[1], [2], [3], [2], [2]]}]


def test_a_full_queue_refuses_requests():
    model = Model()
    model.go.clear()
    requests = Requests(model, max_batch_size=2, max_enqueued_batches=2)
    running = requests.send([[1], [2]])
    while not model.seen:
        threading.Event().wait(0.001)
    queued = [requests.send([[3], [4]]), requests.send([[5]])]
    assert refusal(requests.send([[6], [7]])) == (
        "UNAVAILABLE",
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches "
        "enqueued and max_enqueued_batches is 2",
    )
    queued.append(requests.send([[8]]))  # The open batch has space.
    model.go.set()
    assert [answer(future) for future in [running, *queued]] == [
        [[2], [4]],
        [[6], [8]],
        [[10]],
        [[16]],
    ]


def test_a_request_larger_than_a_batch_is_refused():
    message = "Task size 3 is larger than maximum input batch size 2"
    requests = Requests(Model(), max_batch_size=2)
    assert refusal(requests.send([[1], [2], [3]])) == ("INVALID_ARGUMENT", message)


def test_a_large_request_is_split():
    model = Model()
    requests = Requests(model, **SPLIT)
    rows = [[number] for number in range(5)]
    assert answer(requests.send(rows)) == [[2 * number] for (number,) in rows]
    assert model.seen == [{"x": rows[:2]}, {"x": rows[2:4]}, {"x": rows[4:]}]


def test_a_split_request_whose_outputs_differ_in_width_runs_whole():
    model = Model(answer=lambda feeds: [feeds["x"][:, : feeds["x"].max()]])
    requests = Requests(model, **SPLIT)
    assert answer(requests.send([[1, 1], [1, 1], [2, 1]])) == [[1, 1], [1, 1], [2, 1]]
    assert [len(seen["x"]) for seen in model.seen] == [2, 1, 3]


def test_parts_of_a_request_that_has_ended_do_not_run():
    model = Model()
    model.go.clear()
    requests = Requests(model, **SPLIT)
    hasty = requests.send([[1], [2], [3]], RequestContext(100))
    assert refusal(hasty)[0] == "DEADLINE_EXCEEDED"
    model.go.set()
    assert answer(requests.send([[4]])) == [[8]]
    assert model.seen == [{"x": [[1], [2]]}, {"x": [[4]]}]


@pytest.mark.parametrize(
    "inputs, more",
    [
        ({"x": [-1, -1], "seed": []}, {"seed": 5}),
        ({"x": [-1, -1], "memory": [2, -1]}, {"memory": [[0], [0]]}),
        ({"x": [-1, -1], "ids": [-1]}, {"ids": [1, 2, 3]}),
    ],
)
def test_requests_without_rows_run_alone(inputs, more):
    model = Model(inputs)
    requests = Requests(model, max_batch_size=2)
    assert answer(requests.send([[1], [2]], **more)) == [[2], [4]]
    assert len(model.seen) == 1


def test_outputs_without_rows_end_batching_of_that_signature():
    model = Model(outputs={"y": [-1]}, answer=lambda feeds: [feeds["x"].sum(axis=0)])
    requests = Requests(model, max_batch_size=3)
    first, second = requests.send([[1], [2]]), requests.send([[3]])
    assert (answer(first), answer(second)) == ([3], [3])
    # From now on nobody waits for others.
    assert answer(requests.send([[4]])) == [4]
    assert [len(seen["x"]) for seen in model.seen] == [3, 2, 1, 1]


def test_a_bad_request_fails_alone():
    def run(feeds):
        if (feeds["x"] < 0).any():
            raise ServingError(Code.INVALID_ARGUMENT, "negative")
        return [2 * feeds["x"]]

    requests = Requests(Model(answer=run), max_batch_size=3)
    futures = [requests.send([[1]]), requests.send([[-2]]), requests.send([[3]])]
    assert refusal(futures[1]) == ("INVALID_ARGUMENT", "negative")
    assert (answer(futures[0]), answer(futures[2])) == ([[2]], [[6]])


def test_a_shape_that_contradicts_the_signature_joins_no_batch():
    model = Model()
    requests = Requests(model, max_batch_size=2)
    good = requests.send([[1]])
    assert answer(requests.send([[[9]]])) == [[[18]]]
    assert not good.done()
    assert (answer(requests.send([[2]])), answer(good)) == ([[4]], [[2]])


def test_a_time_limit_ends_the_wait_in_the_queue():
    model = Model()
    requests = Requests(model, max_batch_size=2)
    message = "Run() timeout exceeded while waiting in batching queue"
    assert refusal(requests.send([[1]], RequestContext(50))) == ("RESOURCE_EXHAUSTED", message)
    other = requests.send([[2]])
    assert answer(other) == [[4]]
    assert model.seen == [{"x": [[2]]}], "nobody waited for the answer of the first"


def test_a_time_limit_ends_a_running_batch_for_its_request():
    model = Model()
    model.go.clear()
    requests = Requests(model, max_batch_size=2)
    hasty, patient = requests.send([[1]], RequestContext(100)), requests.send([[2]])
    assert refusal(hasty)[0] == "DEADLINE_EXCEEDED"
    model.go.set()
    assert answer(patient) == [[4]]


def test_a_request_of_many_runs_keeps_none_of_them():
    """As a stream runs once for each token."""
    requests, context = Requests(Model(), max_batch_size=1), RequestContext()
    for _ in range(3):
        assert answer(requests.send([[1]], context)) == [[2]]
    assert context._callbacks == []


def test_a_cancelled_request_leaves_the_queue():
    model = Model()
    requests = Requests(model, max_batch_size=2)
    context = RequestContext()
    gone = requests.send([[1]], context)
    context.cancel()
    assert refusal(gone)[0] == "CANCELLED"
    assert refusal(requests.send([[1]], context))[0] == "CANCELLED"
    assert answer(requests.send([[2]])) == [[4]]
    assert model.seen == [{"x": [[2]]}]


def batching(model, **options):
    options = {"num_batch_threads": 1, "batch_timeout_micros": FOREVER, **options}
    options = BatchingOptions(**options)
    return BatchingServable(model, BatchScheduler(options), options)


def send_on_loop(servable, x, request_context=None):
    """Return the task of a request."""
    context = request_context or RequestContext()
    call = servable.run_in_batch({"x": np.array(x)}, ["y"], context)
    return asyncio.get_running_loop().create_task(call)


async def answers_on_loop(*tasks):
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [
        (x.code.name, x.message) if isinstance(x, ServingError) else x[0].tolist() for x in done
    ]


def test_a_batch_resumes_all_its_requests_by_one_call_and_no_thread_waits():
    async def main():
        loop, calls = asyncio.get_running_loop(), []
        original, model = loop.call_soon_threadsafe, Model()
        loop.call_soon_threadsafe = lambda *call: (calls.append(call), original(*call))
        servable, before = batching(model, max_batch_size=13), threading.active_count()
        rows = [[[n], [-n]][: n % 2 + 1] for n in range(9)]
        tasks = [send_on_loop(servable, row) for row in rows]
        await asyncio.sleep(0)
        assert threading.active_count() == before
        assert await answers_on_loop(*tasks) == [[[2 * n] for (n,) in row] for row in rows]
        assert len(model.seen) == 1 and len(calls) == 1

    asyncio.run(main())


def test_a_time_limit_ends_the_wait_in_the_queue_and_in_a_running_batch():
    async def main():
        model = Model()
        model.go.clear()
        servable = batching(model, max_batch_size=2)
        running = [send_on_loop(servable, [[1]], RequestContext(60)), send_on_loop(servable, [[2]])]
        await asyncio.sleep(0.01)
        queued = send_on_loop(servable, [[3]], RequestContext(30))
        late, in_time = "Timed out waiting for notification", [[4]]
        assert await answers_on_loop(running[0], queued) == [
            ("DEADLINE_EXCEEDED", late),
            ("RESOURCE_EXHAUSTED", "Run() timeout exceeded while waiting in batching queue"),
        ]
        model.go.set()
        assert await answers_on_loop(running[1]) == [in_time]
        assert model.seen == [{"x": [[1], [2]]}]

    asyncio.run(main())


@pytest.mark.parametrize("way", ["context", "task"])
def test_a_request_that_is_cancelled_on_the_loop_leaves_the_queue(way):
    async def main():
        model, context = Model(), RequestContext()
        servable = batching(model, max_batch_size=2)
        gone = send_on_loop(servable, [[1]], context)
        await asyncio.sleep(0)
        context.cancel() if way == "context" else gone.cancel()
        outcome = await asyncio.gather(gone, return_exceptions=True)
        kind = ServingError if way == "context" else asyncio.CancelledError
        assert isinstance(outcome[0], kind)
        assert await answers_on_loop(send_on_loop(servable, [[2]])) == [[[4]]]
        assert model.seen == [{"x": [[2]]}] and context._callbacks == []

    asyncio.run(main())


def test_only_the_request_at_fault_fails_and_different_shapes_fail_together():
    def run(feeds):
        if (feeds["x"] < 0).any():
            raise ServingError(Code.INVALID_ARGUMENT, "negative")
        return [2 * feeds["x"]]

    async def main():
        servable = batching(Model(answer=run), max_batch_size=3)
        tasks = [send_on_loop(servable, row) for row in ([[1]], [[-2]], [[3]])]
        assert await answers_on_loop(*tasks) == [[[2]], ("INVALID_ARGUMENT", "negative"), [[6]]]
        different = await answers_on_loop(
            send_on_loop(servable, [[1, 2]]), send_on_loop(servable, [[3], [4]])
        )
        assert [code for code, _ in different] == ["FAILED_PRECONDITION"] * 2

    asyncio.run(main())


def test_what_cannot_be_batched_runs_on_a_thread():
    """Inputs without rows, and parts of a request whose outputs have several widths."""

    async def main(model, x, **options):
        servable, threads = batching(model, **options), []
        run = model.run
        model.run = lambda *call: (threads.append(threading.current_thread()), run(*call))[1]
        call = GraphCall({"x": np.array(x)}, ["y"], lambda outputs: outputs[0].tolist())
        answer = await Workers(1, 1).answer(servable, lambda: call, RequestContext(), True)
        assert threads[-1].name.startswith("requests")
        return answer

    fixed = Model({"x": [2, -1]})
    assert asyncio.run(main(fixed, [[1], [2]], max_batch_size=2)) == [[2], [4]]
    widths = Model(answer=lambda feeds: [feeds["x"][:, : feeds["x"].max()]])
    rows = [[1, 1], [1, 1], [2, 1]]
    assert asyncio.run(main(widths, rows, **SPLIT)) == rows


def test_requests_run_in_so_many_places_and_the_first_come_first():
    async def main():
        model = Model()
        model.go.clear()
        workers = Workers(2, 5)
        servable = batching(model, max_batch_size=2, batch_timeout_micros=0)
        order = []

        async def ask(number):
            with workers.admit():
                async with workers.place():
                    call = GraphCall({"x": np.array([[number]])}, ["y"], lambda outputs: outputs)
                    await workers.answer(servable, lambda: call, RequestContext(), True)
                    order.append(number)

        tasks = [asyncio.create_task(ask(number)) for number in range(7)]
        await asyncio.sleep(0.01)
        assert sum(len(seen["x"]) for seen in model.seen) <= 2
        with pytest.raises(ServingError, match="busy: 5 requests wait already"):
            workers.admit()
        model.go.set()
        await asyncio.gather(*tasks)
        assert order == [*range(7)]

    asyncio.run(main())


def test_a_server_with_batching_pads_and_answers_each_request(start_server, toys, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    toys.export(base, 1)
    (tmp_path / "batching.config").write_text(
        "max_batch_size { value: 2 } batch_timeout_micros { value: 20000000 } "
        "num_batch_threads { value: 2 } pad_variable_length_inputs: true"
    )
    with (
        start_server(
            "--model_name=toy",
            f"--model_base_path={base}",
            "--enable_batching",
            f"--batching_parameters_file={tmp_path / 'batching.config'}",
        ) as server,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        for texts in (["a", "b"], ["ü", ""], ["x" * 10_000, "🎉"]):
            futures = [pool.submit(server.predict, {"instances": [text]}) for text in texts]
            for text, future in zip(texts, futures):
                status, body = future.result()
                assert (status, body["predictions"][0]["translation"]) == (200, f"1:{text}")
        bodies = [{"signature_name": "echo", "instances": [row]} for row in ([1.0, 2.0], [3.0])]
        one, other = pool.map(server.predict, bodies)
        assert one == (200, {"predictions": [[1.0, 2.0]]})
        assert other == (200, {"predictions": [[3.0, 3.0]]})
        # A client that goes away leaves no trace: nobody is padded to its length.
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "toy", "echo"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto([[1.0, 2.0, 3.0]]))
        with server.channel() as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            gone = stub.Predict.future(request, timeout=60)
            time.sleep(0.5)
            gone.cancel()
            time.sleep(0.5)
        assert server.predict(bodies[1]) == (200, {"predictions": [[3.0]]})
        with pytest.raises(TimeoutError):
            server.request("POST", "/v1/models/toy:predict", bodies[0], timeout=0.5)
        time.sleep(0.5)
        assert server.predict(bodies[1]) == (200, {"predictions": [[3.0]]})
