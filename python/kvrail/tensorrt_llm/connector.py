"""Scheduler and worker classes of TensorRT-LLM's KV cache connector, served by kvrail (docs/engines/tensorrt-llm.md).

TensorRT-LLM has no way to say that a load failed, so loads are waited for before the step that uses them, and one that
fails is an exception there: better no answer than a wrong one. What was looked up is locked, so only the loss of the
server in between makes it fail.
"""
from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..client import Client, Registration
from ..engine import Link, dtype_name, identity, model_name, url_from, version_of
from ..memory import Layout, Plane, extent
from ..mover import Mover
from ..planner import Plan, Planner

try:  # where it is, by version
    from tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector import (  # pragma: no cover
        KvCacheConnectorScheduler,
        KvCacheConnectorWorker,
    )
except ImportError:
    try:
        from tensorrt_llm._torch.pyexecutor.kv_cache_connector import (  # pragma: no cover
            KvCacheConnectorScheduler,
            KvCacheConnectorWorker,
        )
    except ImportError:

        class KvCacheConnectorScheduler:  # type: ignore[no-redef]
            def __init__(self, llm_args: Any) -> None:
                self._llm_args = llm_args

        class KvCacheConnectorWorker:  # type: ignore[no-redef]
            def __init__(self, llm_args: Any) -> None:
                self._llm_args = llm_args
                self._metadata: Any = None

            def bind_connector_meta(self, metadata: Any) -> None:
                self._metadata = metadata


PATIENCE_SECONDS = 0.05  # for a lookup's answer: a miss otherwise


@dataclass
class TrtModel:
    """Which KV cache it is, as scheduler and workers state it alike."""

    name: str
    dtype: str
    fingerprint: bytes
    block_tokens: int
    world_size: int

    @classmethod
    def of(cls, llm_args: Any) -> "TrtModel":
        cache = getattr(llm_args, "kv_cache_config", None)
        if getattr(cache, "enable_partial_reuse", False):
            raise ValueError("kvrail: set kv_cache_config.enable_partial_reuse to false: a block that is used in part can't be loaded behind")
        if getattr(llm_args, "speculative_config", None) is not None:
            raise ValueError("kvrail: speculative decoding and a KV cache connector do not go together in TensorRT-LLM")
        if getattr(cache, "max_attention_window", None):
            raise ValueError("kvrail: max_attention_window makes several groups of KV caches, and the server keeps one")
        tp = int(getattr(llm_args, "tensor_parallel_size", 1) or 1)
        pp = int(getattr(llm_args, "pipeline_parallel_size", 1) or 1)
        block_tokens = int(getattr(cache, "tokens_per_block", None) or 32)
        dtype = str(getattr(cache, "dtype", "auto"))
        quant = getattr(llm_args, "quant_config", None)
        facts: Dict[str, object] = {
            "block_tokens": block_tokens,
            "kv_cache_dtype": os.environ.get("KVRAIL_KV_DTYPE") or dtype,
            "dtype": str(getattr(llm_args, "dtype", None)),
            "revision": getattr(llm_args, "revision", None),
            "quantization": None if quant is None else [str(getattr(quant, name, None)) for name in ("quant_algo", "kv_cache_quant_algo")],
            "backend": str(getattr(llm_args, "attn_backend", None)),
            "attention_dp": bool(getattr(llm_args, "enable_attention_dp", False)),
            "tp": tp,
            "pp": pp,
        }
        stated = json.dumps(["kvrail tensorrt-llm pool v1", identity("tensorrt-llm", version_of("tensorrt_llm"), facts)])
        return cls(
            model_name(str(getattr(llm_args, "model", "unknown"))),
            dtype,
            hashlib.sha256(stated.encode()).digest(),
            block_tokens,
            tp * pp,
        )

    def register(self, client: Client, layout: Optional[Layout], rank: int) -> Registration:
        return client.register(
            self.name, self.dtype, layout, fingerprint=self.fingerprint, world_size=self.world_size, rank=rank % self.world_size
        )


def _link(llm_args: Any, name: str, model: TrtModel) -> Link:
    config = getattr(llm_args, "kv_connector_config", None)
    link = Link(getattr(config, "server_url", None) or url_from(None, None), name, 30.0, 5.0)
    if link.chunk_tokens % model.block_tokens:
        link.close()
        raise ValueError(
            f"kvrail: the server's chunk of {link.chunk_tokens} tokens is no multiple of tokens_per_block {model.block_tokens}: choose another, "
            "or the server's --chunk-tokens"
        )
    return link


def _rank() -> int:
    utils = sys.modules.get("tensorrt_llm._utils")
    if utils is not None and hasattr(utils, "mpi_rank"):
        return int(utils.mpi_rank())
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if os.environ.get(name):
            return int(os.environ[name])
    return 0


def request_salt(request: Any) -> Optional[str]:
    """As of the planner's view of a request, whose `origin` is TensorRT-LLM's."""
    origin = request.origin
    parts: Dict[str, object] = {}
    for name in ("cache_salt_id", "lora_task_id"):
        value = getattr(origin, name, None)
        if value is not None:
            parts[name] = str(value)
    hashes = getattr(origin, "multimodal_hashes", None)
    if hashes:
        parts["media"] = [str(hashes), str(getattr(origin, "multimodal_positions", None))]
    elif getattr(origin, "multimodal_embedding", None) is not None or getattr(origin, "prompt_embedding_table", None) is not None:
        raise ValueError("embeddings without a hash stand in the prompt")
    server = os.environ.get("KVRAIL_SALT")
    if server:
        parts["server"] = server
    return json.dumps(parts, sort_keys=True) if parts else None


class _View:
    """TensorRT-LLM's request as the planner sees requests. Its tokens are read when they are asked for: it grows."""

    status = SimpleNamespace(name="")

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        self.request_id = str(origin.request_id)
        self.num_prompt_tokens = len(origin.get_tokens(0))

    @property
    def all_token_ids(self) -> Sequence[int]:
        tokens: Sequence[int] = self.origin.get_tokens(0)
        return tokens

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


class KvrailScheduler(KvCacheConnectorScheduler):  # type: ignore[misc]
    """connector_scheduler_class. One, on rank 0."""

    def __init__(self, llm_args: Any) -> None:
        super().__init__(llm_args)
        model = TrtModel.of(llm_args)
        self._link = _link(llm_args, "tensorrt-llm scheduler", model)
        self._planner = Planner(
            self._link,
            model.register(self._link.client, None, 0),
            model.block_tokens,
            load_async=False,
            generated=True,
            salt=request_salt,
            patience=PATIENCE_SECONDS,
        )
        self._views: Dict[str, _View] = {}

    def _view(self, request: Any) -> _View:
        return self._views.setdefault(str(request.request_id), _View(request))

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        tokens, _ = self._planner.matched_tokens(self._view(request), num_computed_tokens)
        return tokens or 0, False  # None: no answer in time, and there is no asking again

    def update_state_after_alloc(self, request: Any, block_ids: List[int]) -> None:
        view = self._view(request)
        self._planner.allocated(view, list(block_ids), self._planner.offered(view.request_id))

    def build_connector_meta(self, scheduler_output: Any) -> Plan:
        return self._planner.step(
            SimpleNamespace(
                scheduled_new_reqs=[
                    SimpleNamespace(
                        req_id=str(data.request_id), num_computed_tokens=data.computed_position, block_ids=(list(data.new_block_ids),)
                    )
                    for data in scheduler_output.new_requests
                ],
                scheduled_cached_reqs=SimpleNamespace(
                    req_ids=[str(data.request_id) for data in scheduler_output.cached_requests],
                    new_block_ids=[(list(data.new_block_ids),) for data in scheduler_output.cached_requests],
                    num_computed_tokens=[data.computed_position for data in scheduler_output.cached_requests],
                ),
                num_scheduled_tokens={
                    str(data.request_id): data.num_scheduled_tokens
                    for data in [*scheduler_output.new_requests, *scheduler_output.cached_requests]
                },
            )
        )

    def request_finished(self, request: Any, cache_block_ids: List[int]) -> bool:
        return self._planner.finished(self._views.pop(str(request.request_id), _View(request)))

    def shutdown(self) -> None:
        self._planner.close()


class KvrailWorker(KvCacheConnectorWorker):  # type: ignore[misc]
    """connector_worker_class. One on each rank."""

    def __init__(self, llm_args: Any) -> None:
        super().__init__(llm_args)
        self._model = TrtModel.of(llm_args)
        self._rank = _rank()
        self._link = _link(llm_args, f"tensorrt-llm rank {self._rank}", self._model)
        self._mover: Optional[Mover] = None

    def register_kv_caches(self, kv_cache_tensor: Any) -> None:
        """One pool, [blocks, layers, 2, heads * tokens * size]: a block is one contiguous piece."""
        whole = extent(kv_cache_tensor)
        if len(whole.shape) < 2 or not whole.row_is_contiguous:
            raise ValueError(f"kvrail: the KV pool of shape {whole.shape} and stride {whole.stride} has no contiguous blocks")
        if dtype_name(kv_cache_tensor) in ("uint8", "int8") and self._model.dtype == "auto" and not os.environ.get("KVRAIL_KV_DTYPE"):
            raise ValueError("kvrail: the pool holds bytes, and which 8-bit format is not known: set kv_cache_config.dtype or KVRAIL_KV_DTYPE")
        block_bytes = whole.nbytes // whole.rows
        layout = Layout(
            [Plane(whole.address, whole.row_bytes, block_bytes)], self._model.block_tokens, whole.rows, keep=kv_cache_tensor
        )
        registration = self._model.register(self._link.client, layout, self._rank)
        self._mover = Mover(self._link, registration, self._model.block_tokens, True, kv_cache_tensor)

    def start_load_kv(self, stream: Any) -> None:
        """Loads, and waits: RuntimeError when something did not arrive."""
        if self._mover is None or self._metadata is None:
            return
        self._mover.start(self._metadata)
        self._mover.wait()
        missing = self._mover.errors()
        if missing:
            raise RuntimeError(
                f"kvrail: {len(missing)} KV blocks that the cache had did not arrive (the log says why), and TensorRT-LLM can't be told to compute "
                "them: this step's answers would be wrong"
            )

    def wait_for_layer_load(self, layer_idx: int, stream: Any) -> None:
        """All of them have come by now."""

    def save_kv_layer(self, layer_idx: int, stream: Any) -> None:
        """Stores go out for all layers together."""

    def wait_for_save(self, stream: Any) -> None:
        if self._mover is None or self._metadata is None:
            return
        if self._metadata.stores and hasattr(stream, "synchronize"):
            stream.synchronize()
        self._mover.save(self._metadata)

    def get_finished(self, finished_gen_req_ids: List[int], started_loading_req_ids: List[int]) -> tuple[List[int], List[int]]:
        if self._mover is None:
            return [], []
        sent, _ = self._mover.finished({str(number) for number in finished_gen_req_ids})
        return [int(number) for number in sent], []

    def register_forward_pass_callable(self) -> Optional[Callable[[], None]]:
        return None

    def shutdown(self) -> None:
        if self._mover is not None:
            self._mover.close()
        else:
            self._link.close()
