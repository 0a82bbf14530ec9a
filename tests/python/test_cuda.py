"""Connectors whose KV tensors are in GPU memory: only where PyTorch, a GPU and its driver are."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict

import pytest
from serving import CHUNK, Server

from kvrail.sglang import KvrailConnector, LoadMetadata, StoreMetadata

torch: Any = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

PAGE = 4
TOKENS = list(range(3000, 3000 + 4 * CHUNK + 3))


@pytest.mark.parametrize("mla", [False, True])
def test_sglang_loads_into_gpu_pages_and_leaves_others_alone(server: Server, mla: bool) -> None:
    slots = 96 * PAGE
    shape = (slots, 1, 64) if mla else (slots, 2, 32)
    pools = [[torch.zeros(shape, dtype=torch.float16, device="cuda") for _ in range(3)] for _ in range(1 if mla else 2)]
    connector = KvrailConnector(SimpleNamespace(model_path="cuda"), 1, 0, PAGE, server.url, 0, kv_cache_pools=pools)
    kept = [[torch.randn(shape, device="cuda").to(torch.float16) for _ in pool] for pool in pools]
    for pool, values in zip(pools, kept):
        for tensor, value in zip(pool, values):
            tensor.copy_(value)
    count = len(TOKENS)
    indices = torch.arange(PAGE, PAGE + count, dtype=torch.int64, device="cuda")
    connector.store_kv(StoreMetadata(None, TOKENS, indices, 0, "a"))
    connector.end_session("a")
    for present in (0, PAGE, CHUNK, 2 * CHUNK + PAGE):
        for pool in pools:
            for tensor in pool:
                tensor.fill_(-7)
        assert connector.lookup_kv(TOKENS, f"r{present}") == 4 * CHUNK
        pad = present % CHUNK
        mapping = torch.full((4 * CHUNK,), -1, dtype=torch.int64, device="cuda")
        mapping[present:] = torch.arange(50 * PAGE, 50 * PAGE + 4 * CHUNK - present, device="cuda")
        got = connector.retrieve_kv(LoadMetadata(TOKENS, mapping, present - pad, pad, f"r{present}"))
        assert got == 4 * CHUNK - (present - pad)
        connector.end_session(f"r{present}")
        for pool, values in zip(pools, kept):
            for tensor, value in zip(pool, values):
                assert torch.equal(tensor[mapping[present:]], value[indices[present : 4 * CHUNK]])
                untouched = torch.ones(slots, dtype=torch.bool, device="cuda")
                untouched[mapping[present:]] = False
                assert bool((tensor[untouched] == -7).all())
    connector.close()


def test_stores_see_what_the_stream_has_still_to_write(server: Server) -> None:
    """The KV is computed on a stream, and the store begins when it is there."""
    slots = 64 * PAGE
    pools = [[torch.zeros((slots, 8, 128), dtype=torch.float16, device="cuda")] for _ in range(2)]
    connector = KvrailConnector(SimpleNamespace(model_path="cuda streams"), 1, 0, PAGE, server.url, 0, kv_cache_pools=pools)
    work = torch.randn((4096, 4096), device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            work = torch.tanh(work @ work)  # so that the rest is late
        for pool in pools:
            pool[0].fill_(3)
        connector.store_kv(StoreMetadata(None, TOKENS[:CHUNK], torch.arange(CHUNK, device="cuda"), 0, "a"))
    assert connector.lookup_kv(TOKENS[:CHUNK], "r") == CHUNK
    mapping = torch.arange(40, 40 + CHUNK, dtype=torch.int64, device="cuda")
    for pool in pools:
        pool[0].zero_()
    assert connector.retrieve_kv(LoadMetadata(TOKENS[:CHUNK], mapping, 0, 0, "r")) == CHUNK
    for pool in pools:
        assert bool((pool[0][40 : 40 + CHUNK] == 3).all())
    connector.close()


@pytest.mark.parametrize("stacked", [False, True])
def test_vllm_loads_into_gpu_blocks(server: Server, stacked: bool) -> None:
    from test_vllm import BLOCK, BLOCKS, Vllm

    vllm = Vllm.__new__(Vllm)
    caches: Dict[str, Any] = {}
    shape = (BLOCKS, 2, BLOCK, 2, 8) if stacked else (2, BLOCKS, BLOCK, 2, 8)
    for n in range(2):
        caches[f"layer.{n}"] = torch.randn(shape, device="cuda").to(torch.float16)
    from test_vllm import KVConnectorRole, configs

    from kvrail.vllm import KvrailConnector as Connector

    vllm_config, kv_cache_config = configs(server.url)
    vllm.scheduler = Connector(vllm_config, KVConnectorRole.SCHEDULER, kv_cache_config)
    vllm.worker = Connector(vllm_config, KVConnectorRole.WORKER, kv_cache_config)
    vllm.caches = caches
    vllm.worker.register_kv_caches(caches)
    tokens = list(range(500, 500 + 3 * CHUNK))
    kept = {name: tensor.clone() for name, tensor in caches.items()}
    vllm.store(tokens)
    for tensor in caches.values():
        tensor.fill_(-7)
    request = vllm.request("r", tokens + [1])
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(tokens), True)
    count = len(tokens) // BLOCK
    blocks = [40 - i for i in range(count)]
    vllm.alloc(request, blocks, len(tokens))
    vllm.until(lambda: vllm.step({})[1] == {"r"})
    axis = 0 if stacked else 1
    where = torch.tensor(blocks, device="cuda")
    for name, tensor in caches.items():
        assert torch.equal(tensor.index_select(axis, where), kept[name].narrow(axis, 0, count))
        assert bool((tensor.narrow(axis, 41, BLOCKS - 41) == -7).all())
    vllm.close()


def test_vllm_layers_are_there_when_the_stream_uses_them(server: Server) -> None:
    """Nothing waits for the load but the stream; and the load waits for what the stream still does with the blocks."""
    from test_vllm import BLOCK, BLOCKS, KVConnectorRole, Vllm, configs

    from kvrail.vllm import KvrailConnector as Connector

    vllm = Vllm.__new__(Vllm)
    vllm.caches = {
        f"layer.{n}": torch.randn((2, BLOCKS, BLOCK, 2, 8), device="cuda").to(torch.float16) for n in range(4)
    }
    vllm_config, kv_cache_config = configs(server.url, extra={"kvrail.load_async": False})
    vllm.scheduler = Connector(vllm_config, KVConnectorRole.SCHEDULER, kv_cache_config)
    vllm.worker = Connector(vllm_config, KVConnectorRole.WORKER, kv_cache_config)
    vllm.worker.register_kv_caches(vllm.caches)
    tokens = list(range(500, 500 + 3 * CHUNK))
    kept = {name: tensor.clone() for name, tensor in vllm.caches.items()}
    vllm.store(tokens)
    request = vllm.request("r", tokens + [1])
    assert vllm.scheduler.get_num_new_matched_tokens(request, 0) == (len(tokens), False)
    count = len(tokens) // BLOCK
    blocks = [40 - i for i in range(count)]
    vllm.alloc(request, blocks, len(tokens))
    where = torch.tensor(blocks, device="cuda")
    work = torch.randn((4096, 4096), device="cuda")
    output = SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id="r", num_computed_tokens=len(tokens), block_ids=(blocks + [50],))],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]),
        num_scheduled_tokens={"r": 1},
    )
    seen: Dict[str, Any] = {}
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            work = torch.tanh(work @ work)
        for tensor in vllm.caches.values():
            tensor.fill_(-7)  # late, and yet before the load
        vllm.worker.bind_connector_metadata(vllm.scheduler.build_connector_meta(output))
        vllm.worker.start_load_kv(None)
        for name, tensor in vllm.caches.items():
            vllm.worker.wait_for_layer_load(name)
            seen[name] = tensor.index_select(1, where)
        vllm.worker.wait_for_save()
        assert not vllm.worker.get_block_ids_with_load_errors()
    torch.cuda.synchronize()
    for name in vllm.caches:
        assert torch.equal(seen[name], kept[name].narrow(1, 0, count))
    vllm.close()
