"""The TensorRT-LLM connector, call by call: scheduler and workers of two ranks in one process."""
from __future__ import annotations

import pickle
import time
from types import SimpleNamespace
from typing import Any, Iterator, List

import pytest
from serving import CHUNK, Server

from kvrail.tensorrt_llm import KvrailScheduler, KvrailWorker
from kvrail.tensorrt_llm.connector import TrtModel

numpy = pytest.importorskip("numpy")

BLOCK = 4
BLOCKS = 48
PER_CHUNK = CHUNK // BLOCK
TOKENS = list(range(700, 700 + 3 * CHUNK + 2))


class LlmRequest:
    def __init__(self, number: int, tokens: List[int], **more: Any) -> None:
        self.request_id = number
        self.tokens = list(tokens)
        self.__dict__.update(more)

    def get_tokens(self, beam: int) -> List[int]:
        assert beam == 0
        return self.tokens


def arguments(**more: Any) -> Any:
    cache = {"tokens_per_block": BLOCK, "dtype": "auto", "enable_partial_reuse": False, **more.pop("cache", {})}
    return SimpleNamespace(**{"model": "lab/model", "tensor_parallel_size": 2, "dtype": "float16", **more}, kv_cache_config=SimpleNamespace(**cache))


class Trt:
    def __init__(self, url: str, monkeypatch: Any) -> None:
        monkeypatch.setenv("KVRAIL_URL", url)
        self.scheduler = KvrailScheduler(arguments())
        self.workers, self.pools = [], []
        for rank in range(2):
            monkeypatch.setenv("PMI_RANK", str(rank))
            worker = KvrailWorker(arguments())
            pool = numpy.zeros((BLOCKS, 2, 2, 2 * BLOCK * 8), dtype=numpy.float16)
            worker.register_kv_caches(pool)
            self.workers.append(worker)
            self.pools.append(pool)

    def step(self, new: Any = (), cached: Any = (), finished: Any = ()) -> List[Any]:
        """new, cached: (request id, new blocks, computed position, scheduled)."""
        data = [
            [SimpleNamespace(request_id=r, new_tokens=[], new_block_ids=b, computed_position=c, num_scheduled_tokens=n) for r, b, c, n in kind]
            for kind in (new, cached)
        ]
        metadata = self.scheduler.build_connector_meta(SimpleNamespace(new_requests=data[0], cached_requests=data[1]))
        results = []
        for worker in self.workers:
            worker.bind_connector_meta(pickle.loads(pickle.dumps(metadata)))
            worker.start_load_kv(None)
            worker.wait_for_layer_load(0, None)
            worker.save_kv_layer(0, None)
            worker.wait_for_save(None)
            results.append(worker.get_finished(list(finished), []))
        return results

    def run(self, request: LlmRequest, blocks: List[int], fill: bool) -> int:
        """A prompt in one step, and its end. Returns what the cache had."""
        matched, later = self.scheduler.get_num_new_matched_tokens(request, 0)
        assert not later
        self.scheduler.update_state_after_alloc(request, blocks)
        if fill:
            for rank, pool in enumerate(self.pools):
                for number, block in enumerate(blocks):
                    pool[block] = 10 * number + rank
        self.step(new=[(request.request_id, blocks, 0, len(request.tokens) - matched)])
        self.step(cached=[(request.request_id, [], len(request.tokens), 1)])
        if self.scheduler.request_finished(request, blocks):
            left = [{request.request_id}, {request.request_id}]
            end = time.monotonic() + 20
            while any(left):
                assert time.monotonic() < end
                for rank, (saved, loaded) in enumerate(self.step(finished=[request.request_id])):
                    assert set(saved) <= left[rank] and not loaded, "reported twice"
                    left[rank] -= set(saved)
        return matched

    def close(self) -> None:
        for worker in self.workers:
            worker.shutdown()
        self.scheduler.shutdown()


@pytest.fixture
def trt(server: Server, monkeypatch: Any) -> Iterator[Trt]:
    made = Trt(server.url, monkeypatch)
    yield made
    made.close()


def test_each_rank_gets_its_own_blocks_back(trt: Trt) -> None:
    blocks = list(range(13))
    assert trt.run(LlmRequest(1, TOKENS), blocks, fill=True) == 0
    for pool in trt.pools:
        pool[:] = -1
    others = list(range(40, 27, -1))
    assert trt.run(LlmRequest(2, TOKENS), others, fill=False) == 3 * CHUNK
    for rank, pool in enumerate(trt.pools):
        for number, block in enumerate(others[: 3 * PER_CHUNK]):
            assert (pool[block] == 10 * number + rank).all()
        assert (pool[others[-1]] == -1).all() and (pool[:28] == -1).all()
    for link in [trt.scheduler._link] + [worker._link for worker in trt.workers]:
        end = time.monotonic() + 20
        while link._background:
            link.sweep()
            assert time.monotonic() < end
    assert trt.scheduler._link.client.clear().from_l2 == 0


def test_what_the_engine_has_itself_is_not_loaded(trt: Trt) -> None:
    trt.run(LlmRequest(1, TOKENS), list(range(13)), fill=True)
    request = LlmRequest(2, TOKENS)
    computed = CHUNK + BLOCK
    assert trt.scheduler.get_num_new_matched_tokens(request, computed) == (3 * CHUNK - computed, False)
    blocks = list(range(20, 33))
    trt.scheduler.update_state_after_alloc(request, blocks)
    for pool in trt.pools:
        pool[:] = -1
    trt.step(new=[(2, blocks, computed, 2)])
    for pool in trt.pools:
        assert (pool[20 : 20 + computed // BLOCK] == -1).all() and (pool[20 + computed // BLOCK : 32] != -1).all()


def test_salts_and_adapters_keep_requests_apart(trt: Trt) -> None:
    trt.run(LlmRequest(1, TOKENS), list(range(13)), fill=True)
    number = 2
    for more in ({"cache_salt_id": 5}, {"lora_task_id": 0}, {"multimodal_hashes": [[1, 2]]}, {"prompt_embedding_table": object()}):
        assert trt.run(LlmRequest(number, TOKENS, **more), list(range(20, 33)), fill=False) == 0
        number += 1


def test_a_load_that_fails_is_an_exception_and_no_wrong_answer(server: Server, trt: Trt) -> None:
    trt.run(LlmRequest(1, TOKENS), list(range(13)), fill=True)
    request = LlmRequest(2, TOKENS)
    assert trt.scheduler.get_num_new_matched_tokens(request, 0)[0] == 3 * CHUNK
    trt.scheduler.update_state_after_alloc(request, list(range(20, 33)))
    server.kill()
    with pytest.raises(RuntimeError, match="12 KV blocks"):
        trt.step(new=[(2, list(range(20, 33)), 0, 2)])
    trt.scheduler.request_finished(request, [])
    assert trt.scheduler.get_num_new_matched_tokens(LlmRequest(3, TOKENS), 0) == (0, False)


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"dtype": "bfloat16"}, {"revision": "2"}, {"cache": {"dtype": "fp8"}}, {"tensor_parallel_size": 4}]
)
def test_whatever_decides_over_the_bytes_is_in_the_identity(change: Any) -> None:
    base, changed = TrtModel.of(arguments()), TrtModel.of(arguments(**change))
    assert (base.name, base.dtype, base.fingerprint) != (changed.name, changed.dtype, changed.fingerprint)


def test_what_can_not_work_is_said_at_the_start(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setenv("KVRAIL_URL", server.url)
    for change in ({"cache": {"enable_partial_reuse": True}}, {"speculative_config": 1}, {"cache": {"max_attention_window": [128]}}):
        with pytest.raises(ValueError, match="kvrail"):
            KvrailScheduler(arguments(**change))
    with pytest.raises(ValueError, match="multiple"):
        KvrailScheduler(arguments(cache={"tokens_per_block": 3}))
    worker = KvrailWorker(arguments())
    with pytest.raises(ValueError, match="8-bit"):
        worker.register_kv_caches(numpy.zeros((4, 2, 2, 64), dtype=numpy.uint8))
    worker.shutdown()


def test_a_request_whose_stores_never_began_does_not_hold_its_blocks_for_ever(server: Server, trt: Trt) -> None:
    """A load that fails is the end of a step, in which other requests were to be stored."""
    trt.run(LlmRequest(1, TOKENS), list(range(13)), fill=True)
    loads, stores = LlmRequest(2, TOKENS), LlmRequest(3, TOKENS[::-1])
    for request, blocks, matched in ((loads, list(range(20, 33)), 3 * CHUNK), (stores, list(range(33, 46)), 0)):
        assert trt.scheduler.get_num_new_matched_tokens(request, 0) == (matched, False)
        trt.scheduler.update_state_after_alloc(request, blocks)
    server.kill()
    new = [(2, list(range(20, 33)), 0, 2), (3, list(range(33, 46)), 0, len(TOKENS))]
    data = [SimpleNamespace(request_id=r, new_tokens=[], new_block_ids=b, computed_position=c, num_scheduled_tokens=n) for r, b, c, n in new]
    metadata = trt.scheduler.build_connector_meta(SimpleNamespace(new_requests=data, cached_requests=[]))
    assert len(metadata.loads) == 1 and [store.request_id for store in metadata.stores] == ["3"]
    trt.scheduler.request_finished(loads, [])
    assert trt.scheduler.request_finished(stores, []), "its blocks are held"
    for worker in trt.workers:
        worker.bind_connector_meta(pickle.loads(pickle.dumps(metadata)))
        with pytest.raises(RuntimeError, match="12 KV blocks"):
            worker.start_load_kv(None)
        assert worker.get_finished([3], []) == ([3], [])
        assert worker.get_finished([3], []) == ([], []), "reported twice"
    server.start()
