"""The vLLM connector, call by call. tests/engines plays the whole engine."""
from __future__ import annotations

import pickle
import threading
import time
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from serving import CHUNK, Server

from kvrail.vllm import KvrailConnector
from kvrail.vllm.base import KVConnectorRole
from kvrail.vllm.model import KvModel, request_salt

numpy = pytest.importorskip("numpy")

BLOCK = 4
BLOCKS = 64
PER_CHUNK = CHUNK // BLOCK
TOKENS = list(range(500, 500 + 3 * CHUNK))


def configs(url: str = "", tp: int = 1, rank: int = 0, mla: bool = False, groups: int = 1, **changes: Any) -> Tuple[Any, Any]:
    extra = {"kvrail.url": url, "kvrail.heartbeat_interval": 0.05, "kvrail.patience": 20, **changes.pop("extra", {})}
    model = {"model": "lab/model", "dtype": "torch.float16", "use_mla": mla, "quantization": None, "revision": None, **changes.pop("model", {})}
    spec = SimpleNamespace(block_size=BLOCK, num_kv_heads=2, head_size=8, page_size_bytes=2 * BLOCK * 2 * 8 * 2)
    made = [SimpleNamespace(kv_cache_spec=spec, layer_names=[f"layer.{n}.{g}" for n in range(2)]) for g in range(groups)]
    return (
        SimpleNamespace(
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra),
            model_config=SimpleNamespace(**model),
            parallel_config=SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1, rank=rank),
            cache_config=SimpleNamespace(block_size=BLOCK, cache_dtype=changes.pop("cache_dtype", "auto")),
        ),
        SimpleNamespace(kv_cache_groups=made, num_blocks=BLOCKS),
    )


class Vllm:
    """Scheduler and one worker in one process."""

    def __init__(self, server: Server, **more: Any) -> None:
        vllm_config, kv_cache_config = configs(server.url, **more)
        self.scheduler = KvrailConnector(vllm_config, KVConnectorRole.SCHEDULER, kv_cache_config)
        self.worker = KvrailConnector(vllm_config, KVConnectorRole.WORKER, kv_cache_config)
        self.caches = {f"layer.{n}": numpy.zeros((2, BLOCKS, BLOCK, 2, 8), dtype=numpy.float16) for n in range(2)}
        self.worker.register_kv_caches(self.caches)

    def request(self, id: str, tokens: List[int], **more: Any) -> Any:
        fields = {"status": SimpleNamespace(name="WAITING"), "num_computed_tokens": 0, "num_prompt_tokens": len(tokens), "cache_salt": None}
        return SimpleNamespace(request_id=id, all_token_ids=list(tokens), num_tokens=len(tokens), **{**fields, **more})

    def step(self, new: Dict[str, Tuple[int, int, List[int]]], finished: Any = ()) -> Tuple[Any, ...]:
        """new: for each request tokens computed before, tokens scheduled, and all blocks."""
        output = SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(req_id=id, num_computed_tokens=computed, block_ids=(blocks,)) for id, (computed, _, blocks) in new.items()
            ],
            scheduled_cached_reqs=SimpleNamespace(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]),
            num_scheduled_tokens={id: count for id, (_, count, _) in new.items()},
        )
        metadata = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(output)))
        self.worker.bind_connector_metadata(metadata)
        self.worker.start_load_kv(None)
        self.worker.wait_for_layer_load("layer.0")
        self.worker.wait_for_save()
        sent, received = self.worker.get_finished(set(finished))
        errors = self.worker.get_block_ids_with_load_errors()
        self.worker.clear_connector_metadata()
        return sent, received, errors

    def store(self, tokens: List[int], id: str = "store") -> None:
        request = self.request(id, tokens)
        assert self.scheduler.get_num_new_matched_tokens(request, 0)[0] is not None
        self.alloc(request, list(range(len(tokens) // BLOCK)), 0)
        self.step({id: (0, len(tokens), list(range(len(tokens) // BLOCK)))})
        hold, _ = self.scheduler.request_finished(request, [])
        assert hold
        self.until(lambda: self.step({}, {id})[0] == {id})

    def alloc(self, request: Any, blocks: List[int], external: int) -> None:
        self.scheduler.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: (blocks,)), external)

    @staticmethod
    def until(true: Any) -> None:
        end = time.monotonic() + 20
        while not true():
            assert time.monotonic() < end
            time.sleep(0.005)

    def held(self) -> int:
        for connector in (self.scheduler, self.worker):
            link = connector._link
            self.until(lambda: (link.sweep(), not link._background)[1])
        return self.scheduler._link.client.clear().from_l2

    def close(self) -> None:
        self.worker.shutdown()
        self.scheduler.shutdown()
        self.worker.shutdown()


@pytest.fixture
def vllm(server: Server) -> Iterator[Vllm]:
    made = Vllm(server)
    yield made
    made.close()


def test_a_full_hit_leaves_the_last_token_and_is_reported_once(vllm: Vllm) -> None:
    for number, cache in enumerate(vllm.caches.values()):
        cache[:, : 3 * PER_CHUNK] = number + 1
    vllm.store(TOKENS)
    request = vllm.request("r", TOKENS)
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(TOKENS) - 1, True)
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(TOKENS) - 1, True)  # asked again: the same
    blocks = list(range(30, 30 + 3 * PER_CHUNK))
    vllm.alloc(request, blocks, len(TOKENS) - 1)
    reports = [vllm.step({})]
    while not reports[-1][1]:
        reports.append(vllm.step({}))
    assert reports[-1][1] == {"r"} and not any(errors for _, _, errors in reports)
    assert vllm.step({})[1] is None
    for number, cache in enumerate(vllm.caches.values()):
        assert (cache[:, 30 : 30 + 3 * PER_CHUNK] == number + 1).all()
    vllm.alloc(request, blocks, 0)  # vLLM's second call
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)  # it comes back: preempted, or the load failed
    vllm.scheduler.request_finished(request, blocks)
    vllm.step({}, {"r"})
    vllm.until(lambda: vllm.held() == 0)


def test_the_next_turn_is_asked_about_before_its_tokens_are_compared(vllm: Vllm) -> None:
    vllm.store(TOKENS)
    history = vllm.scheduler._link.history
    for turn, more in enumerate(([], [5], [5, 6], list(range(2 * CHUNK)))):
        request = vllm.request(f"turn {turn}", TOKENS + more + [1])
        hits, misses = history.hits, history.misses
        assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(TOKENS), True)
        assert (history.hits, history.misses) == (hits + 1, misses)
        vllm.alloc(request, [], 0)
        vllm.scheduler.request_finished(request, [])
    vllm.until(lambda: vllm.held() == 0)


@pytest.mark.parametrize("wrong", [1, CHUNK + 3, 14 * CHUNK + 1])
def test_a_prompt_that_only_seems_to_go_on_from_another_has_what_is_its_own(vllm: Vllm, wrong: int) -> None:
    known = list(range(3000, 3000 + 15 * CHUNK))
    vllm.store(known)
    other = list(known)
    other[wrong] += 1
    request = vllm.request("other", other + [1])
    hits = vllm.scheduler._link.history.hits
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (wrong // CHUNK * CHUNK, wrong >= CHUNK)
    assert vllm.scheduler._link.history.hits == hits + 1, "it was not taken for the other"
    vllm.alloc(request, [], 0)
    vllm.scheduler.request_finished(request, [])
    vllm.until(lambda: vllm.held() == 0)


@pytest.mark.parametrize("guessed", [False, True])
def test_an_answer_that_takes_long_is_asked_for_again(server: Server, vllm: Vllm, guessed: bool) -> None:
    vllm.store(TOKENS)
    if not guessed:
        vllm.scheduler._link.history.clear()
    request = vllm.request("late", TOKENS + [1])
    vllm.scheduler._scheduler._patience = 0.001
    server.pause()
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (None, False)
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (None, False)
    server.resume()
    answers: List[Any] = []
    vllm.until(lambda: answers.append(vllm.scheduler.get_num_new_matched_tokens(request, 0)) or answers[-1][0] is not None)
    assert answers[-1] == (len(TOKENS), True)
    vllm.scheduler.request_finished(request, [])
    vllm.until(lambda: vllm.held() == 0)


def test_tokens_that_are_a_view_of_a_list_are_read_from_it(vllm: Vllm) -> None:
    class ConstantList:
        def __init__(self, tokens: List[int]) -> None:
            self._x = tokens

        def __len__(self) -> int:
            return len(self._x)

        def __iter__(self) -> Any:
            raise AssertionError("token by token")

    vllm.store(TOKENS)
    request = vllm.request("view", TOKENS + [1])
    request.all_token_ids = ConstantList(TOKENS + [1])
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(TOKENS), True)
    vllm.alloc(request, [], 0)
    vllm.scheduler.request_finished(request, [])
    vllm.until(lambda: vllm.held() == 0)


def test_blocks_that_vllm_has_are_not_written(vllm: Vllm) -> None:
    vllm.store(TOKENS)
    request = vllm.request("r", TOKENS + [1, 2, 3])
    computed = CHUNK + BLOCK
    assert vllm.scheduler.get_num_new_matched_tokens(request, computed) == (len(TOKENS) - computed, True)
    for cache in vllm.caches.values():
        cache[:] = 9
    blocks = list(range(30, 30 + 3 * PER_CHUNK + 1))
    vllm.alloc(request, blocks, len(TOKENS) - computed)
    vllm.until(lambda: vllm.step({})[1])
    have = computed // BLOCK
    for cache in vllm.caches.values():
        assert (cache[:, 30 : 30 + have] == 9).all() and (cache[:, 30 + 3 * PER_CHUNK :] == 9).all()
        assert (cache[:, 30 + have : 30 + 3 * PER_CHUNK] == 0).all()


def test_a_hit_that_vllm_has_itself_is_let_go(vllm: Vllm) -> None:
    vllm.store(TOKENS)
    request = vllm.request("r", TOKENS + [1])
    assert vllm.scheduler.get_num_new_matched_tokens(request, len(TOKENS)) == (0, False)
    vllm.alloc(request, list(range(13)), 0)
    vllm.until(lambda: vllm.held() == 0)


def test_a_server_that_does_not_answer_is_asked_again_and_then_given_up(server: Server, vllm: Vllm, monkeypatch: Any) -> None:
    vllm.scheduler._scheduler._patience = 0.001
    monkeypatch.setattr("kvrail.planner.LOOKUP_SECONDS", 0.05)
    server.pause()
    try:
        request = vllm.request("r", TOKENS)
        assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (None, False)
        vllm.until(lambda: vllm.scheduler.get_num_new_matched_tokens(request, 0) == (0, False))
        assert vllm.scheduler.get_num_new_matched_tokens(vllm.request("s", TOKENS), 0) == (0, False)  # and nobody else asks
    finally:
        server.resume()
    vllm.scheduler.request_finished(request, [])


def test_blocks_that_did_not_arrive_are_named_and_the_request_is_reported(server: Server, vllm: Vllm) -> None:
    vllm.store(TOKENS)
    request = vllm.request("r", TOKENS + [1])
    computed = CHUNK + BLOCK
    assert vllm.scheduler.get_num_new_matched_tokens(request, computed)[0] == len(TOKENS) - computed
    blocks = list(range(30, 30 + 3 * PER_CHUNK + 1))
    vllm.alloc(request, blocks, len(TOKENS) - computed)
    server.restart()
    seen: Dict[str, Any] = {"received": [], "errors": set()}

    def reported() -> bool:
        _, received, errors = vllm.step({})
        seen["received"] += list(received or ())
        seen["errors"] |= errors
        return bool(received)

    vllm.until(reported)
    assert seen["received"] == ["r"]
    assert seen["errors"] == set(blocks[computed // BLOCK : 3 * PER_CHUNK])
    assert vllm.step({})[1:] == (None, set())
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)


def test_a_finished_requests_blocks_stay_until_its_stores_are_done(server: Server, vllm: Vllm) -> None:
    request = vllm.request("r", TOKENS)
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
    blocks = list(range(3 * PER_CHUNK))
    vllm.alloc(request, blocks, 0)
    server.pause()
    try:
        vllm.step({"r": (0, len(TOKENS), blocks)})
        assert vllm.scheduler.request_finished(request, blocks)[0]
        assert vllm.step({}, {"r"})[0] is None
    finally:
        server.resume()
    vllm.until(lambda: vllm.step({}, {"r"})[0] == {"r"})
    assert vllm.step({}, {"r"})[0] is None  # once
    short = vllm.request("short", TOKENS[:5])
    assert vllm.scheduler.get_num_new_matched_tokens(short, 0) == (0, False)
    assert vllm.scheduler.request_finished(short, []) == (False, None)
    assert vllm.scheduler.request_finished(vllm.request("unknown", TOKENS), []) == (False, None)


def salted(**fields: Any) -> Optional[str]:
    return request_salt(SimpleNamespace(**fields))


def test_a_cache_that_is_reset_is_this_models_alone(server: Server, vllm: Vllm) -> None:
    other = Vllm(server, model={"model": "lab/other"})
    for engine in (vllm, other):
        engine.store(TOKENS)
    assert vllm.worker.reset_cache() is None
    vllm.until(lambda: vllm.scheduler.reset_cache() is True)
    for engine, want in ((vllm, 0), (other, 3 * CHUNK - 1)):
        request = engine.request("again", TOKENS)
        assert engine.scheduler.get_num_new_matched_tokens(request, 0)[0] == want
        engine.scheduler.request_finished(request, [])
    server.kill()
    try:
        assert vllm.scheduler.reset_cache() is False
    finally:
        server.start()
    other.close()


def test_whatever_changes_the_kv_of_equal_tokens_is_in_the_salt() -> None:
    """pitfalls E05, F01"""

    def adapter(name: str, path: str) -> Any:
        return SimpleNamespace(lora_name=name, lora_path=path)

    def feature(name: Optional[str], offset: int) -> Any:
        return SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset, length=3))

    salts = [
        salted(),
        salted(cache_salt="a"),
        salted(cache_salt="b"),
        salted(lora_request=adapter("a", "/x")),
        salted(lora_request=adapter("a", "/y")),
        salted(cache_salt="a", lora_request=adapter("a", "/x")),
        salted(mm_features=[feature("p", 1)]),
        salted(mm_features=[feature("p", 2)]),
        salted(mm_features=[feature("p", 1), feature("q", 9)]),
        salted(mm_hashes=["p"], mm_positions=[SimpleNamespace(offset=1, length=4)]),
    ]
    assert salts[0] is None and len(set(salts)) == len(salts)
    assert salted(cache_salt="") is None
    for bad in ({"prompt_embeds": object()}, {"mm_features": [feature(None, 1)]}, {"mm_positions": [object()]}):
        with pytest.raises(ValueError):
            salted(**bad)


def test_requests_that_can_not_be_named_are_not_cached(vllm: Vllm) -> None:
    request = vllm.request("r", TOKENS, prompt_embeds=object())
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
    vllm.alloc(request, list(range(12)), 0)
    vllm.step({"r": (0, 48, list(range(12)))})
    assert vllm.scheduler.request_finished(request, []) == (False, None)
    plain = vllm.request("s", TOKENS)
    assert vllm.scheduler.get_num_new_matched_tokens(plain, 0) == (0, False)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"quantization": "awq"}},
        {"model": {"revision": "r2"}},
        {"model": {"rope_scaling": {"factor": 2}}},
        {"model": {"hf_config": SimpleNamespace(to_json_string=lambda: "other")}},
        {"cache_dtype": "fp8_e4m3"},
        {"extra": {"kvrail.kv_layout": "HND"}},
        {"tp": 2},
        {"mla": True},
    ],
)
def test_whatever_decides_over_the_bytes_is_in_the_fingerprint(change: Any) -> None:
    base, changed = KvModel.of(*configs()), KvModel.of(*configs(**change))
    assert base.fingerprint != changed.fingerprint
    assert base.fingerprint == KvModel.of(*configs(url="unix:/elsewhere")).fingerprint


def test_several_groups_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"2 groups.*layer\.0\.1.*--disable-hybrid-kv-cache-manager"):
        KvModel.of(*configs(groups=2))


def test_tensors_are_cut_into_the_same_planes_however_a_backend_stacks_them() -> None:
    model = KvModel.of(*configs())
    first = model.planes({"a": numpy.zeros((2, BLOCKS, BLOCK, 2, 8), dtype=numpy.float16)})
    stacked = model.planes({"a": numpy.zeros((BLOCKS, 2, BLOCK, 2, 8), dtype=numpy.float16)})
    assert [plane.block_bytes for plane in first.planes] == [plane.block_bytes for plane in stacked.planes] == [128, 128]
    assert [plane.block_stride for plane in first.planes] == [128, 128]
    assert [plane.block_stride for plane in stacked.planes] == [256, 256]
    shared = numpy.zeros((2, BLOCKS, BLOCK, 2, 8), dtype=numpy.float16)
    assert len(model.planes({"a": shared, "b": shared}).planes) == 2


def test_tensors_of_another_order_are_refused_and_strides_tell() -> None:
    nhd, hnd = KvModel.of(*configs()), KvModel.of(*configs(extra={"kvrail.kv_layout": "HND"}))
    plain = numpy.zeros((2, BLOCKS, BLOCK, 2, 8), dtype=numpy.float16)
    permuted = numpy.zeros((2, BLOCKS, 2, BLOCK, 8), dtype=numpy.float16).transpose(0, 1, 3, 2, 4)
    nhd.planes({"a": plain})
    hnd.planes({"a": permuted})
    for model, tensor in ((nhd, permuted), (hnd, plain), (nhd, plain[..., :4]), (nhd, plain[0]), (nhd, plain[:, :, :3])):
        with pytest.raises(ValueError, match="layer a"):
            model.planes({"a": tensor})
    mla = KvModel.of(*configs(mla=True))
    assert len(mla.planes({"a": numpy.zeros((BLOCKS, BLOCK, 12), dtype=numpy.float16)}).planes) == 1
    with pytest.raises(ValueError, match="layer a"):
        mla.planes({"a": plain})
    with pytest.raises(ValueError, match="NHD nor HND"):
        KvModel.of(*configs(extra={"kvrail.kv_layout": "DNH"}))


def test_what_can_not_work_is_said_at_the_start(server: Server) -> None:
    vllm_config, kv_cache_config = configs(server.url)
    kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size = 3
    with pytest.raises(ValueError, match="multiple"):
        KvrailConnector(vllm_config, KVConnectorRole.SCHEDULER, kv_cache_config)


def test_what_vllm_asks_the_class(server: Server) -> None:
    vllm_config, kv_cache_config = configs(server.url)
    assert KvrailConnector.get_required_kvcache_layout(vllm_config) == "NHD"
    assert KvrailConnector.requires_piecewise_for_cudagraph({"kvrail.load_async": False})
    assert not KvrailConnector.requires_piecewise_for_cudagraph({})
    worker = KvrailConnector(vllm_config, KVConnectorRole.WORKER)  # versions that pass two
    assert not worker.prefer_cross_layer_blocks and not worker.requires_kv_delivery
    assert worker.get_finished({"x"}) == (None, None) and worker.get_block_ids_with_load_errors() == set()
    worker.shutdown()


def test_patience_may_be_longer_than_a_call_into_the_library(server: Server) -> None:
    vllm = Vllm(server, extra={"kvrail.patience": 60})
    vllm.store(TOKENS)
    server.pause()
    awake = threading.Timer(0.4, server.resume)
    awake.start()
    assert vllm.scheduler.get_num_new_matched_tokens(vllm.request("r", TOKENS + [1]), 0) == (len(TOKENS), True)
    awake.join()
    vllm.close()
