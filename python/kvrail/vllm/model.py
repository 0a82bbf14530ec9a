"""Which KV cache a vLLM is: identity, ranks, and the planes of its tensors. Scheduler and workers come to the same
answer by themselves."""
from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from ..client import Client, Registration
from ..engine import identity, model_name, version_of
from ..memory import Extent, Layout, MemoryLike, Plane, extent

DEFAULT_LAYOUT = "NHD"


def extra_config(vllm_config: Any) -> Mapping[str, Any]:
    return getattr(vllm_config.kv_transfer_config, "kv_connector_extra_config", None) or {}


def kv_layout(vllm_config: Any) -> str:
    """The order of heads and tokens in a block, which all attention backends are asked for: so it is known without a
    tensor."""
    layout = str(extra_config(vllm_config).get("kvrail.kv_layout", DEFAULT_LAYOUT))
    if layout not in ("NHD", "HND"):
        raise ValueError(f"kvrail.kv_layout: '{layout}' is neither NHD nor HND")
    return layout


@dataclass
class KvModel:
    """The facts of one vLLM. planes_of: 2 (K and V), or 1 (MLA) in each layer."""

    name: str
    dtype: str
    engine: str
    fingerprint: bytes
    block_tokens: int
    tp: int
    pp: int
    rank: int
    mla: bool
    layout: str
    block_count: int
    layer_bytes: int  # of one block in one layer

    @classmethod
    def of(cls, vllm_config: Any, kv_cache_config: Any) -> "KvModel":
        model, parallel, cache = vllm_config.model_config, vllm_config.parallel_config, vllm_config.cache_config
        tp, pp = int(parallel.tensor_parallel_size), int(parallel.pipeline_parallel_size)
        groups = list(getattr(kv_cache_config, "kv_cache_groups", None) or [])
        if len(groups) > 1:
            named = "; ".join(f"{type(g.kv_cache_spec).__name__} for {', '.join(list(g.layer_names)[:3])}, ..." for g in groups)
            raise ValueError(
                f"kvrail: this model has {len(groups)} groups of KV caches ({named}), and the server keeps one: "
                "start vLLM with --disable-hybrid-kv-cache-manager"
            )
        spec = groups[0].kv_cache_spec if groups else None
        block_tokens = int(getattr(spec, "block_size", None) or cache.block_size)
        mla = bool(getattr(model, "use_mla", False))
        kv_dtype = str(cache.cache_dtype)
        dtype = str(model.dtype).split(".")[-1] if kv_dtype == "auto" else kv_dtype
        layout = kv_layout(vllm_config)
        facts = {
            "block_tokens": block_tokens,
            "heads": getattr(spec, "num_kv_heads", None),
            "head_size": getattr(spec, "head_size", None),
            "layer_bytes": getattr(spec, "page_size_bytes", None),
            "sliding_window": getattr(spec, "sliding_window", None),
            "mla": mla,
            "layout": None if mla else layout,
        }
        about: Dict[str, object] = {name: getattr(model, name, None) for name in ("quantization", "revision", "seed")}
        about.pop("seed")
        about.update(kv_cache_dtype=kv_dtype, tp=tp, pp=pp, rope=repr(getattr(model, "rope_scaling", None)))
        about["overrides"] = repr(getattr(model, "hf_overrides", None))
        described = getattr(getattr(model, "hf_config", None), "to_json_string", None)
        if callable(described):
            about["config"] = hashlib.sha256(str(described()).encode()).hexdigest()
        engine = identity("vllm", version_of("vllm"), about)
        stated = json.dumps(["kvrail vllm planes v1", facts, engine], sort_keys=True)
        return cls(
            name=model_name(str(model.model)),
            dtype=dtype,
            engine=engine,
            fingerprint=hashlib.sha256(stated.encode()).digest(),
            block_tokens=block_tokens,
            tp=tp,
            pp=pp,
            rank=int(getattr(parallel, "rank", 0)) % (tp * pp),
            mla=mla,
            layout=layout,
            block_count=int(getattr(kv_cache_config, "num_blocks", 0) or 0),
            layer_bytes=int(facts["layer_bytes"] or 0),
        )

    @property
    def stores(self) -> bool:
        """Whether this rank has bytes that no other has: MLA's are the same on all of a stage's ranks."""
        return not self.mla or self.rank % self.tp == 0

    def register(self, client: Client, layout: Optional[Layout]) -> Registration:
        return client.register(
            self.name,
            self.dtype,
            layout,
            fingerprint=self.fingerprint,
            engine=None,  # it is in the fingerprint
            world_size=self.pp if self.mla else self.pp * self.tp,
            rank=self.rank // self.tp if self.mla else self.rank,
            readers=self.tp if self.mla else 1,
            reader=self.rank % self.tp if self.mla else 0,
        )

    def planes(self, kv_caches: Mapping[str, MemoryLike]) -> Layout:
        """K and V are planes of their own, whichever way a backend stacks them: so what is kept is the same for all
        backends."""
        made: List[Plane] = []
        seen = set()
        blocks = self.block_count
        for name, tensor in kv_caches.items():
            whole = extent(tensor)
            if whole.address in seen:
                continue  # a layer that shares another one's cache
            seen.add(whole.address)
            planes, count = self._layer(name, whole)
            made += planes
            blocks = min(blocks, count) if blocks else count
        return Layout(made, self.block_tokens, blocks, keep=dict(kv_caches))

    def layers(self, kv_caches: Mapping[str, MemoryLike]) -> Dict[str, int]:
        """Which layer of planes() each name has: one that shares another one's cache has its number."""
        numbers: Dict[int, int] = {}
        return {name: numbers.setdefault(extent(tensor).address, len(numbers)) for name, tensor in kv_caches.items()}

    def _layer(self, name: str, whole: Extent) -> tuple[List[Plane], int]:
        shape, stride = whole.shape, whole.stride
        if self.mla:
            if len(shape) != 3 or shape[1] != self.block_tokens:
                raise self._refusal(name, whole, "[blocks, block size, width]")
            return [self._plane(name, whole, 0, 0, shape[1:], stride[1:])], shape[0]
        if len(shape) != 5:
            raise self._refusal(name, whole, "[2, blocks, block size, heads, head size] or [blocks, 2, ...]")
        if shape[0] == 2 and (shape[1] != 2 or self.block_count == 2) and shape[2] == self.block_tokens:
            block, half = 1, 0
        elif shape[1] == 2 and shape[2] == self.block_tokens:
            block, half = 0, 1
        else:
            raise self._refusal(name, whole, "[2, blocks, block size, heads, head size] or [blocks, 2, ...]")
        offsets = (0, stride[half])
        return [self._plane(name, whole, offset, block, shape[2:], stride[2:]) for offset in offsets], shape[block]

    def _plane(
        self, name: str, whole: Extent, offset: int, block: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> Plane:
        """One block of it must be contiguous, in the order that was asked for: a view of another order says so by its
        strides."""
        order = list(range(len(shape)))
        if not self.mla and self.layout == "HND":
            order = [1, 0, 2]
        want = 1
        for axis in reversed(order):
            if shape[axis] > 1 and stride[axis] != want:
                raise self._refusal(name, whole, f"blocks whose bytes are contiguous in the order {self.layout}")
            want *= shape[axis]
        size = whole.element_bytes
        return Plane(whole.address + offset * size, whole.stride[block] * size, want * size)

    def _refusal(self, name: str, whole: Extent, want: str) -> ValueError:
        return ValueError(
            f"kvrail: the KV cache of layer {name} has shape {whole.shape} and stride {whole.stride}; what is known is {want}, with "
            f"blocks of {self.block_tokens} tokens"
        )


def request_salt(request: Any) -> Optional[str]:
    """What keeps a request's chunks apart from those of other requests with the same tokens: cache_salt, adapter, and
    what its placeholder tokens stand for. None: nothing does. ValueError: something does that has no name, so it must
    not be cached."""
    if getattr(request, "prompt_embeds", None) is not None:
        raise ValueError("prompts given as embeddings have no tokens")
    parts: Dict[str, object] = {}
    if getattr(request, "cache_salt", None):
        parts["salt"] = request.cache_salt
    adapter = getattr(request, "lora_request", None)
    if adapter is not None:
        parts["adapter"] = [adapter.lora_name, getattr(adapter, "lora_path", None)]
    media = _media(request)
    if media:
        parts["media"] = media
    server = os.environ.get("KVRAIL_SALT")
    if server:
        parts["server"] = server
    return json.dumps(parts, sort_keys=True) if parts else None


def _media(request: Any) -> List[object]:
    made: List[object] = []
    for feature in getattr(request, "mm_features", None) or []:
        name = getattr(feature, "identifier", None) or getattr(feature, "mm_hash", None)
        position = getattr(feature, "mm_position", None)
        if not name:
            raise ValueError("a picture or sound has no hash")
        made.append([str(name), getattr(position, "offset", None), getattr(position, "length", None)])
    hashes = getattr(request, "mm_hashes", None) or []
    positions = getattr(request, "mm_positions", None) or [None] * len(hashes)
    if not made and not hashes and getattr(request, "mm_positions", None):
        raise ValueError("a picture or sound has no hash")
    for name, position in zip(hashes, positions):
        made.append([str(name), getattr(position, "offset", None), getattr(position, "length", None)])
    return made
