"""What the SGLang connector costs a request, in Python, on the scheduler's critical path: microseconds, median and 10 % .. 90 %.

    taskset -c 4 scripts/python run python/bench/connector.py [--tokens 32768] [--rounds 60] [--server-cores 2-3 | --url URL] [--against LIB]

Without --url it starts a server of its own ($KVRAIL_PROGRAMS/kvraild), on these cores, where it polls and never sleeps; else where the system puts it. --against: the package of another version
(its build/python/lib), whose rounds take turns with ours. Prompts are random, so that no two share a chunk unless they are to:
  hit         lookup_kv of a prompt that is stored whole, by a request that has never been seen here: reading the list, hashing, LOOKUP
  next turn   lookup_kv of a prompt that goes on from the last one by 200 tokens, and was made just now, as engines get it from another process
  vLLM's turn the same of vLLM's connector: get_num_new_matched_tokens
  compare     of it, comparing the tokens with the last turn's alone, once more with new ints
  another     lookup_kv of the same prompt by further requests, one right after the other: what is left when caches are warm
  again       lookup_kv of the same request once more, as the waiting queue does
  miss        all that a request costs of which nothing is there and which is not stored: lookup_kv, release_pending, end_session
  raw         the C library's LOOKUP of a chain that is hashed already
each with the prompt as a list of ints, as tokenizers give it, and as an array of 64-bit and of 32-bit integers.
"""
from __future__ import annotations

import argparse
import array
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import numpy

import kvrail
from kvrail.planner import Planner
from kvrail.sglang import KvrailConnector, StoreMetadata

PAGE = 64


def start_server(folder: str, cores: Optional[str]) -> Any:
    program = Path(os.environ["KVRAIL_PROGRAMS"]) / "kvraild"
    more = ["--cores", cores, "--wait", "busy"] if cores else []
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
        self.chance = random.Random()
        slots = (tokens // PAGE + 2) * PAGE + 1024
        pools = [[numpy.zeros((slots, 1, 8), dtype=numpy.int8)] for _ in range(2)]  # 16 bytes a token: this is not about copying
        os.environ.setdefault("KVRAIL_KV_DTYPE", "int8")
        self.connector = KvrailConnector(SimpleNamespace(model_path="bench"), 1, 0, PAGE, url, 0, *pools)
        self.planner = Planner(self.connector._link, self.connector._registration, PAGE, True, True, lambda request: None, 0.1)
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
        tokens = kvrail.Tokens(prompt)
        for _ in range(3):
            id, given = self.id(), made(self.fresh(prompt + self.prompt(200)))
            found = self.measure(f"next turn, {kind}", lambda: connector.lookup_kv(given, id))
            assert found == self.tokens // 256 * 256, found
            connector.release_pending(id)
            connector.end_session(id)
            request = SimpleNamespace(request_id=self.id(), all_token_ids=made(self.fresh(prompt + self.prompt(200))), num_tokens=self.tokens + 200)
            found = self.measure(f"vLLM's turn, {kind}", lambda: self.planner.matched_tokens(request, 0))[0]
            assert found == self.tokens // 256 * 256, found
            self.planner.finished(request)
            again = made(self.fresh(prompt))
            self.measure(f"compare, {kind}", lambda: tokens.common(again))
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

    def rounds_of_all(self) -> None:
        self.round("list", lambda prompt: prompt)
        self.round("array", lambda prompt: array.array("q", prompt))
        self.round("int32", lambda prompt: array.array("i", prompt))


class Other:
    """The same in a process of its own, with another version of the package."""

    def __init__(self, package: str, url: str, tokens: int) -> None:
        self.times: Dict[str, List[float]] = {}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--in-turn", "--url", url, "--tokens", str(tokens)],
            env={**os.environ, "PYTHONPATH": package},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rounds_of_all(self) -> None:
        assert self.process.stdin and self.process.stdout
        print("go on", file=self.process.stdin, flush=True)
        self.times = json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def in_turn(bench: Bench) -> None:
    for _ in sys.stdin:
        bench.rounds_of_all()
        print(json.dumps(bench.times), flush=True)
    bench.connector.close()


def report(times: Dict[str, List[float]], name: str) -> str:
    sample = sorted(times[name])
    count = len(sample)
    return f"{sample[count // 2]:8.1f}  ({sample[count // 10]:.1f} .. {sample[count * 9 // 10]:.1f}), {sample[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--url")
    parser.add_argument("--server-cores")
    parser.add_argument("--against", help="build/python/lib of another version")
    parser.add_argument("--in-turn", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_turn:
        return in_turn(Bench(arguments.url, arguments.tokens, 0))
    with tempfile.TemporaryDirectory() as folder:
        server = None if arguments.url else start_server(folder, arguments.server_cores)
        url = arguments.url or f"unix:{folder}/s"
        bench = Bench(url, arguments.tokens, arguments.rounds)
        other = Other(arguments.against, url, arguments.tokens) if arguments.against else None
        for _ in range(arguments.rounds):
            if other is not None:
                other.rounds_of_all()
            bench.rounds_of_all()
        bench.connector.close()
        if other is not None:
            other.close()
        if server is not None:
            server.terminate()
            server.wait()
    print(f"{arguments.tokens} tokens, {arguments.rounds} rounds; microseconds: median (10 % .. 90 %), least" + ("; then those of --against" if other else ""))
    for name in bench.times:
        print(f"{name:20}", report(bench.times, name), *([" |", report(other.times, name)] if other is not None else []))


if __name__ == "__main__":
    main()
