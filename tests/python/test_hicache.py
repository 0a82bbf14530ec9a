"""kvrail as SGLang's HiCache storage, call by call, over host pools laid out as SGLang lays out its own."""
from __future__ import annotations

import hashlib
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator, List

import pytest
from serving import Server

import kvrail
from kvrail.sglang.hicache import KvrailStorage

numpy = pytest.importorskip("numpy")

PAGE, PAGES, LAYERS, HEADS, SIZE = 4, 32, 3, 2, 8


class HostPool:
    """SGLang's HostKVCache as a storage sees it: page_size, size, layout, dtype, get_page_buffer_meta(indices)."""

    page_size, size = PAGE, PAGE * PAGES

    def __init__(self, layout: str = "page_first", mla: bool = False) -> None:
        self.layout = layout
        self.dtype = "torch.bfloat16"
        self.parts = 1 if mla else 2
        token = LAYERS * HEADS * SIZE
        shape = {
            "layer_first": (self.parts, LAYERS, self.size, HEADS * SIZE),
            "page_first": (self.parts, self.size, token),
            "page_first_direct": (self.parts, PAGES, token * PAGE),
        }[layout]
        self.memory = numpy.zeros(shape, dtype=numpy.uint16)

    def rows(self, first: int) -> List[Any]:
        if self.layout == "page_first_direct":
            return [part[first // PAGE] for part in self.memory]
        if self.layout == "page_first":
            return [part[first : first + PAGE] for part in self.memory]
        return [part[layer, first : first + PAGE] for layer in range(LAYERS) for part in self.memory]

    def get_page_buffer_meta(self, indices: Any) -> tuple[List[int], List[int]]:
        assert len(indices) % PAGE == 0
        rows = [row for first in indices.tolist()[::PAGE] for row in self.rows(first)]
        return [row.ctypes.data for row in rows], [row.nbytes for row in rows]

    def fill(self, page: int, value: int) -> None:
        for number, row in enumerate(self.rows(page * PAGE)):
            row[...] = value * 100 + number

    def holds(self, page: int, value: int) -> bool:
        return all((row == value * 100 + number).all() for number, row in enumerate(self.rows(page * PAGE)))


def slots(*numbers: int) -> Any:
    return numpy.concatenate([numpy.arange(page * PAGE, (page + 1) * PAGE, dtype=numpy.int64) for page in numbers])


def keys(text: str, count: int) -> List[str]:
    """As SGLang makes them: SHA-256 over the page and all before it."""
    made: List[str] = []
    for number in range(count):
        made.append(hashlib.sha256(f"{made[-1] if made else ''} {text} {number}".encode()).hexdigest())
    return made


def config(**more: Any) -> SimpleNamespace:
    facts = dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False)
    extra = {"interface_v1": 1, **more.pop("extra", {})}
    return SimpleNamespace(**{**facts, "model_name": "lab/model", "extra_config": extra, **more})


def storage(server: Server, pool: HostPool, **more: Any) -> KvrailStorage:
    made = KvrailStorage(config(**{**more, "extra": {"kvrail_url": server.url, **more.get("extra", {})}}), {})
    made.register_mem_pool_host(pool)
    return made


@pytest.fixture
def pool() -> HostPool:
    return HostPool()


@pytest.fixture
def backend(server: Server, pool: HostPool) -> Iterator[KvrailStorage]:
    made = storage(server, pool)
    yield made
    made.close()


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
@pytest.mark.parametrize("mla", [False, True])
def test_pages_come_back_in_every_layout(server: Server, layout: str, mla: bool) -> None:
    pool = HostPool(layout, mla)
    backend = storage(server, pool, is_mla_model=mla)
    for page in range(4):
        pool.fill(page, 10 + page)
    names = keys("a", 4)
    assert backend.batch_exists(names) == 0
    assert backend.batch_set_v1(names, slots(0, 1, 2, 3)) == [True] * 4
    assert backend.batch_exists(names) == 4
    assert backend.exists(names[2])
    before = pool.memory.copy()
    assert backend.batch_get_v1(names, slots(20, 9, 30, 31)) == [True] * 4
    for page, number in zip((20, 9, 30, 31), range(4)):
        assert pool.holds(page, 10 + number)
    for page in range(PAGES):
        if page not in (20, 9, 30, 31):
            assert all((now == then).all() for now, then in zip(pool.rows(page * PAGE), _rows(pool, before, page)))
    backend.close()


def _rows(pool: HostPool, memory: Any, page: int) -> List[Any]:
    other = HostPool(pool.layout, pool.parts == 1)
    other.memory = memory
    return other.rows(page * PAGE)


def test_counts_from_the_first_page_and_loads_up_to_the_gap(backend: KvrailStorage, pool: HostPool) -> None:
    names = keys("gap", 5)
    for page in range(5):
        pool.fill(page, page)
    assert backend.batch_set_v1(names[:2] + names[3:], slots(0, 1, 3, 4)) == [True] * 4
    assert backend.batch_exists(names) == 2
    assert backend.batch_get_v1(names, slots(10, 11, 12, 13, 14)) == [True, True, False, False, False]
    assert pool.holds(10, 0) and pool.holds(11, 1)
    assert not pool.memory.reshape(pool.parts, PAGES, -1)[:, 12:15].any()
    assert backend.batch_exists(names[3:]) == 2  # a batch may begin anywhere in a prompt


def test_a_page_that_is_there_counts_as_stored(backend: KvrailStorage, pool: HostPool) -> None:
    names = keys("twice", 2)
    pool.fill(0, 1)
    assert backend.batch_set_v1(names[:1], slots(0)) == [True]
    assert backend.batch_set_v1(names, slots(0, 1)) == [True, True]


def test_ranks_and_models_and_salts_never_mix(server: Server, backend: KvrailStorage, pool: HostPool) -> None:
    names = keys("mine", 1)
    pool.fill(0, 1)
    assert backend.batch_set_v1(names, slots(0)) == [True]
    for other in (
        storage(server, HostPool(), model_name="lab/other"),
        storage(server, HostPool(), tp_rank=1, tp_size=2),
        storage(server, HostPool(), pp_rank=1, pp_size=2),
        storage(server, HostPool(), extra={"kvrail_salt": "another"}),
        storage(server, HostPool("page_first_direct")),
    ):
        assert other.batch_exists(names) == 0
        assert other.batch_get_v1(names, slots(5)) == [False]
        other.close()
    same = storage(server, HostPool())
    assert same.batch_exists(names) == 1
    same.close()


def test_ranks_of_an_mla_model_share(server: Server) -> None:
    pools = [HostPool("page_first", mla=True) for _ in range(2)]
    first, second = (
        storage(server, pool, is_mla_model=True, tp_rank=rank, tp_size=2) for rank, pool in enumerate(pools)
    )
    names = keys("shared", 1)
    pools[0].fill(3, 7)
    assert first.batch_set_v1(names, slots(3)) == [True]
    assert second.batch_get_v1(names, slots(6)) == [True]
    assert pools[1].holds(6, 7)
    first.close()
    second.close()


def test_slots_that_are_no_pages_touch_nothing(backend: KvrailStorage, pool: HostPool) -> None:
    names = keys("bad", 2)
    pool.fill(0, 1)
    backend.batch_set_v1(names[:1], slots(0))
    before = pool.memory.copy()
    for wrong in (slots(8) + 1, slots(8)[::-1].copy(), slots(8)[:3], slots(PAGES), slots(8) * 0 - 1):
        assert backend.batch_get_v1(names[:1], wrong) == [False]
        assert backend.batch_set_v1(names[1:], wrong) == [False]
    assert (pool.memory == before).all()
    assert backend.batch_exists(names) == 1


def test_nothing_is_raised_when_the_server_goes_and_it_heals(
    server: Server, backend: KvrailStorage, pool: HostPool
) -> None:
    names = keys("crash", 2)
    pool.fill(0, 1)
    pool.fill(1, 2)
    assert backend.batch_set_v1(names, slots(0, 1)) == [True, True]
    server.kill()
    for _ in range(3):
        assert backend.batch_exists(names) == 0
        assert backend.batch_get_v1(names, slots(4, 5)) == [False, False]
        assert backend.batch_set_v1(names, slots(0, 1)) == [False, False]
    backend.clear()
    server.start()
    deadline = threading.Event()
    for _ in range(500):
        if backend.batch_set_v1(names, slots(0, 1)) == [True, True]:
            break
        deadline.wait(0.02)
    assert backend.batch_get_v1(names, slots(4, 5)) == [True, True]
    assert pool.holds(4, 1) and pool.holds(5, 2)


def test_threads_of_the_controller_use_it_together(backend: KvrailStorage, pool: HostPool) -> None:
    wrong: List[str] = []

    def work(number: int) -> None:
        for turn in range(20):
            names = keys(f"{number} {turn}", 2)
            pages = (number * 4, number * 4 + 1)
            for page in pages:
                pool.fill(page, number * 50 + turn + page)
            if backend.batch_set_v1(names, slots(*pages)) != [True, True] or backend.batch_exists(names) != 2:
                wrong.append("not stored")
            if backend.batch_get_v1(names, slots(number * 4 + 2, number * 4 + 3)) != [True, True]:
                wrong.append("not loaded")
            if not all(pool.holds(page + 2, number * 50 + turn + page) for page in pages):
                wrong.append("other bytes")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_no_session_and_no_lock_stays(server: Server, backend: KvrailStorage, pool: HostPool) -> None:
    names = keys("locks", 3)
    for _ in range(50):
        backend.batch_set_v1(names, slots(0, 1, 2))
        backend.batch_exists(names)
        backend.batch_get_v1(names, slots(5, 6, 7))
    backend.clear()
    assert backend.batch_exists(names) == 0  # pages that a lock keeps are not cleared


def test_other_keys_than_digests_are_keys_too(backend: KvrailStorage, pool: HostPool) -> None:
    pool.fill(0, 9)
    for name in ("page", "x" * 64, "g" + "0" * 63, "a0 " * 21 + " "):
        assert backend.batch_set_v1([name], slots(0)) == [True]
        assert backend.exists(name)
    assert not backend.exists("pages")


def test_nothing_to_do_is_nothing(backend: KvrailStorage) -> None:
    assert backend.batch_exists([]) == 0
    assert backend.batch_get_v1([], slots(0)[:0]) == []
    assert backend.batch_set_v1([], slots(0)[:0]) == []


def test_what_cannot_work_is_refused_at_the_start(server: Server, pool: HostPool) -> None:
    with pytest.raises(ValueError, match="interface_v1"):
        KvrailStorage(config(extra={"interface_v1": 0}))
    with pytest.raises(ValueError, match="no model"):
        KvrailStorage(config(model_name=None))
    with pytest.raises(ValueError, match="8-bit"):
        pool.dtype = "torch.uint8"
        storage(server, pool)
    pool.dtype = "torch.bfloat16"
    uneven = HostPool("layer_first")
    uneven.get_page_buffer_meta = lambda indices: ([4096 * i * i for i in indices.tolist()[:1]], [64])  # type: ignore
    with pytest.raises(ValueError, match="page_first"):
        storage(server, uneven)
    with pytest.raises(kvrail.KvrailError):
        KvrailStorage(config(extra={"kvrail_url": "unix:/nowhere/s"})).register_mem_pool_host(pool)
    made = storage(server, pool)
    made.register_mem_host_pool_v2(pool, SimpleNamespace(value="kv"))
    with pytest.raises(ValueError, match="mamba"):
        made.register_mem_host_pool_v2(pool, SimpleNamespace(value="mamba"))
    made.close()
    made.close()


def test_it_is_a_storage_to_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang loads a class by name, and only one that inherits from its own."""
    names = ["sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.hicache_storage"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    base = type("HiCacheStorage", (), {})
    setattr(sys.modules[names[-1]], "HiCacheStorage", base)
    monkeypatch.delitem(sys.modules, "kvrail.sglang.hicache")
    import importlib

    module = importlib.import_module("kvrail.sglang.hicache")
    assert issubclass(module.KvrailStorage, base)
    for name in (
        "batch_exists",
        "batch_get_v1",
        "batch_set_v1",
        "exists",
        "get",
        "set",
        "batch_get",
        "batch_set",
        "clear",
    ):
        assert name in vars(module.KvrailStorage)
    monkeypatch.undo()
    sys.modules["kvrail.sglang"].hicache = sys.modules["kvrail.sglang.hicache"]  # type: ignore[attr-defined]
