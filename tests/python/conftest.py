"""One server for all tests: each finds it empty."""
from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
from serving import CHUNK, Pool, Server

import kvrail


@pytest.fixture(scope="session")
def only_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("kvraild")
    made = Server(folder, "--l1-size", "32MiB", "--chunk-tokens", str(CHUNK))
    yield made
    assert made.stop() == 0


@pytest.fixture
def server(only_server: Server) -> Server:
    only_server.make_sure()
    return only_server


@pytest.fixture
def client(server: Server) -> Iterator[kvrail.Client]:
    with kvrail.Client(server.url, name="test") as made:
        yield made


@pytest.fixture
def pool(client: kvrail.Client) -> Pool:
    return Pool(client)
