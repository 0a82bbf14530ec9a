"""The TensorRT-LLM stand-in with its connector and a real server, without and with mishaps."""
from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from conversations import conversations, traced
from serving import CHUNK, Server
from trt_engine import Engine

import kvrail

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: Any) -> Iterator[Server]:
    made = Server(tmp_path, "--l1-size", "4MiB", "--chunk-tokens", str(CHUNK))
    monkeypatch.setenv("KVRAIL_URL", made.url)
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
        assert steps < 20000, f"requests hang: {[r.request_id for r in engine.running + engine.waiting]}, held {engine.held}"
    engine.step()  # the last checks
    assert sum(engine.pool.uses) == 0
    return engine.stop()


def run_conversations(engine: Engine, seed: int, requests: int) -> Dict[str, int]:
    chance = random.Random(seed)
    aborted = 0
    for request in conversations(seed, requests):
        request.salt = chance.choice(["", "", "tenant"])
        engine.add(request)
        for _ in range(chance.randrange(3)):
            engine.step()
        if chance.random() < 0.1 and engine.running + engine.waiting:
            engine.abort(chance.randrange(1000))
            aborted += 1
    return {**run_out(engine), "aborted": aborted}


@pytest.mark.parametrize("tp", [1, 2])
def test_every_token_of_every_request_has_its_own_bytes(server: Server, requests: int, seed: int, tp: int) -> None:
    numbers = run_conversations(Engine(CONTEXT, tp), seed, requests)
    print(numbers)
    assert numbers["finished"] == requests - numbers["aborted"] - numbers["failed"]
    assert numbers["loaded"] > requests // 2 and numbers["checked"] > numbers["loaded"] and numbers["held"] > 0
    assert numbers["failed"] == 0
    assert held(server) == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pools_of_torch_have_the_same_bytes(server: Server, requests: int, seed: int, device: str) -> None:
    torch: Any = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    numbers = run_conversations(Engine(CONTEXT, 2, device=device), seed, requests)
    print(numbers)
    assert numbers["finished"] == requests - numbers["aborted"] and numbers["loaded"] > requests // 2
    assert held(server) == 0


def test_requests_of_a_trace_have_their_own_bytes(server: Server, requests: int, seed: int, trace: Path) -> None:
    engine = Engine(CONTEXT, 2, blocks=128)
    for request in traced(trace, seed, requests):
        engine.add(request)
        engine.step()
    numbers = run_out(engine)
    print(numbers)
    assert numbers["finished"] == requests and numbers["loaded"] > 0
    assert held(server) == 0


def test_mishaps_never_give_wrong_bytes_nor_hang_a_request(server: Server, requests: int, seed: int) -> None:
    """A server that is killed between lookup and load, or in the middle of a step, or that is away for some steps; aborts
    at any time. A load that does not come is an error of the step, and the requests that were under way are lost, as in
    TensorRT-LLM."""
    engine = Engine(CONTEXT, 2, blocks=60)  # so few that most of a conversation's last turn is gone
    chance = random.Random(seed + 2)
    happened = {"abort": 0, "restart under a load": 0, "restart": 0}

    def kill_under(loads: List[Any]) -> None:
        if loads and happened["restart under a load"] < number // 20:
            happened["restart under a load"] += 1
            server.kill()

    for number, request in enumerate(conversations(seed + 2, requests)):
        engine.add(request)
        for step in range(chance.randrange(2, 9)):
            killed = sum(happened.values())
            engine.begin(kill_under)
            if number % 35 == 30 and step == 0:
                server.kill()
                happened["restart"] += 1
            engine.end()
            if sum(happened.values()) > killed:
                for _ in range(chance.randrange(3)):
                    engine.step()
                server.start()
                engine.recover()
        if chance.random() < 0.1 and engine.running + engine.waiting:
            engine.abort(chance.randrange(1000))
            happened["abort"] += 1
    numbers = run_out(engine)
    print(numbers, happened)
    assert happened["abort"] and happened["restart under a load"] and numbers["failed"] > 0 and numbers["loaded"] > 0
    assert numbers["finished"] == requests - happened["abort"] - numbers["failed"]
    assert held(server) == 0
