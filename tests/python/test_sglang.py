"""The SGLang connector, call by call, as LMCRadixCache uses it."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional, Sequence

import pytest
from serving import CHUNK, Server

import kvrail
from kvrail.sglang import KvrailConnector, LoadMetadata, StoreMetadata

numpy = pytest.importorskip("numpy")

PAGE = 4
SLOTS = 64 * PAGE
LAYERS = 2


class Ranks:
    """A collective of threads: each number's minimum over all of them."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.given: List[Sequence[int]] = [()] * size

    def of(self, rank: int) -> Any:
        def agree(numbers: Sequence[int]) -> Sequence[int]:
            self.given[rank] = tuple(numbers)
            self.barrier.wait(20)
            least = [min(column) for column in zip(*self.given)]
            self.barrier.wait(20)
            return least

        return agree


class Rank:
    """One rank's pool and connector. The bytes of a token's slot in layer l say token, layer, plane and rank."""

    def __init__(self, server: Server, rank: int = 0, size: int = 1, mla: bool = False, group: Any = None, **more: Any) -> None:
        planes = 1 if mla else 2
        shape = (SLOTS + PAGE, 1, 8) if mla else (SLOTS + PAGE, 2, 4)
        self.rank = 0 if mla else rank
        self.pools = [[numpy.zeros(shape, dtype=numpy.int64) for _ in range(LAYERS)] for _ in range(planes)]
        forms = {"kv_cache_pools": self.pools} if mla or more.pop("new_form", False) else {"k_pool": self.pools[0], "v_pool": self.pools[1]}
        self.connector = KvrailConnector(
            sgl_config=more.pop("config", SimpleNamespace(model_path="lab/model")),
            tp_size=size,
            rank=rank,
            page_size=PAGE,
            host=server.url,
            port=0,
            tp_group=group,
            heartbeat_interval=0.05,
            **{"mq_timeout": 10.0, **forms, **more},
        )

    def compute(self, token: int, slot: int) -> None:
        for plane, pool in enumerate(self.pools):
            for layer, tensor in enumerate(pool):
                tensor[slot] = ((token * 10 + layer) * 10 + plane) * 10 + self.rank + 1

    def holds(self, token: int, slot: int) -> bool:
        return all(
            (tensor[slot] == ((token * 10 + layer) * 10 + plane) * 10 + self.rank + 1).all()
            for plane, pool in enumerate(self.pools)
            for layer, tensor in enumerate(pool)
        )

    def wipe(self) -> None:
        for pool in self.pools:
            for tensor in pool:
                tensor[:] = -7

    def store(self, tokens: List[int], first_page: int = 1, request: str = "store", offset: int = 0, cut: bool = False) -> None:
        slots = numpy.arange(first_page * PAGE, first_page * PAGE + len(tokens), dtype=numpy.int64)
        for token, slot in zip(tokens, slots):
            self.compute(token, int(slot))
        self.connector.store_kv(StoreMetadata(None, tokens, slots[offset:] if cut else slots, offset, request))

    def close(self) -> None:
        self.connector.close()


@pytest.fixture
def rank(server: Server) -> Iterator[Rank]:
    made = Rank(server)
    yield made
    made.close()


def slots(offset_and_pad: int, tokens: int, first_page: int) -> Any:
    """As _load_back makes it: placeholders, then new slots."""
    made = numpy.full(tokens, -1, dtype=numpy.int64)
    made[offset_and_pad:] = numpy.arange(first_page * PAGE, first_page * PAGE + tokens - offset_and_pad)
    return made


TOKENS = list(range(1000, 1000 + 3 * CHUNK + 5))


def test_what_one_request_stored_another_finds_and_loads(rank: Rank) -> None:
    rank.store(TOKENS)
    rank.connector.end_session("store")
    rank.wipe()
    assert rank.connector.chunk_size() == CHUNK and rank.connector.is_healthy
    assert rank.connector.lookup_kv(TOKENS, "r") == 3 * CHUNK
    mapping = slots(0, 3 * CHUNK, 20)
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping, 0, 0, "r")) == 3 * CHUNK
    assert all(rank.holds(token, int(slot)) for token, slot in zip(TOKENS, mapping))
    rank.connector.end_session("r")


@pytest.mark.parametrize("present", range(PAGE, 3 * CHUNK, PAGE))
def test_what_the_radix_tree_has_is_never_written(rank: Rank, present: int) -> None:
    """offset and prefix_pad as _load_back computes them; slot_mapping is longer than what was matched."""
    rank.store(TOKENS)
    rank.connector.end_session("store")
    rank.wipe()
    assert rank.connector.lookup_kv(TOKENS, "r") == 3 * CHUNK
    pad = present % CHUNK
    mapping = slots(present, 3 * CHUNK + PAGE, 20)
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping, present - pad, pad, "r")) == 3 * CHUNK - (present - pad)
    written = {int(slot) for slot in mapping[present : 3 * CHUNK]}
    for token, slot in list(zip(TOKENS, mapping))[present : 3 * CHUNK]:
        assert rank.holds(token, int(slot))
    for slot in range(SLOTS + PAGE):
        if slot not in written:
            assert (rank.pools[0][0][slot] == -7).all()
    rank.connector.end_session("r")


def test_short_prompts_unknown_ones_and_no_id_are_misses(rank: Rank) -> None:
    assert rank.connector.lookup_kv(TOKENS[: CHUNK - 1], "r") == 0
    assert rank.connector.lookup_kv(TOKENS, "") == 0
    assert rank.connector.lookup_kv(TOKENS, "r") == 0
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, slots(0, 48, 1), 0, 0, "r")) == 0
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, slots(0, 48, 1), 0, 0, "never looked up")) == 0
    rank.connector.release_pending("r")
    rank.connector.release_pending("never looked up")
    rank.connector.end_session("never looked up")
    rank.connector.end_session("r")
    rank.connector.end_session("r")


def test_what_is_no_token_is_a_miss_and_no_exception(rank: Rank) -> None:
    assert rank.connector.lookup_kv([-1] * CHUNK, "r") == 0
    assert rank.connector.lookup_kv([(1, 2)] * CHUNK, "r") == 0
    rank.connector.store_kv(StoreMetadata(None, [-1] * CHUNK, numpy.arange(4, 4 + CHUNK), 0, "r"))
    rank.connector.store_kv(StoreMetadata(None, TOKENS, numpy.arange(5, 5 + len(TOKENS)), 0, "r"))  # no whole pages
    assert rank.connector.lookup_kv(TOKENS, "r") == 0


def test_bad_slots_load_nothing_and_hold_nothing(server: Server, rank: Rank) -> None:
    rank.store(TOKENS)
    rank.connector.end_session("store")
    mapping = slots(0, 48, 20)
    for bad in (mapping[:40], mapping + 1, numpy.full(48, -1, dtype=numpy.int64), mapping + 10**6):
        assert rank.connector.lookup_kv(TOKENS, "r") == 48
        assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, bad, 0, 0, "r")) == 0
    for offset, pad in ((1, 0), (CHUNK, 1), (4 * CHUNK, 0), (3 * CHUNK, 0), (0, -PAGE), (0, 3 * CHUNK)):
        assert rank.connector.lookup_kv(TOKENS, "r") == 48
        assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping, offset, pad, "r")) == 0
    no_locks(rank)


def no_locks(rank: Rank) -> None:
    """Everything can be dropped: nothing is held. The requests before are still known."""
    link = rank.connector._link
    wait_until(lambda: (link.sweep(), not link._background)[1])
    wait_until(lambda: link.client.clear(rank.connector._registration).from_l2 == 0)


def test_lookups_of_one_id_replace_each_other_and_release_gives_all_back(rank: Rank) -> None:
    rank.store(TOKENS)
    rank.store([5] * CHUNK, request="other")
    for request in ("store", "other"):
        rank.connector.end_session(request)
    for _ in range(3):
        assert rank.connector.lookup_kv(TOKENS, "r") == 48
    assert rank.connector.lookup_kv([5] * CHUNK, "r") == CHUNK  # another prompt under the same id
    assert rank.connector.lookup_kv(TOKENS[:20], "r") == CHUNK
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    assert rank.connector.lookup_kv(TOKENS[:40], "r") == 2 * CHUNK  # a shorter one: the rest is let go
    rank.connector.release_pending("r")
    rank.connector.release_pending("r")
    no_locks(rank)
    rank.connector.end_session("r")


@pytest.mark.parametrize("make", [list, lambda ids: numpy.array(ids, dtype=numpy.int64)])
def test_what_a_prompt_only_seems_to_go_on_from_is_never_believed(rank: Rank, make: Any) -> None:
    """The history guesses by a prompt's last tokens and some others, and the server is asked before all are compared."""
    rank.store(TOKENS)
    rank.connector.end_session("store")
    guess = rank.connector._link.history.guess
    guesses = 0
    for at in range(len(TOKENS)):
        other = list(TOKENS)
        other[at] += 1
        guesses += guess(make(other)) is not None
        assert rank.connector.lookup_kv(make(other), "r") == min(at // CHUNK, 3) * CHUNK, at
        assert rank.connector.lookup_kv(make(TOKENS), "r") == 3 * CHUNK
        assert rank.connector.lookup_kv(make(other), "r") == min(at // CHUNK, 3) * CHUNK
        rank.connector.release_pending("r")
        rank.connector.end_session("r")
    assert guesses > 10
    for bad in (-1, 2**32, "token", None):
        assert rank.connector.lookup_kv([*TOKENS[:1], bad, *TOKENS[2:]], "bad") == 0
        assert rank.connector.lookup_kv([*TOKENS, bad], "bad") == 0
    assert rank.connector.lookup_kv(make(TOKENS), "bad") == 3 * CHUNK
    rank.connector.end_session("bad")
    no_locks(rank)


def test_the_turns_of_a_conversation_each_find_what_the_last_one_stored(rank: Rank) -> None:
    tokens, history = list(TOKENS), rank.connector._link.history
    rank.store(tokens)
    rank.connector.end_session("store")
    for turn in range(5):
        tokens = tokens + [turn] * 21
        hits = history.hits
        stored = (len(tokens) - 21) // CHUNK * CHUNK
        assert rank.connector.lookup_kv(tokens, f"turn {turn}") == stored and history.hits == hits + 1
        tokens = tokens + [99] * CHUNK
        assert rank.connector.lookup_kv(tokens, f"turn {turn}") == stored  # the same request, with what it generated
        rank.store(tokens, request=f"turn {turn}")
        rank.connector.end_session(f"turn {turn}")
    whole = len(tokens) // CHUNK * CHUNK
    for branch in (tokens + [7] * 40, tokens + [8] * 40, tokens[:whole] + [9], tokens):
        for request in ("one", "other"):
            assert rank.connector.lookup_kv(branch, request) == whole
    rank.connector.reset()
    no_locks(rank)


def test_a_guess_while_the_server_hangs_is_a_miss(server: Server) -> None:
    rank = Rank(server, mq_timeout=0.05)
    rank.store(TOKENS)
    rank.connector.end_session("store")
    for tokens in (TOKENS, [*TOKENS[:1], 7, *TOKENS[2:]]):
        server.pause()
        try:
            assert rank.connector.lookup_kv(tokens, "r") == 0
        finally:
            server.resume()
        wait_until(lambda: rank.connector.is_healthy)
        rank.connector.end_session("r")
    assert rank.connector.lookup_kv(TOKENS, "r") == 3 * CHUNK
    rank.connector.end_session("r")
    no_locks(rank)
    rank.close()


def test_request_ids_are_what_users_choose(rank: Rank) -> None:
    rank.store(TOKENS)
    rank.connector.end_session("store")
    ids = ["x" * 1000, "x" * 999 + "y", "a\0b", "a\0c", "\udc80", "\n", "日本語" * 50, " "]
    for _ in range(2):
        for id in ids:
            assert rank.connector.lookup_kv(TOKENS, id) == 3 * CHUNK
    assert len(rank.connector._requests) == len(ids)
    rank.connector.reset()
    no_locks(rank)


def test_a_child_of_fork_misses_and_takes_nothing_away(rank: Rank) -> None:
    rank.store(TOKENS)
    rank.connector.end_session("store")
    connector = rank.connector
    assert connector.lookup_kv(TOKENS, "r") == 3 * CHUNK
    child = os.fork()
    if child == 0:
        found = [connector.lookup_kv(TOKENS, id) for id in ("r", "other")] + [connector.lookup_kv([9] * CHUNK, "unknown")]
        found.append(connector.retrieve_kv(LoadMetadata(TOKENS, slots(0, 3 * CHUNK, 20), 0, 0, "r")))
        connector.end_session("r")
        connector.close()
        connector.close()
        os._exit(0 if found == [0, 0, 0, 0] and not connector.is_healthy else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connector.retrieve_kv(LoadMetadata(TOKENS, slots(0, 3 * CHUNK, 20), 0, 0, "r")) == 3 * CHUNK
    connector.end_session("r")
    no_locks(rank)


def test_a_retrieve_lets_go_of_what_is_before_its_offset(rank: Rank) -> None:
    rank.store(TOKENS)
    rank.connector.end_session("store")
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, slots(20, 48, 20), 16, 4, "r")) == 32
    no_locks(rank)


def test_stores_take_slots_of_all_tokens_or_of_those_from_the_offset(rank: Rank) -> None:
    rank.store(TOKENS[:CHUNK])
    rank.store(TOKENS, request="newest", offset=CHUNK, cut=True)
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    rank.wipe()
    mapping = slots(0, 48, 20)
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping, 0, 0, "r")) == 48
    assert all(rank.holds(token, int(slot)) for token, slot in zip(TOKENS, mapping))
    more = TOKENS + list(range(50000, 50040))
    rank.store(more, request="older", offset=CHUNK)  # an offset, but slots of all
    assert rank.connector.lookup_kv(more, "s") == len(more) // CHUNK * CHUNK


def test_a_store_may_be_shorter_than_the_lookup_and_longer(rank: Rank) -> None:
    assert rank.connector.lookup_kv(TOKENS, "r") == 0
    rank.store(TOKENS[: CHUNK + 3], request="r")
    assert rank.connector.lookup_kv(TOKENS, "s") == CHUNK
    rank.store(TOKENS + [7] * CHUNK, request="r")
    rank.connector.end_session("r")
    assert rank.connector.lookup_kv(TOKENS + [7] * CHUNK, "s") == 4 * CHUNK


def test_an_asynchronous_store_tells_when_its_slots_are_free(server: Server, rank: Rank) -> None:
    indices = numpy.arange(PAGE, PAGE + CHUNK, dtype=numpy.int64)
    server.pause()
    try:
        future = rank.connector.store_kv_async(StoreMetadata(None, TOKENS[:CHUNK], indices, 0, "a"))
        assert not future.query()
        assert future.result(0.02) is False and not future.query()
    finally:
        server.resume()
    assert future.result(10) is True and future.query()
    assert rank.connector.store_kv_async(StoreMetadata(None, TOKENS[:3], indices[:3], 0, "b")).result() is True
    assert rank.connector.store_kv_async(StoreMetadata(None, TOKENS[:CHUNK], indices + 1, 0, "b")).result() is False


def test_without_a_request_id_a_store_leaves_nothing(rank: Rank) -> None:
    rank.store(TOKENS, request="")
    assert not rank.connector._requests
    assert rank.connector.lookup_kv(TOKENS, "r") == 48


def test_a_server_that_hangs_makes_misses_until_it_answers(server: Server) -> None:
    rank = Rank(server, mq_timeout=0.05)
    rank.store(TOKENS)
    server.pause()
    try:
        begun = time.monotonic()
        assert rank.connector.lookup_kv(TOKENS, "r") == 0
        assert not rank.connector.is_healthy
        assert rank.connector.lookup_kv(TOKENS, "r") == 0
        assert rank.connector.store_kv_async(StoreMetadata(None, TOKENS, numpy.arange(4, 4 + len(TOKENS)), 0, "s")).result() is False
        assert time.monotonic() - begun < 5
    finally:
        server.resume()
    wait_until(lambda: rank.connector.is_healthy)
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    rank.connector.end_session("r")
    rank.close()


def wait_until(true: Any) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_after_a_restart_of_the_server_it_goes_on_by_itself(server: Server, rank: Rank) -> None:
    rank.store(TOKENS)
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    server.kill()
    wait_until(lambda: not rank.connector.is_healthy)
    assert rank.connector.retrieve_kv(LoadMetadata(TOKENS, slots(0, 48, 20), 0, 0, "r")) == 0
    assert rank.connector.lookup_kv(TOKENS, "r") == 0
    rank.connector.release_pending("r")
    rank.connector.end_session("r")
    rank.store(TOKENS, request="lost")
    server.start()
    wait_until(lambda: rank.connector.is_healthy)
    assert rank.connector.lookup_kv(TOKENS, "r") == 0
    rank.store(TOKENS, request="r")
    assert rank.connector.lookup_kv(TOKENS, "s") == 48


def test_reset_and_close_may_come_at_any_time(server: Server) -> None:
    rank = Rank(server, new_form=True)
    rank.store(TOKENS)
    assert rank.connector.lookup_kv(TOKENS, "r") == 48
    rank.connector.reset()
    no_locks(rank)
    rank.connector.close()
    rank.connector.close()
    assert not rank.connector.is_healthy
    assert rank.connector.lookup_kv(TOKENS, "r") == 0
    rank.store(TOKENS)
    rank.connector.end_session("r")


# -- several ranks ----


def together(ranks: List[Rank], call: Any) -> List[Any]:
    results: List[Any] = [None] * len(ranks)

    def run(number: int) -> None:
        results[number] = call(ranks[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def tensor_parallel(server: Server, size: int, mla: bool = False) -> List[Rank]:
    group = Ranks(size)
    return [Rank(server, number, size, mla, group.of(number)) for number in range(size)]


@pytest.mark.parametrize("mla", [False, True])
def test_ranks_share_a_request_and_each_gets_its_own_bytes(server: Server, mla: bool) -> None:
    ranks = tensor_parallel(server, 3, mla)
    together(ranks, lambda rank: rank.store(TOKENS))
    together(ranks, lambda rank: rank.connector.end_session("store"))
    for rank in ranks:
        rank.wipe()
    assert together(ranks, lambda rank: rank.connector.lookup_kv(TOKENS, "r")) == [48] * 3
    mapping = slots(20, 48, 20)
    assert together(ranks, lambda rank: rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping, 16, 4, "r"))) == [32] * 3
    for rank in ranks:
        assert all(rank.holds(token, int(slot)) for token, slot in list(zip(TOKENS, mapping))[20:48])
    for rank in ranks:
        wait_until(lambda: (rank.connector._link.sweep(), not rank.connector._link._background)[1])
    no_locks(ranks[0])
    together(ranks, lambda rank: rank.connector.end_session("r"))
    together(ranks, lambda rank: rank.close())


def test_a_rank_that_stored_less_makes_it_less_for_all(server: Server) -> None:
    ranks = tensor_parallel(server, 2)
    ranks[0].store(TOKENS)
    ranks[1].store(TOKENS[: 2 * CHUNK])
    assert together(ranks, lambda rank: rank.connector.lookup_kv(TOKENS, "r")) == [2 * CHUNK] * 2
    together(ranks, lambda rank: rank.connector.release_pending("r"))
    for rank in ranks:
        wait_until(lambda: (rank.connector._link.sweep(), not rank.connector._link._background)[1])
    no_locks(ranks[0])
    together(ranks, lambda rank: rank.close())


def test_a_rank_without_a_server_makes_a_miss_for_all_and_no_lock_is_left(server: Server) -> None:
    ranks = tensor_parallel(server, 2)
    together(ranks, lambda rank: rank.store(TOKENS))
    for broken in ranks:
        other = ranks[1 - ranks.index(broken)]
        broken.connector._link.suspect = lambda: None  # type: ignore[method-assign]
        broken.connector._link.answers = False
        healthy = type(broken.connector._link).healthy
        try:
            broken.connector._link.__class__ = type("Away", (type(other.connector._link),), {"healthy": False})
            assert together(ranks, lambda rank: rank.connector.lookup_kv(TOKENS, "r")) == [0, 0]
            no_locks(other)
        finally:
            broken.connector._link.__class__ = type(other.connector._link)
            assert healthy
        broken.connector._link.answers = True
        together(ranks, lambda rank: rank.connector.end_session("r"))
        together(ranks, lambda rank: rank.connector.end_session("store"))
        together(ranks, lambda rank: rank.store(TOKENS))
    together(ranks, lambda rank: rank.close())


def test_a_load_that_fails_on_one_rank_counts_for_none(server: Server) -> None:
    ranks = tensor_parallel(server, 2)
    together(ranks, lambda rank: rank.store(TOKENS))
    assert together(ranks, lambda rank: rank.connector.lookup_kv(TOKENS, "r")) == [48] * 2
    mapping = slots(0, 48, 20)

    def load(rank: Rank) -> int:
        return rank.connector.retrieve_kv(LoadMetadata(TOKENS, mapping + (1 if rank.rank else 0), 0, 0, "r"))

    assert together(ranks, load) == [0, 0]
    no_locks(ranks[0])
    together(ranks, lambda rank: rank.close())


def test_nobody_believes_a_count_that_no_server_gave(server: Server) -> None:
    """A group without a rank 0, where nobody asks."""
    group = Ranks(2)
    ranks = [Rank(server, number, 3, False, group.of(number - 1)) for number in (1, 2)]
    assert together(ranks, lambda rank: rank.connector.lookup_kv(TOKENS, "r")) == [0, 0]
    together(ranks, lambda rank: rank.close())


# -- identity ----


@pytest.mark.parametrize(
    "change",
    [
        {"model_path": "lab/other"},
        {"quantization": "fp8"},
        {"revision": "r2"},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"hf_config": SimpleNamespace(to_json_string=lambda: "rope scaling")},
    ],
)
def test_whatever_decides_over_the_bytes_is_in_the_identity(server: Server, rank: Rank, change: Any) -> None:
    """pitfalls E07"""
    rank.store(TOKENS)
    other = Rank(server, config=SimpleNamespace(**{"model_path": "lab/model", **change}))
    assert other.connector.lookup_kv(TOKENS, "r") == 0
    other.close()
    same = Rank(server, new_form=True)
    assert same.connector.lookup_kv(TOKENS, "r") == 48
    same.close()


@pytest.mark.parametrize("name", ["KVRAIL_MODEL_VERSION", "KVRAIL_SALT", "KVRAIL_SGLANG_ARGUMENTS"])
def test_operators_keep_models_apart_by_the_environment(server: Server, rank: Rank, name: str, monkeypatch: Any) -> None:
    rank.store(TOKENS)
    monkeypatch.setenv(name, "2")
    other = Rank(server)
    assert other.connector.lookup_kv(TOKENS, "r") == 0
    other.close()


def test_eight_bit_formats_must_be_named(server: Server, monkeypatch: Any) -> None:
    pools = [[numpy.zeros((68, 2, 8), dtype=numpy.uint8)]] * 2
    config = SimpleNamespace(model_path="m")
    with pytest.raises(ValueError, match="8-bit"):
        KvrailConnector(config, 1, 0, PAGE, server.url, 0, *pools)
    monkeypatch.setenv("KVRAIL_KV_DTYPE", "fp8_e4m3")
    KvrailConnector(config, 1, 0, PAGE, server.url, 0, *pools).close()


def test_what_can_not_work_is_said_by_the_constructor(server: Server, tmp_path: Path) -> None:
    config = SimpleNamespace(model_path="m")
    pool = [numpy.zeros((96, 2, 8), dtype=numpy.float16)]
    with pytest.raises(ValueError, match="no KV tensors"):
        KvrailConnector(config, 1, 0, PAGE, server.url, 0, [], [])
    with pytest.raises(ValueError, match="1 K tensors and 2 V"):
        KvrailConnector(config, 1, 0, PAGE, server.url, 0, pool, pool * 2)
    with pytest.raises(ValueError, match="model_path"):
        KvrailConnector(None, 1, 0, PAGE, server.url, 0, pool, pool)
    with pytest.raises(ValueError, match="multiple"):
        KvrailConnector(config, 1, 0, 3, server.url, 0, pool, pool)
    with pytest.raises(ValueError, match="contiguous"):
        KvrailConnector(config, 1, 0, PAGE, server.url, 0, [pool[0][:, :1]], pool)
    with pytest.raises(kvrail.KvrailError):
        KvrailConnector(config, 1, 0, PAGE, f"unix:{tmp_path}/none", 0, pool, pool)


def test_index_pages_of_sparse_attention_come_along(server: Server) -> None:
    kv = [numpy.zeros((64, 1, 8), dtype=numpy.float16) for _ in range(2)]
    index = [numpy.zeros((16, PAGE * 12), dtype=numpy.uint8) for _ in range(2)]
    connector = KvrailConnector(SimpleNamespace(model_path="m"), 1, 0, PAGE, server.url, 0, kv_cache_pools=[kv, index])
    for number, tensor in enumerate(kv + index):
        tensor[:] = number + 1
    connector.store_kv(StoreMetadata(None, TOKENS[:CHUNK], numpy.arange(CHUNK), 0, "a"))
    for tensor in kv + index:
        tensor[:] = 0
    assert connector.lookup_kv(TOKENS, "r") == CHUNK
    assert connector.retrieve_kv(LoadMetadata(TOKENS, numpy.arange(32, 32 + CHUNK), 0, 0, "r")) == CHUNK
    for number, tensor in enumerate(kv):
        assert (tensor[32 : 32 + CHUNK] == number + 1).all() and (tensor[:32] == 0).all()
    for number, tensor in enumerate(index):
        assert (tensor[8:12] == number + 3).all() and (tensor[:8] == 0).all()
    connector.close()


# -- the launcher ----

FAKE_SGLANG = '''
import multiprocessing, sys
def child(queue):
    from lmcache.integration.sglang.multi_process_adapter import LMCacheMPConnector
    from lmcache.integration.sglang.sglang_adapter import LMCacheLayerwiseConnector, LoadMetadata, StoreMetadata
    from lmcache.integration.sglang.utils import lmcache_get_config
    config = lmcache_get_config(sys.argv[sys.argv.index("--lmcache-config-file") + 1])
    queue.put((LMCacheMPConnector.__name__, LoadMetadata([], None, 0).prefix_pad, config.mp_host, config.other))
'''
FAKE_MAIN = '''
import multiprocessing, os, sys
if __name__ == "__main__":
    from sglang.engine import child
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=20), os.environ["KVRAIL_SGLANG_ARGUMENTS"], os.environ.get("KVRAIL_KV_DTYPE"), "--enable-lmcache" in sys.argv)
    process.join()
'''


@pytest.mark.parametrize("config, host", [(None, None), ("mp_host: kv.example  # there\nnested:\n  mp_host: no\nmp_port: 7471\n", "kv.example")])
def test_the_launcher_gives_sglang_and_its_processes_the_modules(tmp_path: Path, config: Optional[str], host: Optional[str]) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "engine.py").write_text(FAKE_SGLANG)
    (package / "launch_server.py").write_text(FAKE_MAIN)
    arguments = ["--kv-cache-dtype=fp8_e4m3", "--model-path", "m", "--quantization", "fp8"]
    if config:
        (tmp_path / "config.yaml").write_text(config)
        arguments += ["--lmcache-config-file", str(tmp_path / "config.yaml")]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-m", "kvrail.sglang.launch", *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    want = f"('KvrailConnector', 0, {host!r}, None) --kv-cache-dtype=fp8_e4m3 --quantization=fp8 fp8_e4m3 True\n"
    assert done.stdout == want, done.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--enable-lora"], "adapter"),
        (["--lora-pa", "a=b"], "adapter"),  # as argparse takes it
        (["--config", "options.yaml"], "give its options here"),
        (["--model-path", "m", "--config=options.yaml"], "give its options here"),
        (["--model-path", "m"], "not installed in this Python"),
    ],
)
def test_the_launcher_says_what_can_not_work(arguments: List[str], words: str) -> None:
    program = "from kvrail.sglang.launch import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode in (1, 2) and words in done.stderr and "Traceback" not in done.stderr


def test_abbreviated_options_are_part_of_the_identity_too(monkeypatch: Any) -> None:
    from kvrail.sglang.launch import in_full, prepared

    monkeypatch.setenv("KVRAIL_KV_DTYPE", "")
    monkeypatch.delenv("KVRAIL_KV_DTYPE")
    monkeypatch.setenv("KVRAIL_SGLANG_ARGUMENTS", "")
    full = prepared(["--model", "m", "--kv-cache-dtype", "fp8_e4m3", "--quantization=fp8", "--lmcache-config-file", "x"])
    said = os.environ["KVRAIL_SGLANG_ARGUMENTS"]
    short = prepared(["--model", "m", "--kv-cache-d", "fp8_e4m3", "--quant=fp8", "--lmcache-config", "x"])
    assert os.environ["KVRAIL_SGLANG_ARGUMENTS"] == said == "--kv-cache-dtype=fp8_e4m3 --quantization=fp8"
    assert os.environ["KVRAIL_KV_DTYPE"] == "fp8_e4m3"
    assert full[-1] == short[-1] == "--enable-lmcache"
    assert in_full("--model") == "--model" and in_full("--tp") == "--tp"


def test_the_in_process_mode_is_refused_with_words() -> None:
    from kvrail.sglang import LayerwiseConnector

    with pytest.raises(NotImplementedError, match="multi-process"):
        LayerwiseConnector(config_file="x")


def test_requests_that_are_never_ended_are_no_leak(rank: Rank, monkeypatch: Any) -> None:
    """pitfalls A02: aborted after the lookup, and nobody says so."""
    monkeypatch.setattr("kvrail.sglang.connector.REQUESTS_MAX", 8)
    rank.store(TOKENS)
    for number in range(50):
        assert rank.connector.lookup_kv(TOKENS, f"r{number}") == 48
    assert len(rank.connector._requests) == 8
    rank.connector.reset()
    no_locks(rank)
