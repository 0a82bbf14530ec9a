"""KvrailConnector: what SGLang's LMCRadixCache calls, served by kvrail. One object in the scheduler of each
tensor-parallel rank.

Nothing here raises into the scheduler after the constructor: lookups that fail are misses, loads that fail load
nothing, stores that fail store nothing, and the log says so at most once in ten seconds.

Ranks. All ranks call lookup_kv and retrieve_kv together, since they schedule alike. Rank 0 alone looks up, for all
ranks; then all agree on the least count (one collective each, which every rank reaches whatever has happened to it), so
that a rank without a server makes it a miss for all. Each rank reads and releases its own share of the locks.
"""
from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Union, cast

from .._tokens import History, Tokens, ask, pages
from ..client import Registration, Session
from ..engine import (
    LOOKUP_SECONDS,
    Link,
    dtype_name,
    host_numbers,
    identity,
    model_name,
    page_planes,
    session_id,
    synchronize,
    token_planes,
    url_from,
    version_of,
)
from ..errors import KvrailError
from ..memory import Layout, MemoryLike, extent
from ..results import NULL_BLOCK, Result
from ..ticket import Ticket

# Requests that SGLang has not ended: aborted ones may never be. The oldest is ended in their place.
REQUESTS_MAX = 4096

_WAIT_SECONDS = 0.1  # of a call into the library; what takes longer is waited for as a ticket

Agree = Callable[[Sequence[int]], Sequence[int]]


@dataclass
class LoadMetadata:
    """slot_mapping: 64-bit slots; those of the first offset + prefix_pad tokens are placeholders and never looked
    at."""

    token_ids: Any
    slot_mapping: Any
    offset: int
    prefix_pad: int = 0
    request_id: str = ""


@dataclass
class StoreMetadata:
    """kv_indices: the 64-bit slots of all tokens, or of those from `offset` on."""

    last_node: Any
    token_ids: Any
    kv_indices: Any
    offset: int
    request_id: str = ""


class StoreFuture:
    """A store under way: its slots are the server's until query() is true."""

    def __init__(self, ticket: Optional[Ticket], good: bool, said: Callable[[str, object], None]) -> None:
        self._ticket = ticket
        self._good = good
        self._said = said

    def cancel(self) -> None:
        """Asks the server to let go of the slots. query() says when it has."""
        try:
            if self._ticket is not None:
                self._ticket.cancel()
        except KvrailError:
            pass

    def query(self) -> bool:
        if self._ticket is None:
            return True
        try:
            if not self._ticket.done():
                return False
            self._good = self._ticket.wait().complete
        except KvrailError as error:
            if not self._ticket.ended:
                return False
            self._good = False
            self._said("a store failed: %s", error)
        self._ticket = None
        return True

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Whether it has ended."""
        if self._ticket is not None:
            try:
                self._ticket.wait(timeout)
            except KvrailError:
                pass
        return self.query()

    def result(self, timeout: Optional[float] = None) -> bool:
        """Whether all of it is in the cache now; false also when the time was up first."""
        return self.wait(timeout) and self._good


@dataclass(slots=True)
class _Request:
    """What lookup_kv knew, for those that come after it."""

    tokens: Tokens
    session: Session
    matched: int = 0  # tokens
    locked: bool = False


class KvrailConnector:
    """Old form: k_pool and v_pool, a tensor [slots, heads, size] a layer. New form: kv_cache_pools=[k, v], [kv] (MLA)
    or [kv, index pages] (sparse attention). host: a URL of kvrail, or a host's name; $KVRAIL_URL goes before. tp_group:
    torch's process group; or a callable that takes numbers to their minima over all ranks."""

    def __init__(
        self,
        sgl_config: Any = None,
        tp_size: int = 1,
        rank: int = 0,
        page_size: int = 1,
        host: Optional[str] = None,
        port: Optional[int] = None,
        k_pool: Optional[Sequence[MemoryLike]] = None,
        v_pool: Optional[Sequence[MemoryLike]] = None,
        tp_group: Any = None,
        mq_timeout: float = 300.0,
        heartbeat_interval: float = 10.0,
        *,
        kv_cache_pools: Optional[Sequence[Sequence[MemoryLike]]] = None,
        model_config: Any = None,
        mp_host: Optional[str] = None,
        mp_port: Optional[int] = None,
        **unknown: object,
    ) -> None:
        pools = [list(pool) for pool in (kv_cache_pools if kv_cache_pools is not None else (k_pool, v_pool)) if pool]
        if not pools:
            raise ValueError("kvrail: the connector was given no KV tensors")
        if len(pools) == 2 and kv_cache_pools is None and len(pools[0]) != len(pools[1]):
            raise ValueError(f"kvrail: {len(pools[0])} K tensors and {len(pools[1])} V tensors")
        self.tp_size = tp_size
        self.worker_id = rank
        self.page_size = page_size
        self.num_layers = len(pools[0])
        self._pool = pools[0][0]
        self._agree: Agree = self._agreement(tp_group)
        self._shared = len(pools) == 1 or not _rows_are_tokens(pools[1], pools[0], page_size)  # MLA: the same bytes on all ranks
        self._lock = threading.RLock()
        self._requests: Dict[str, _Request] = {}
        self._mq_timeout = float(mq_timeout)
        self._salt = os.environ.get("KVRAIL_SALT")
        self._anonymous = 0
        layout = self._layout(pools)
        config = sgl_config if sgl_config is not None else model_config
        if not getattr(config, "model_path", None):
            raise ValueError("kvrail: SGLang's configuration names no model_path, so whose KV it is can't be said")
        facts = _facts(config)
        if dtype_name(self._pool) == "uint8" and facts["kv_cache_dtype"] is None:
            raise ValueError(
                "kvrail: the KV tensors are bytes, and which 8-bit format they hold is not known: start with kvrail-sglang, "
                "or set KVRAIL_KV_DTYPE to the value of --kv-cache-dtype"
            )
        self._link = Link(url_from(host or mp_host, port or mp_port), f"sglang rank {rank}", self._mq_timeout, heartbeat_interval)
        try:
            if self._link.chunk_tokens % page_size:
                raise ValueError(
                    f"kvrail: the server's chunk of {self._link.chunk_tokens} tokens is no multiple of SGLang's page of {page_size}: "
                    "choose --page-size, or the server's --chunk-tokens"
                )
            self._registration = self._register(config, layout, facts)
        except BaseException:
            self._link.close()
            raise
        for name in unknown:
            self._link.warn("SGLang passed an argument that kvrail does not know, and leaves alone: %s", name)

    # -- what it is ----

    def _layout(self, pools: List[List[MemoryLike]]) -> Layout:
        planes, blocks = token_planes(pools[0], self.page_size)
        for pool in pools[1:]:
            if _rows_are_tokens(pool, pools[0], self.page_size):
                more, count = token_planes(pool, self.page_size)
            else:
                more, count = page_planes(pool), extent(pool[0]).rows
            planes += more
            blocks = min(blocks, count)
        return Layout(planes, self.page_size, blocks, keep=pools)

    def _register(self, config: Any, layout: Layout, facts: Dict[str, object]) -> Registration:
        stages, stage = _pipeline()
        ranks = 1 if self._shared else self.tp_size
        return self._link.client.register(
            model_name(str(config.model_path)),
            dtype_name(self._pool),
            layout,
            engine=identity("sglang", version_of("sglang"), {**facts, "tp": self.tp_size, "pp": stages}),
            world_size=stages * ranks,
            rank=stage * ranks + (0 if self._shared else self.worker_id),
            readers=self.tp_size if self._shared else 1,
            reader=self.worker_id if self._shared else 0,
        )

    def _agreement(self, group: Any) -> Agree:
        if self.tp_size == 1:
            return tuple
        if callable(group):
            return cast(Agree, group)

        def reduce(numbers: Sequence[int]) -> Sequence[int]:
            import torch

            tensor = torch.tensor(list(numbers), dtype=torch.int64, device=getattr(self._pool, "device", "cpu"))
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=group)
            return [int(number) for number in tensor.tolist()]

        return reduce

    @property
    def is_healthy(self) -> bool:
        return self._link.healthy

    def chunk_size(self) -> int:
        return self._link.chunk_tokens

    # -- lookup ----

    def lookup_kv(self, token_ids: Any, request_id: str) -> int:
        """Tokens, from the first on, that the cache has for all ranks; whole chunks. They are locked until retrieve_kv,
        release_pending or end_session. 0: none, no server, or no request id."""
        if not request_id or len(token_ids) < self._link.chunk_tokens:
            return 0
        found = offered = asked = 0
        try:
            if self._link.answers:
                found, asked, offered = self._look_up(token_ids, request_id)
        except Exception as error:
            self._link.failed("a lookup failed: %s", error)
        matched, somebody_asked = self._agree((offered, -asked)) if self.tp_size > 1 else (offered, asked)
        with self._lock:
            request = self._requests.get(request_id)
            if request is None:
                return 0  # which this rank has offered, too
            request.matched = matched = matched if somebody_asked else 0
            request.locked = matched > 0
            if found > matched:  # what rank 0 has locked beyond what all agreed on is let go, for all of them
                self._free(request, matched, found, all_ranks=True)
            return matched

    def _look_up(self, token_ids: Any, request_id: str) -> tuple[int, int, int]:
        """This rank's part: tokens that the server found; whether it was asked: rank 0 asks; tokens that this rank has
        nothing against."""
        whole = len(token_ids) // self._link.chunk_tokens * self._link.chunk_tokens
        with self._lock:
            early = self._ask_early(token_ids, request_id, whole) if self.worker_id == 0 else None
            if early is not None:
                found, ticket = early
            elif not self._link.healthy:
                return 0, 0, 0
            else:
                request = self._begin(request_id, token_ids)
                request.locked = False
                if self.worker_id != 0:
                    return 0, 0, whole
                self._link.chain(request.session, request.tokens)
                ticket = request.session.submit_lookup()
        if ticket is not None:
            found = self._answer(ticket).tokens
        return found, 1, min(found, whole)

    def _ask_early(self, token_ids: Any, request_id: str, whole: int) -> Optional[tuple[int, Optional[Ticket]]]:
        """A lookup in one call into the library; of a known prompt's tokens before they are compared. Returns what it
        found, or a ticket that knows later. None: that can't be, and nothing has happened."""
        history = self._link.history
        request = self._requests.get(request_id)
        if request is not None:
            if request.session.chunks * self._link.chunk_tokens != whole:
                return None
            request.locked = False
            return self._ask(token_ids, request_id, whole, request, request.tokens, b"")
        found = self._ask(token_ids, request_id, whole, None, history, b"")
        if found is not None:
            return found
        if not self._link.healthy:
            return None
        tokens = Tokens(token_ids)
        return self._ask(None, request_id, whole, None, tokens, history.find(tokens) or b"")

    def _ask(
        self, token_ids: Any, request_id: str, whole: int, request: Optional[_Request], known: Union[Tokens, History], digests: bytes
    ) -> Optional[tuple[int, Optional[Ticket]]]:
        """Asks the server about these Tokens, or those that the history guesses, and compares them with token_ids, if
        there are such, while it answers. None: there is no guess, or they are others, or there is no server, and it is as
        if nothing had been asked."""
        registration, new = self._registration, request is None
        session = None if request is None else request.session._gate
        answer = ask(
            self._link.client._gate, session, registration.number, session_id(request_id), self._salt, known, digests, token_ids, _WAIT_SECONDS
        )
        if answer is None:
            return None
        gate, number, common, code, status, found, tokens, text = answer
        if gate is None:
            if code == -errno.ENOTCONN:
                return None
            raise KvrailError(-code, text)
        if request is None:
            request = _Request(tokens, Session._of(registration, request_id, gate))
        if number == 0:
            raise KvrailError(-code, text)
        ticket = Ticket(request.session, number, None) if code == -errno.ETIMEDOUT and status == 0 else None
        if token_ids is not None and common < whole:
            self._undo(request_id, request, ticket)
            return None
        if new:
            self._add(request_id, request)
        if token_ids is not None and len(token_ids) > len(request.tokens):
            self._extend(request, token_ids, common)
        if code and ticket is None:
            raise KvrailError(-code, text, status)
        return found, ticket

    def _undo(self, request_id: str, request: _Request, ticket: Optional[Ticket]) -> None:
        """Another chain under the same id would be refused."""
        self._requests.pop(request_id, None)
        try:
            if ticket is not None:
                self._answer(ticket)
        except KvrailError:
            pass
        request.session.end(min(self._mq_timeout, LOOKUP_SECONDS))
        request.session.close()

    def _answer(self, ticket: Ticket) -> Result:
        try:
            return ticket.wait(min(self._mq_timeout, LOOKUP_SECONDS))
        except BaseException:
            if not ticket.ended:
                self._link.later(ticket)
                ticket.cancel()
            raise

    def _begin(self, request_id: str, token_ids: Any) -> _Request:
        """The request's entry: the one there is, when these tokens and its own begin alike as far as both have whole
        chunks."""
        request = self._requests.get(request_id)
        if request is not None:
            chunk = self._link.chunk_tokens
            common = request.tokens.common(token_ids)
            if common >= min(len(token_ids) // chunk, len(request.tokens) // chunk) * chunk:
                self._extend(request, token_ids, common)
                return request
            del self._requests[request_id]
            if self.worker_id == 0:
                request.session.end(min(self._mq_timeout, LOOKUP_SECONDS))  # another chain under the same id would be refused
            request.session.close()
        request = _Request(Tokens(token_ids), self._link.session(self._registration, request_id, self._salt))
        self._add(request_id, request)
        return request

    def _add(self, request_id: str, request: _Request) -> None:
        while len(self._requests) >= REQUESTS_MAX:
            self.end_session(next(iter(self._requests)))
        self._requests[request_id] = request

    def _extend(self, request: _Request, token_ids: Any, common: int) -> None:
        """The request's tokens are these, when they are more; the first `common` ones are the same."""
        if len(token_ids) > len(request.tokens):
            alike = common == len(request.tokens)
            request.tokens = request.tokens.continued(token_ids) if alike else Tokens(token_ids)

    def _free(self, request: _Request, begin: int, end: int, all_ranks: bool = False) -> None:
        """Whole chunks of tokens begin .. end."""
        chunk = self._link.chunk_tokens
        if begin >= end or not self._link.connected:
            return  # of a lost connection nothing is held
        try:
            self._link.chain(request.session, request.tokens)
            self._link.later(request.session.submit_free_locks(begin // chunk, (end - begin) // chunk, all_ranks))
        except Exception as error:
            self._link.failed("locks were not released: %s", error)

    def release_pending(self, request_id: str) -> None:
        """Lets go of what lookup_kv locked for this rank. Harmless when there is nothing."""
        with self._lock:
            request = self._requests.get(request_id)
            if request is None or not request.locked:
                return
            request.locked = False
            self._free(request, 0, request.matched)

    # -- load ----

    def retrieve_kv(self, load_metadata: LoadMetadata) -> int:
        """Loads tokens offset + prefix_pad .. matched into their slots. Returns how many tokens from offset on are
        there, prefix_pad included; 0: none. The locks are let go in any case."""
        loaded = 0
        try:
            loaded = self._load(load_metadata)
        except Exception as error:
            self._link.failed("a load failed: %s", error)
        loaded = self._agree((loaded,))[0]
        return loaded if loaded > load_metadata.prefix_pad else 0

    def _load(self, load: LoadMetadata) -> int:
        chunk = self._link.chunk_tokens
        with self._lock:
            request = self._requests.get(load.request_id)
            if request is None or not request.locked:
                return 0
            request.locked = False
        first, count = load.offset // chunk, (request.matched - load.offset) // chunk
        try:
            if load.offset % chunk or load.prefix_pad % self.page_size or load.prefix_pad < 0 or count < 0:
                raise ValueError(f"offset {load.offset}, prefix_pad {load.prefix_pad}: chunks of {chunk}, pages of {self.page_size}")
            fresh = load.offset + load.prefix_pad
            if not self._link.healthy or fresh >= request.matched:
                self._free(request, load.offset, request.matched)
                return 0
            blocks = Tokens([NULL_BLOCK] * (load.prefix_pad // self.page_size))
            blocks.append(pages(host_numbers(load.slot_mapping), fresh, request.matched - fresh, self.page_size))
        except Exception:
            self._free(request, load.offset, request.matched)
            raise
        finally:
            self._free(request, 0, load.offset // chunk * chunk)
        self._link.chain(request.session, request.tokens)
        synchronize(self._pool)
        try:
            result = request.session.retrieve(first, count, blocks, load.prefix_pad, self._mq_timeout)
        except KvrailError:
            self._free(request, load.offset, request.matched)
            raise
        if result.leading() < count:
            self._link.warn("only %d of %d chunks were loaded", result.leading(), count)
        return result.leading() * chunk

    # -- store ----

    def store_kv(self, store_metadata: StoreMetadata) -> None:
        """Returns when the slots may be used for something else."""
        future = self.store_kv_async(store_metadata)
        while not future.wait(self._mq_timeout):
            self._link.suspect()
            future.cancel()

    def store_kv_async(self, store_metadata: StoreMetadata) -> "StoreFuture":
        """The future's result is false when the server is away, true when there was nothing to store."""
        try:
            return self._store(store_metadata)
        except Exception as error:
            self._link.failed("a store failed: %s", error)
            return StoreFuture(None, False, self._link.warn)

    def _store(self, store: StoreMetadata) -> "StoreFuture":
        chunk = self._link.chunk_tokens
        slots = host_numbers(store.kv_indices)
        begin = 0 if len(slots) >= len(store.token_ids) else store.offset
        first, end = -(-begin // chunk), min(len(store.token_ids), begin + len(slots)) // chunk
        if first >= end or (self._shared and self.worker_id != 0):
            return StoreFuture(None, True, self._link.warn)
        if not self._link.healthy:
            return StoreFuture(None, False, self._link.warn)
        blocks = pages(slots, first * chunk - begin, (end - first) * chunk, self.page_size)
        request_id = store.request_id
        if not request_id:
            self._anonymous += 1
            request_id = f"store {os.getpid()} {self.worker_id} {self._anonymous}"
        with self._lock:
            request = self._begin(request_id, store.token_ids)
            self._link.chain(request.session, request.tokens)
            synchronize(self._pool)
            ticket = request.session.submit_store(first, end - first, blocks)
        if not store.request_id:
            self.end_session(request_id)
        return StoreFuture(ticket, False, self._link.warn)

    # -- the end ----

    def end_session(self, request_id: str) -> None:
        """The request is over: what it still holds is let go. Nothing to do for ids that were never looked up nor
        stored."""
        with self._lock:
            request = self._requests.pop(request_id, None)
        if request is None:
            return
        try:
            if self._link.connected:
                self._link.later(request.session.submit_end())
            self._link.remember(request.session, request.tokens)
            request.session.close()
        except KvrailError:
            pass  # requests of it are under way, and it goes with the last of them; or the connection is lost, and with it all it held

    def reset(self) -> None:
        """The engine forgets all requests. The cache stays good."""
        for request_id in list(self._requests):
            self.end_session(request_id)

    def close(self) -> None:
        if self._link.client.closed:
            return
        self.reset()
        try:
            if self._link.healthy:
                self._registration.close()
        except KvrailError as error:
            self._link.warn("while closing: %s", error)
        self._link.close()


def _rows_are_tokens(pool: Sequence[MemoryLike], first: Sequence[MemoryLike], page: int) -> bool:
    """Else its rows are pages."""
    rows, tokens = extent(pool[0]).rows, extent(first[0]).rows
    if rows == tokens:
        return True
    if rows in (tokens // page, -(-tokens // page)):
        return False
    raise ValueError(f"kvrail: a pool of {rows} rows beside one of {tokens} tokens in pages of {page}")


def _facts(config: Any) -> Dict[str, object]:
    """What decides over the bytes besides the tensors' shapes, as far as it is known."""
    facts: Dict[str, object] = {name: getattr(config, name, None) for name in ("quantization", "revision", "dtype")}
    facts["kv_cache_dtype"] = os.environ.get("KVRAIL_KV_DTYPE") or getattr(config, "kv_cache_dtype", None)
    facts["arguments"] = os.environ.get("KVRAIL_SGLANG_ARGUMENTS")
    described = getattr(getattr(config, "hf_config", None), "to_json_string", None)
    if callable(described):
        import hashlib

        facts["config"] = hashlib.sha256(str(described()).encode()).hexdigest()
    return facts


def _pipeline() -> tuple[int, int]:
    """Pipeline stages, and which one this is: SGLang does not tell the connector."""
    import sys

    state = sys.modules.get("sglang.srt.distributed.parallel_state")
    if state is None:
        return 1, 0
    try:
        group = state.get_pp_group()
        return int(group.world_size), int(group.rank_in_group)
    except (AttributeError, AssertionError):
        return 1, 0


class LayerwiseConnector:
    """SGLang's in-process mode loads layer by layer inside the engine; kvrail is a server: use its multi-process
    mode."""

    def __init__(self, *arguments: object, **more: object) -> None:
        raise NotImplementedError("kvrail serves SGLang's multi-process mode (--enable-lmcache); its in-process mode is not there")
