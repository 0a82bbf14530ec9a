"""KvrailConnector: vLLM's KVConnectorBase_V1, served by kvrail (docs/engines/vllm.md). One object in the engine's core
process (scheduler role) and one in each worker."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Set

from ..engine import Link, url_from
from ..errors import KvrailError
from ..mover import Mover
from ..planner import PATIENCE_SECONDS, Plan, Planner
from .base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from .model import KvModel, extra_config, kv_layout, request_salt


@dataclass
class KvrailMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """What the scheduler's half tells the workers' in a step."""

    plan: Plan


class KvrailConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """kv_connector_extra_config: kvrail.url; kvrail.load_async (true: requests wait outside of the batch for their
    loads); kvrail.store_generated (true: what was generated is stored, too); kvrail.patience (0.001 s, for a lookup's
    answer within the step); kvrail.kv_layout (NHD, HND); kvrail.request_timeout (30 s); kvrail.heartbeat_interval (5
    s)."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:  # of versions before kv_cache_config
            super().__init__(vllm_config, role)
        config = extra_config(vllm_config)
        self._model = KvModel.of(vllm_config, kv_cache_config)
        self._scheduler: Optional[Planner] = None
        self._worker: Optional[Mover] = None
        self._layers: Dict[str, int] = {}
        name = "vllm scheduler" if role == KVConnectorRole.SCHEDULER else f"vllm rank {self._model.rank}"
        self._link = Link(
            config.get("kvrail.url") or url_from(None, None),
            name,
            float(config.get("kvrail.request_timeout", 30.0)),
            float(config.get("kvrail.heartbeat_interval", 5.0)),
        )
        try:
            if self._link.chunk_tokens % self._model.block_tokens:
                raise ValueError(
                    f"kvrail: the server's chunk of {self._link.chunk_tokens} tokens is no multiple of vLLM's block of "
                    f"{self._model.block_tokens}: choose --block-size, or the server's --chunk-tokens"
                )
            if role == KVConnectorRole.SCHEDULER:
                self._scheduler = Planner(
                    self._link,
                    self._model.register(self._link.client, None),
                    self._model.block_tokens,
                    bool(config.get("kvrail.load_async", True)),
                    bool(config.get("kvrail.store_generated", True)),
                    request_salt,
                    float(config.get("kvrail.patience", PATIENCE_SECONDS)),
                )
        except BaseException:
            self._link.close()
            raise

    # -- classes' part ----

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> Optional[str]:
        return kv_layout(vllm_config)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Dict[str, Any]) -> bool:
        return not extra_config.get("kvrail.load_async", True)

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return False

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    # -- the scheduler's part ----

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[Optional[int], bool]:
        assert self._scheduler is not None
        return self._scheduler.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        ids = blocks.get_block_ids()
        self._scheduler.allocated(request, list(ids[0]) if ids else [], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        assert self._scheduler is not None
        return KvrailMetadata(self._scheduler.step(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        pass

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, Optional[Dict[str, Any]]]:
        assert self._scheduler is not None
        return self._scheduler.finished(request), None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, Optional[Dict[str, Any]]]:
        return self.request_finished(request, block_ids)

    def reset_cache(self) -> Optional[bool]:
        """Of this model; others on the server stay, and what is in use. The scheduler's call."""
        if self._scheduler is None:
            return None
        try:
            return self._scheduler.clear()
        except KvrailError as error:
            self._link.warn("the cache was not cleared: %s", error)
            return False

    # -- the worker's part ----

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        layout = self._model.planes(kv_caches)
        registration = self._model.register(self._link.client, layout)
        tensor = next(iter(kv_caches.values()))
        self._layers = self._model.layers(kv_caches)
        count = len(set(self._layers.values()))
        self._worker = Mover(self._link, registration, self._model.block_tokens, self._model.stores, tensor, count)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Before blocks of preempted requests are used again. Where vLLM does not call it, start_load_kv does the
        same."""
        if self._worker is not None and isinstance(kv_connector_metadata, KvrailMetadata):
            for request_id in kv_connector_metadata.plan.drain:
                self._worker.drain(request_id)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.start(self._get_connector_metadata().plan)

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._worker is not None:
            self._worker.wait_layer(self._layers.get(layer_name, max(self._layers.values())))

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Stores go out for all layers together, in wait_for_save."""

    def wait_for_save(self) -> None:
        if self._worker is not None:
            self._worker.wait()  # of models whose layers do not ask
            self._worker.save(self._get_connector_metadata().plan)

    def get_finished(self, finished_req_ids: Set[str]) -> tuple[Optional[Set[str]], Optional[Set[str]]]:
        if self._worker is None:
            return None, None
        sent, received = self._worker.finished(set(finished_req_ids))
        return sent or None, received or None

    def get_block_ids_with_load_errors(self) -> Set[int]:
        return self._worker.errors() if self._worker is not None else set()

    def shutdown(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()
        elif self._worker is not None:
            self._worker.close()
        else:
            self._link.close()
