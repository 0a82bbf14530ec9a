"""The scheduler's half of connectors whose engine plans in one process and computes in others (vLLM, TensorRT-LLM):
lookups, what is to be loaded and stored, and when a request is over.

A request's way: matched_tokens submits its LOOKUP and says "ask me again" until the answer is there (at once, nearly
always) -> allocated makes a load of it, or lets the locks go -> step hands loads and stores to the workers -> finished
ends the session. A request loads once: when it comes back, its load has failed or it was preempted, and it is computed.
"""
from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Union

from ._tokens import History, Tokens, ask
from .client import Registration, Session
from .engine import LOOKUP_SECONDS, Link, session_id
from .errors import KvrailError
from .ticket import Ticket

PATIENCE_SECONDS = 0.001  # for an answer within the same step


@dataclass
class Load:
    """Chunks `first` .. into these blocks, but for the first `skip` tokens, which are there."""

    request_id: str
    session_id: str
    salt: Optional[str]
    digests: bytes
    first: int
    skip: int
    blocks: List[int]
    wait: bool  # before the forward pass uses it; else it is reported when it is done


@dataclass
class Store:
    request_id: str
    session_id: str
    salt: Optional[str]
    digests: bytes
    first: int
    blocks: List[int]


@dataclass
class Plan:
    """What the workers are to do in a step. drain: requests whose blocks may be given away in it."""

    loads: List[Load] = field(default_factory=list)
    stores: List[Store] = field(default_factory=list)
    drain: List[str] = field(default_factory=list)


@dataclass
class _Request:
    request: Any
    salt: Optional[str]
    session: Session
    tokens: Tokens
    ticket: Optional[Ticket] = None
    asked: float = 0.0
    matched: Optional[int] = None  # tokens; None: not known yet
    locked: bool = False
    computed: int = 0  # tokens that the engine has itself
    offered: int = 0  # tokens beyond them, as the engine was told last
    blocks: List[int] = field(default_factory=list)
    load: Optional[Load] = None
    loads: int = 0
    stored: int = 0  # chunks that are in the cache, or on their way
    stores: int = 0


def token_ids(request: Any) -> Any:
    """As a list where there is one: vLLM's view of its own hands out copies."""
    ids = request.all_token_ids
    inner = getattr(ids, "_x", None)
    return inner if type(inner) is list else ids


class Planner:
    """salt: what keeps a request's chunks apart from those of others with the same tokens; ValueError: it must not be
    cached."""

    def __init__(
        self,
        link: Link,
        registration: Registration,
        block_tokens: int,
        load_async: bool,
        generated: bool,
        salt: Callable[[Any], Optional[str]],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._salt = salt
        self._patience = patience
        self._instance = os.urandom(8).hex()  # engines number their requests alike
        self._link = link
        self._registration = registration
        self._chunk = link.chunk_tokens
        self._block = block_tokens
        self._load_async = load_async
        self._generated = generated
        self._requests: Dict[str, _Request] = {}
        self._refused: set[str] = set()

    # -- lookup ----

    def matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[Optional[int], bool]:
        state = self._state(request)
        if state is None or state.loads > 0:
            return 0, False  # it is not cached; or it has loaded before
        if state.matched is None:
            self._ask(state)
            if state.matched is None:
                return None, False
        # The last token is computed in any case: it decides what comes next.
        beyond = min(state.matched, request.num_tokens - 1) - num_computed_tokens
        state.computed, state.offered = num_computed_tokens, max(beyond, 0)
        return state.offered, self._load_async and beyond > 0

    def offered(self, request_id: str) -> int:
        """What matched_tokens said last, for engines that do not say themselves how much of it they took: all or
        nothing."""
        state = self._requests.get(request_id)
        return state.offered if state is not None and state.loads == 0 else 0

    def _state(self, request: Any) -> Optional[_Request]:
        """None: this request has nothing to do with the cache."""
        state = self._requests.get(request.request_id)
        if state is not None or request.request_id in self._refused:
            return state
        try:
            salt, ids = self._salt(request), token_ids(request)
            state = self._ask_early(request, salt, ids) if self._link.answers else None
            if state is None:
                tokens = Tokens(ids)
                session = self._registration.session(self._session_id(request.request_id), salt)
                self._link.chain(session, tokens)
                state = _Request(request, salt, session, tokens)
        except Exception as error:
            self._link.warn("a request is not cached: %s", error)
            self._refused.add(request.request_id)
            return None
        self._requests[request.request_id] = state
        return state

    def _session_id(self, request_id: str) -> str:
        return session_id(f"{self._instance} {request_id}")

    def _ask_early(self, request: Any, salt: Optional[str], ids: Any) -> Optional[_Request]:
        """The request with its LOOKUP under way, or answered, by one call into the library; of a known prompt's tokens
        before they are compared. None: that can't be, and nothing has happened."""
        if len(ids) < self._chunk:
            return None
        history, id = self._link.history, request.request_id
        state = self._ask_about(request, salt, self._session_id(id), history, b"", ids)
        if state is not None or not self._link.healthy:
            return state
        tokens = Tokens(ids)
        # Another session than a wrong guess's, which may not have ended yet.
        return self._ask_about(request, salt, self._session_id(f"{id} itself"), tokens, history.find(tokens) or b"", None)

    def _ask_about(
        self, request: Any, salt: Optional[str], id: str, known: Union[Tokens, History], digests: bytes, ids: Any
    ) -> Optional[_Request]:
        """Asks about these Tokens, or those that the history guesses, and compares them with the ids, if there are such,
        while the server looks. None: there is no guess, they are others, or it can't be asked."""
        registration = self._registration
        asked = time.monotonic()
        answer = ask(
            self._link.client._gate, None, registration.number, id, salt or None, known, digests, ids, self._patience
        )
        if answer is None:
            return None
        gate, number, common, code, status, found, tokens, text = answer
        if gate is None or number == 0:
            return None
        state = _Request(request, salt, Session._of(registration, id, gate), tokens, asked=asked, locked=True)
        if code == -errno.ETIMEDOUT and status == 0:
            state.ticket = Ticket(state.session, number, None)
        if ids is not None and common < len(ids) // self._chunk * self._chunk:
            self._forget(state)
            return None
        if code == 0:
            self._answered(state, found)
        elif state.ticket is None:
            self._link.warn("a lookup failed: %s", text)
            state.matched = 0
        return state

    def _answered(self, state: _Request, tokens: int) -> None:
        state.matched, state.stored, state.locked = tokens, tokens // self._chunk, tokens > 0
        state.ticket = None

    def _forget(self, state: _Request) -> None:
        """Lets go of all that it has on the server. What is still under way goes with its answer."""
        try:
            if state.ticket is not None:
                self._link.later(state.ticket)
            self._link.later(state.session.submit_end())
            state.session.close()
        except KvrailError:
            pass  # requests of it are under way; or the connection is lost, and all that it held

    def _ask(self, state: _Request) -> None:
        try:
            if state.ticket is None:
                if state.session.chunks == 0 or not self._link.healthy:
                    state.matched = 0
                    return
                state.ticket = state.session.submit_lookup()
                state.asked = time.monotonic()
                state.locked = True
            result = self._patiently(state.ticket, state.asked + self._patience - time.monotonic())
            if result is not None:
                self._answered(state, result.tokens)
            elif time.monotonic() - state.asked > LOOKUP_SECONDS:
                self._link.suspect()
                state.ticket.cancel()
                self._link.later(state.ticket)
                state.matched, state.ticket = 0, None
        except KvrailError as error:
            self._link.warn("a lookup failed: %s", error)
            state.matched, state.ticket = 0, None

    def _patiently(self, ticket: Ticket, seconds: float) -> Any:
        if seconds <= 0:
            return ticket.poll()
        try:
            return ticket.wait(seconds)
        except KvrailError as error:
            if error.name == "ETIMEDOUT" and not ticket.ended:
                return None
            raise

    # -- load ----

    def allocated(self, request: Any, blocks: List[int], num_external_tokens: int) -> None:
        state = self._requests.get(request.request_id)
        if state is None:
            return
        state.blocks = list(blocks)
        if num_external_tokens == 0:
            self._free(state, (state.matched or 0) // self._chunk)
            return
        # All of a chunk is loaded, but for blocks that are there already.
        first, end = state.computed // self._chunk, (state.matched or 0) // self._chunk
        self._free(state, first)
        state.loads += 1
        begin = first * self._chunk // self._block
        state.load = Load(
            request.request_id,
            state.session.id,
            state.salt,
            state.session.digests(),
            first,
            state.computed - first * self._chunk,
            state.blocks[begin : end * self._chunk // self._block],
            not self._load_async,
        )

    def _free(self, state: _Request, end: int) -> None:
        """The first chunks' locks, of all ranks; what is behind them is the load's."""
        locked, state.locked = state.locked, False
        if not locked or end == 0:
            return
        try:
            self._link.later(state.session.submit_free_locks(0, end, all_ranks=True))
        except KvrailError as error:
            self._link.warn("locks were not released: %s", error)

    # -- each step ----

    def step(self, output: Any) -> Plan:
        made = Plan()
        for new in output.scheduled_new_reqs:
            self._scheduled(made, output, new.req_id, int(new.num_computed_tokens), new.block_ids, replace=True)
        cached = output.scheduled_cached_reqs
        resumed = set(getattr(cached, "resumed_req_ids", None) or ())
        flags = getattr(cached, "resumed_from_preemption", None) or []
        for number, request_id in enumerate(cached.req_ids):
            again = request_id in resumed or (number < len(flags) and bool(flags[number]))
            self._scheduled(
                made, output, request_id, int(cached.num_computed_tokens[number]), cached.new_block_ids[number], replace=again
            )
        preempted = set(getattr(output, "preempted_req_ids", None) or ())
        for request_id, state in self._requests.items():
            if state.load is not None:
                made.loads.append(state.load)
                state.load = None
            if state.stores and (request_id in preempted or getattr(state.request.status, "name", "") == "PREEMPTED"):
                made.drain.append(request_id)
        return made

    def _scheduled(
        self, made: Plan, output: Any, request_id: str, computed: int, block_ids: Any, replace: bool
    ) -> None:
        state = self._requests.get(request_id)
        if state is None:
            return
        blocks = list(block_ids[0]) if block_ids else []
        state.blocks = blocks if replace else state.blocks + blocks
        # What was to be loaded and did not come, or was preempted, is computed anew, and stored anew.
        state.stored = min(state.stored, computed // self._chunk)
        draft = len((getattr(output, "scheduled_spec_decode_tokens", None) or {}).get(request_id, ()))
        ready = computed + int(output.num_scheduled_tokens[request_id]) - draft
        if not self._generated:
            ready = min(ready, int(getattr(state.request, "num_prompt_tokens", ready)))
        self._store(made, state, ready)

    def _store(self, made: Plan, state: _Request, ready: int) -> None:
        """Whole chunks whose KV is there after this step."""
        whole = min(ready, len(state.request.all_token_ids), len(state.blocks) * self._block) // self._chunk
        if whole <= state.stored or not self._link.healthy:
            return
        try:
            if len(state.tokens) < whole * self._chunk:
                tokens = state.tokens.continued(token_ids(state.request))
                self._link.chain(state.session, tokens)
                state.tokens = tokens
            digests = state.session.digests()[: 32 * whole]
        except Exception as error:
            self._link.warn("a store failed: %s", error)
            return
        begin, end = state.stored * self._chunk // self._block, whole * self._chunk // self._block
        made.stores.append(Store(state.request.request_id, state.session.id, state.salt, digests, state.stored, state.blocks[begin:end]))
        state.stored = whole
        state.stores += 1

    # -- the end ----

    def finished(self, request: Any) -> bool:
        """Whether the blocks must stay until the workers say that their stores are done."""
        self._refused.discard(request.request_id)
        state = self._requests.pop(request.request_id, None)
        if state is None:
            return False
        try:
            if len(state.tokens) // self._chunk > 0:
                self._link.remember(state.session, state.tokens)
        except KvrailError:
            pass
        self._forget(state)
        return state.stores > 0

    def clear(self) -> bool:
        """Drops what is cached of this model. False: some is in use, and stays."""
        return bool(self._link.client.clear(self._registration).from_l2 == 0)

    def close(self) -> None:
        self._link.close()
