"""The SGLang stand-in with its connector and a real server, without and with mishaps."""
from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from conversations import Request, conversations, traced
from serving import CHUNK, Server
from sglang_engine import Service

import kvrail

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, "--l1-size", "4MiB", "--chunk-tokens", str(CHUNK))
    yield made
    made.stop()


def held(server: Server) -> int:
    """Chunks that somebody still holds, after all that is free was dropped."""
    with kvrail.Client(server.url) as client:
        return client.clear().from_l2


def added(total: Dict[str, int], numbers: Dict[str, int]) -> None:
    for name, number in numbers.items():
        total[name] = total.get(name, 0) + number


@pytest.mark.parametrize("size, mla", [(1, False), (2, False), (2, True)])
def test_every_token_of_every_request_has_its_own_bytes(server: Server, requests: int, seed: int, size: int, mla: bool) -> None:
    service = Service(CONTEXT, server.url, size, mla, seed)
    chance = random.Random(seed)
    aborted = 0
    for request in conversations(seed, requests):
        service.say("add", request)
        for _ in range(chance.randrange(3)):
            service.step()
        if chance.random() < 0.1:
            service.say("abort", request.id, False)
            aborted += 1
    while service.step():
        pass
    numbers = service.stop()
    print(numbers, "aborted", aborted)
    assert numbers["finished"] >= requests - aborted
    assert numbers["loaded"] > requests  # the cache was of use
    assert held(server) == 0


def test_requests_of_a_trace_have_their_own_bytes(server: Server, requests: int, seed: int, trace: Path) -> None:
    service = Service(CONTEXT, server.url, 2, False, seed)
    for request in traced(trace, seed, requests):
        service.say("add", request)
        service.step()
    while service.step():
        pass
    numbers = service.stop()
    print(numbers)
    assert numbers["finished"] == requests and numbers["loaded"] > 0
    assert held(server) == 0


def test_mishaps_never_give_wrong_bytes_nor_leave_locks(server: Server, requests: int, seed: int) -> None:
    """Aborts of which the connector hears nothing, a server that is killed or hangs, ranks that are killed."""
    chance = random.Random(seed + 1)
    left: List[Request] = list(conversations(seed + 1, requests))
    numbers: Dict[str, int] = {}
    happened = {"abort": 0, "restart": 0, "kill": 0, "pause": 0}
    service = Service(CONTEXT, server.url, 2, False, seed)
    number = 0
    while left:
        request = left.pop(0)
        service.say("add", request)
        for _ in range(chance.randrange(3)):
            service.step()
        number += 1
        mishap = chance.random()
        if mishap < 0.1:
            service.say("abort", request.id, chance.random() < 0.5)
            happened["abort"] += 1
        elif number % 31 == 17:
            server.kill()
            service.step()
            service.step()
            server.start()
            if chance.random() < 0.8:
                service.recover()
            happened["restart"] += 1
        elif number % 23 == 19:
            service.say("step")  # and while they are at it
            service.kill(chance.randrange(2))
            service = Service(CONTEXT, server.url, 2, False, seed + number)
            happened["kill"] += 1
        elif number % 29 == 11:
            server.pause()
            service.say("step")
            server.resume()
            service.answers("step")
            happened["pause"] += 1
    while service.step():
        pass
    added(numbers, service.stop())
    print(numbers, happened)
    assert min(happened.values()) > 0 and numbers["loaded"] > 0
    assert held(server) == 0
