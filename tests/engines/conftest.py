"""Stand-in engines: they use the connectors' interfaces only, and check every token's KV bytes."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stand-in engines")
    group.addoption("--requests", type=int, default=70, help="requests of each run (thousands for a long one)")
    group.addoption("--trace-file", default=str(ROOT / "tests" / "traces" / "sample.jsonl"), help="Mooncake's JSON lines")
    group.addoption("--seed", type=int, default=7, help="decides the requests and all mishaps")


@pytest.fixture
def requests(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--requests"))


@pytest.fixture
def trace(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("--trace-file"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))
