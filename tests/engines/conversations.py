"""Requests of a small service, from a seed: conversations over a few system prompts, each turn beginning with all
before it. And the KV bytes that a model would compute for them: a number for each position that depends on all tokens
up to it."""
from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, List

import numpy


@dataclass
class Request:
    id: str
    tokens: List[int]
    output: int  # tokens that it will produce
    produced: List[int] = field(default_factory=list)
    salt: str = ""

    @property
    def all(self) -> List[int]:
        return self.tokens + self.produced


def next_token(tokens: List[int]) -> int:
    """What the model answers: the same for the same tokens."""
    return (tokens[-1] * 31 + len(tokens) * 7 + tokens[len(tokens) // 2]) % 900 + 100


def conversations(seed: int, count: int, longest: int = 160) -> Iterator[Request]:
    chance = random.Random(seed)
    systems = [[chance.randrange(100, 1000) for _ in range(chance.randrange(20, 60))] for _ in range(3)]
    open_ones: List[List[int]] = []
    for number in range(count):
        if open_ones and chance.random() < 0.65:
            history = open_ones.pop(chance.randrange(len(open_ones)))
        else:
            history = list(chance.choice(systems))
        tokens = history + [chance.randrange(100, 1000) for _ in range(chance.randrange(4, 40))]
        request = Request(f"request {seed}-{number}", tokens, chance.randrange(1, 12))
        yield request
        after = list(tokens)
        for _ in range(request.output):
            after.append(next_token(after))
        if len(after) < longest:
            open_ones.append(after)


TRACE_BLOCK = 8  # tokens here for the 512 that one hash id stands for


def traced(path: Path, seed: int, count: int, longest: int = 200) -> Iterator[Request]:
    """Requests of a trace of Mooncake's form (docs/BENCH.md), from a place in it that the seed decides. Equal ids are
    equal tokens, so what was a shared prefix is one again; all lengths are divided by 64, and what is longer is cut."""
    lines = path.read_text().splitlines()
    for number in range(count):
        entry = json.loads(lines[(seed * 101 + number) % len(lines)])
        tokens: List[int] = []
        for id in entry["hash_ids"][: longest // TRACE_BLOCK]:
            chance = random.Random(id)
            tokens += [chance.randrange(100, 1000) for _ in range(TRACE_BLOCK)]
        length = max(1, entry["input_length"] * TRACE_BLOCK // 512)
        yield Request(f"traced {seed}-{number}", tokens[:length], 1 + min(entry["output_length"] // 64, 11))


def fingerprints(tokens: List[int]) -> Any:
    """For each position a 32-bit number that all tokens up to it decide."""
    made = numpy.empty(len(tokens), dtype=numpy.int64)
    value = 1
    for position, token in enumerate(tokens):
        value = (value * 1000003 + token + 1) & 0x7FFFFFFF
        made[position] = value
    return made


def kv_of(prints: Any, layer: int, plane: int, rank: int) -> Any:
    """The number that fills a token's slot in one layer's tensor."""
    return prints * 1000 + layer * 100 + plane * 10 + rank
