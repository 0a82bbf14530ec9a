"""Stand-in engines: they use the connectors' interfaces only, and check every token's KV bytes."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stand-in engines")
    group.addoption("--requests", type=int, default=70, help="requests of each run (thousands for a long one)")
    group.addoption("--seed", type=int, default=7, help="decides the requests and all mishaps")


@pytest.fixture
def requests(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--requests"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))
