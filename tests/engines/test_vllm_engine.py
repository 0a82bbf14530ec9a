"""The vLLM stand-in with its connector and a real server, without and with mishaps."""
from __future__ import annotations

import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from conversations import conversations, traced
from serving import CHUNK, Server
from vllm_engine import Engine

import kvrail

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, "--l1-size", "4MiB", "--chunk-tokens", str(CHUNK))
    yield made
    made.stop()


def held(server: Server) -> int:
    with kvrail.Client(server.url) as client:
        return client.clear().from_l2


def run_out(engine: Engine) -> Dict[str, int]:
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
        assert steps < 20000, "requests hang: " + engine.state()
    engine.step()  # the last checks
    assert not engine.received and not engine.sent
    assert sum(engine.pool.uses) == 0
    return engine.stop()


@pytest.mark.parametrize(
    "tp, mla, stacked, extra",
    [
        (1, False, False, {}),
        (2, False, True, {}),
        (2, True, False, {"kvrail.store_generated": False}),
        (1, False, True, {"kvrail.load_async": False}),
    ],
)
def test_every_token_of_every_request_has_its_own_bytes(
    server: Server, requests: int, seed: int, tp: int, mla: bool, stacked: bool, extra: Dict[str, Any]
) -> None:
    engine = Engine(CONTEXT, server.url, tp, mla, stacked, extra)
    chance = random.Random(seed)
    aborted = 0
    for request in conversations(seed, requests):
        request.salt = chance.choice(["", "", "tenant"])
        engine.add(request)
        for _ in range(chance.randrange(3)):
            engine.step()
        if chance.random() < 0.1:
            engine.abort(chance.choice(list(engine.requests) or [request.id]))
            aborted += 1
    numbers = run_out(engine)
    print(numbers, "aborted", aborted)
    assert numbers["finished"] >= requests - aborted
    assert numbers["loaded"] > requests // 2
    assert numbers["failed"] <= requests // 20  # only when the machine is so busy that the server seems to hang
    assert held(server) == 0


def test_requests_of_a_trace_have_their_own_bytes(server: Server, requests: int, seed: int, trace: Path) -> None:
    engine = Engine(CONTEXT, server.url, 2, False, False, {})
    for request in traced(trace, seed, requests):
        engine.add(request)
        engine.step()
    numbers = run_out(engine)
    print(numbers)
    assert numbers["finished"] == requests and numbers["loaded"] > 0
    assert held(server) == 0


@pytest.mark.parametrize("extra", [{}, {"kvrail.load_async": False}])
def test_mishaps_never_give_wrong_bytes_nor_hang_a_request(server: Server, requests: int, seed: int, extra: Dict[str, Any]) -> None:
    """A server that is killed between lookup and load, or in the middle of a step; one that hangs; caches that are
    dropped under the locks of a dead scheduler; aborts at any time."""
    engine = Engine(CONTEXT, server.url, 2, False, False, extra)
    chance = random.Random(seed + 2)
    happened = {"abort": 0, "restart": 0, "pause": 0}
    for number, request in enumerate(conversations(seed + 2, requests)):
        engine.add(request)
        for _ in range(chance.randrange(3)):
            engine.step()
        if chance.random() < 0.1:
            engine.abort(chance.choice(list(engine.requests) or [request.id]))
            happened["abort"] += 1
        if number % 37 == 7:
            engine.begin()
            server.kill()
            engine.end()
            engine.step()
            server.start()
            engine.recover()
            happened["restart"] += 1
        elif number % 17 == 5:
            if not engine.asynchronous:
                engine.step()
                continue
            # A step that preempts waits for its stores, so somebody else must let the server go on.
            server.pause()
            engine.begin()
            awake = threading.Timer(0.2, server.resume)
            awake.start()
            engine.end()
            awake.join()
            happened["pause"] += 1
    numbers = run_out(engine)
    print(numbers, happened)
    assert happened["abort"] and happened["restart"] and numbers["loaded"] > 0
    assert held(server) == 0
