"""What the SGLang connector costs a request, in Python, on the scheduler's critical path: microseconds, median and 10 % .. 90 %.

    taskset -c 4 scripts/python run python/bench/connector.py [--tokens 32768] [--rounds 60] [--server-cores 2-3 | --url URL]

Without --url it starts a server of its own ($KVRAIL_PROGRAMS/kvraild), on these cores, where it polls; else where the system puts it. Prompts are random, so that no two share a chunk unless they are to:
  hit         lookup_kv of a prompt that is stored whole, by a request that has never been seen here: reading the list, hashing, LOOKUP
  next turn   lookup_kv of a prompt that goes on from the last one by 200 tokens
  another     lookup_kv of the same prompt by further requests, one right after the other: what is left when caches are warm
  again       lookup_kv of the same request once more, as the waiting queue does
  miss        all that a request costs of which nothing is there and which is not stored: lookup_kv, release_pending, end_session
  raw         the C library's LOOKUP of a chain that is hashed already
each with the prompt as a list of ints, as tokenizers give it, and as an array.
"""
from __future__ import annotations

import argparse
import array
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import numpy

import kvrail
from kvrail.sglang import KvrailConnector, StoreMetadata

PAGE = 64


def start_server(folder: str, cores: Optional[str]) -> Any:
    program = Path(os.environ["KVRAIL_PROGRAMS"]) / "kvraild"
    more = ["--cores", cores] if cores else []
    process = subprocess.Popen(
        [program, "--socket", f"{folder}/s", "--http", "off", "--l1-size", "1GiB", *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
    )
    for _ in range(500):
        try:
            kvrail.Client(f"unix:{folder}/s").close()
            return process
        except kvrail.KvrailError:
            time.sleep(0.01)
    raise SystemExit("kvraild does not start")


class Bench:
    def __init__(self, url: str, tokens: int, rounds: int) -> None:
        self.tokens, self.rounds = tokens, rounds
        self.chance = random.Random(1)
        slots = (tokens // PAGE + 2) * PAGE + 1024
        pools = [[numpy.zeros((slots, 1, 8), dtype=numpy.int8)] for _ in range(2)]  # 16 bytes a token: this is not about copying
        os.environ.setdefault("KVRAIL_KV_DTYPE", "int8")
        self.connector = KvrailConnector(SimpleNamespace(model_path="bench"), 1, 0, PAGE, url, 0, *pools)
        self.slots = numpy.arange(PAGE, PAGE + tokens + 1024, dtype=numpy.int64)
        self.times: Dict[str, List[float]] = {}
        self.number = 0

    def prompt(self, count: int) -> List[int]:
        return [self.chance.randrange(1000, 150000) for _ in range(count)]

    def fresh(self, prompt: List[int]) -> List[int]:
        """Ints of their own, as they come out of another process."""
        return array.array("q", prompt).tolist()

    def id(self) -> str:
        self.number += 1
        return f"request {self.number}"

    def measure(self, name: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = call()
        self.times.setdefault(name, []).append((time.perf_counter() - begun) * 1e6)
        return result

    def store(self, prompt: List[int]) -> None:
        id = self.id()
        self.connector.store_kv(StoreMetadata(None, prompt, self.slots[: len(prompt)], 0, id))
        self.connector.end_session(id)

    def round(self, kind: str, made: Callable[[List[int]], Any]) -> None:
        connector = self.connector
        prompt = self.prompt(self.tokens)
        self.store(prompt)
        connector._link.history.clear()  # so that it is a prompt of another server
        id, given = self.id(), made(self.fresh(prompt))
        found = self.measure(f"hit, {kind}", lambda: connector.lookup_kv(given, id))
        assert found == self.tokens // 256 * 256, found
        again = made(self.fresh(prompt))
        self.measure(f"again, {kind}", lambda: connector.lookup_kv(again, id))
        connector.release_pending(id)
        connector.end_session(id)
        id, given = self.id(), made(self.fresh(prompt + self.prompt(200)))
        found = self.measure(f"next turn, {kind}", lambda: connector.lookup_kv(given, id))
        assert found == self.tokens // 256 * 256, found
        connector.release_pending(id)
        connector.end_session(id)
        for _ in range(5):
            id = self.id()
            self.measure(f"another, {kind}", lambda: connector.lookup_kv(given, id))
            connector.release_pending(id)
            connector.end_session(id)
        for size in (2048, self.tokens):
            id, given = self.id(), made(self.prompt(size))

            def miss() -> None:
                assert connector.lookup_kv(given, id) == 0
                connector.release_pending(id)
                connector.end_session(id)

            self.measure(f"miss of {size}, {kind}", miss)
        if kind == "list":
            with connector._registration.session(self.id()) as session:
                session.tokens(prompt)
                self.measure("raw LOOKUP", session.lookup)
                session.end()
        connector._link.client.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--url")
    parser.add_argument("--server-cores")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = None if arguments.url else start_server(folder, arguments.server_cores)
        bench = Bench(arguments.url or f"unix:{folder}/s", arguments.tokens, arguments.rounds)
        for _ in range(arguments.rounds):
            bench.round("list", lambda prompt: prompt)
            bench.round("array", lambda prompt: array.array("q", prompt))
        bench.connector.close()
        if server is not None:
            server.terminate()
            server.wait()
    print(f"{arguments.tokens} tokens, {arguments.rounds} rounds; microseconds: median (10 % .. 90 %), least")
    for name, times in bench.times.items():
        times.sort()
        count = len(times)
        print(f"{name:20} {times[count // 2]:8.1f}  ({times[count // 10]:.1f} .. {times[count * 9 // 10]:.1f}), {times[0]:.1f}")


if __name__ == "__main__":
    main()
