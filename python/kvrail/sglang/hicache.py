"""KvrailStorage: SGLang's HiCache with kvrail as its storage. HiCache keeps pages in host memory of its own; this moves
them between there and the server, without a copy in between.

SGLang loads it by name (docs/engines/sglang.md) and calls it from threads of its own. It starts none of them again that
an exception has ended, so after the start nothing is raised here: what fails is a miss, or not stored, and the log says
so at most once in ten seconds.

A page of HiCache is a chunk of the server, whatever number of tokens it has: its key is the chunk's digest. Each rank
stores and asks for itself; SGLang agrees over ranks.
"""
from __future__ import annotations

import hashlib
import itertools
import os
from typing import Any, Dict, List, Optional, Sequence

from .._tokens import Tokens, pages
from ..client import Registration, Session
from ..engine import Link, dtype_name, host_numbers, identity, model_name, url_from, version_of
from ..errors import KvrailError
from ..memory import Layout, Plane
from ..results import DELIVERED, PRESENT, STORED

try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage  # pragma: no cover
except ImportError:

    class HiCacheStorage:  # type: ignore[no-redef]
        """In tests and tools without SGLang."""


REQUEST_SECONDS = 30.0  # for a batch of pages, in a thread that nothing else waits for
DIGEST_BYTES = 32


class KvrailStorage(HiCacheStorage):  # type: ignore[misc]
    """storage_config: SGLang's HiCacheStorageConfig. Connects when the pool is made known, and raises there if it must:
    SGLang does not start then."""

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        self._config = storage_config
        self._extra: Dict[str, Any] = dict(getattr(storage_config, "extra_config", None) or {})
        if not self._extra.get("interface_v1"):
            raise ValueError(
                'kvrail: pages go straight between the host pool and the server: put "interface_v1": 1 into '
                "--hicache-storage-backend-extra-config"
            )
        if not storage_config.model_name:
            raise ValueError("kvrail: SGLang names no model, so whose KV it is can't be said")
        self._salt: Optional[str] = self._extra.get("kvrail_salt") or os.environ.get("KVRAIL_SALT")
        self._instance = os.urandom(8).hex()
        self._numbers = itertools.count()
        self._link: Optional[Link] = None

    # -- the pool ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host
        self._page = int(mem_pool_host.page_size)
        count = int(mem_pool_host.size) // self._page
        planes = _planes(mem_pool_host, self._page, count)
        link = Link(
            url_from(self._extra.get("kvrail_url"), None), f"hicache rank {self._config.tp_rank}", REQUEST_SECONDS, 10.0
        )
        try:
            layout = Layout(planes, link.chunk_tokens, count, keep=mem_pool_host)
            self._registration = self._register(link, layout)
        except BaseException:
            link.close()
            raise
        self._link = link

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        name = str(getattr(host_pool_name, "value", host_pool_name))
        if name != "kv":
            raise ValueError(
                f"kvrail: HiCache storage has no place for this model's pool '{name}', and without it loads were wrong"
            )

    def _register(self, link: Link, layout: Layout) -> Registration:
        config = self._config
        pool = self.mem_pool_host
        facts: Dict[str, object] = {
            name: getattr(config, name, 0) for name in ("pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size")
        }
        facts.update(page=self._page, layout=pool.layout, mla=config.is_mla_model)
        facts["kv_cache_dtype"] = os.environ.get("KVRAIL_KV_DTYPE") or self._extra.get("kv_cache_dtype")
        if not config.is_mla_model:  # else all ranks have the same bytes
            facts.update(tp_rank=config.tp_rank, tp_size=config.tp_size)
        dtype = dtype_name(pool)
        if dtype == "uint8" and facts["kv_cache_dtype"] is None:
            raise ValueError(
                'kvrail: the pool holds bytes, and which 8-bit format is not known: set "kv_cache_dtype" in the extra '
                "config, or KVRAIL_KV_DTYPE"
            )
        return link.client.register(
            model_name(str(config.model_name)),
            dtype,
            layout,
            engine=identity("sglang-hicache", version_of("sglang"), facts),
        )

    # -- what SGLang calls ----

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        """How many pages from the first on are there; what is on slower media comes to the server's memory by this."""
        session = self._begin(keys)
        try:
            if session is None or self._link is None:
                return 0
            ticket = session.submit_lookup(lock=False)
            return int(ticket.wait(REQUEST_SECONDS).chunks)
        except Exception as error:
            return self._failed("a lookup failed: %s", error)
        finally:
            self._end(session)

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        session = self._begin(keys)
        try:
            if session is None:
                return [False] * len(keys)
            found = session.lookup(REQUEST_SECONDS).chunks  # so that nothing goes meanwhile
            outcomes = session.retrieve(0, found, self._blocks(found, host_indices)).outcomes if found else None
            return [
                index < found and outcomes is not None and outcomes[index] == DELIVERED for index in range(len(keys))
            ]
        except Exception as error:
            self._failed("a load failed: %s", error)
            return [False] * len(keys)
        finally:
            self._end(session)

    def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        session = self._begin(keys)
        try:
            if session is None:
                return [False] * len(keys)
            outcomes = session.store(0, len(keys), self._blocks(len(keys), host_indices)).outcomes or b""
            return [outcome in (STORED, PRESENT) for outcome in outcomes]
        except Exception as error:
            self._failed("a store failed: %s", error)
            return [False] * len(keys)
        finally:
            self._end(session)

    def clear(self) -> None:
        """What is stored for this model and rank, but for pages in use."""
        try:
            if self._link is not None:
                self._link.client.clear(self._registration, REQUEST_SECONDS)
        except Exception as error:
            self._failed("the cache was not cleared: %s", error)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    # SGLang calls these when "interface_v1" is off, which the constructor refuses.

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return None

    def batch_get(self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None) -> Any:
        return [None] * len(keys)

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return False

    def batch_set(
        self, keys: Sequence[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        return False

    # -- sessions ----

    def _begin(self, keys: Sequence[str]) -> Optional[Session]:
        """None: there is no server, or nothing to do."""
        if self._link is None or not keys or not self._link.healthy:
            return None
        session = None
        try:
            session = self._registration.session(f"{self._instance} {next(self._numbers)}", self._salt)
            session.set_digests(b"".join(map(_digest, keys)))
            return session
        except Exception as error:
            self._failed("a session was refused: %s", error)
            return None

    def _end(self, session: Optional[Session]) -> None:
        try:
            if session is not None and self._link is not None and self._link.connected:
                self._link.later(session.submit_end())
                session.close()
        except KvrailError:
            pass  # the connection is lost, and all that it held

    def _blocks(self, count: int, host_indices: Any) -> Tokens:
        return pages(host_numbers(host_indices), 0, count * self._page, self._page)

    def _failed(self, words: str, error: Exception) -> int:
        if self._link is not None:
            self._link.failed(words, error)
        return 0


def _digest(key: str) -> bytes:
    """SGLang's keys are SHA-256 over a page's tokens and all before them, in hexadecimal; other keys become one."""
    if len(key) == 2 * DIGEST_BYTES:
        try:
            digest = bytes.fromhex(key)
            if len(digest) == DIGEST_BYTES:  # blanks are no digits, but no error either
                return digest
        except ValueError:
            pass
    return hashlib.sha256(key.encode()).digest()


def _planes(pool: Any, page: int, count: int) -> List[Plane]:
    """Where pages are, by the pool's own word about its first, second and last: any layout of it is some planes of even
    stride."""
    if count < 2:
        raise ValueError(f"kvrail: a host pool of {count} pages; at least 2 are needed")
    (first, sizes), (second, _), (last, last_sizes) = (_page_at(pool, page, number) for number in (0, 1, count - 1))
    planes = [Plane(at, then - at, size) for at, then, size in zip(first, second, sizes)]
    wrong = [
        index
        for index, plane in enumerate(planes)
        if plane.block_stride < plane.block_bytes or last[index] != plane.address + (count - 1) * plane.block_stride
    ]
    if wrong or not planes or len(last) != len(planes) or list(sizes) != list(last_sizes):
        raise ValueError(
            f"kvrail: pages of the host pool's layout '{pool.layout}' don't lie at even distances: choose "
            "--hicache-mem-layout page_first"
        )
    return planes


def _page_at(pool: Any, page: int, number: int) -> tuple[List[int], List[int]]:
    indices: Any = range(number * page, (number + 1) * page)
    try:
        import torch

        indices = torch.arange(indices.start, indices.stop, dtype=torch.int64)
    except ImportError:
        import array

        indices = array.array("q", indices)
    addresses, sizes = pool.get_page_buffer_meta(indices)
    return [int(address) for address in addresses], [int(size) for size in sizes]


__all__ = ["KvrailStorage"]
