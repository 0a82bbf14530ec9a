"""A worker's half: loads and stores that the planner has decided on, in this rank's blocks.

Loads are polled and reported once each, failed ones with their blocks. Stores go out behind the forward pass and are
not waited for: a request's blocks stay until they are done (Planner.finished said so), and a preempted request's are
waited for before anything else may use them.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

from .client import Registration, Session
from .engine import Link, is_cuda, mark_after
from .errors import KvrailError
from .planner import Load, Plan, Store
from .results import DELIVERED, SKIPPED
from .ticket import Ticket


LAYERS_MAX = 512  # that a RETRIEVE tells apart


class Mover:
    """layers: of the registration, for engines that wait for each; 0: they wait for all."""

    def __init__(
        self, link: Link, registration: Registration, block_tokens: int, stores: bool, tensor: Any, layers: int = 0
    ) -> None:
        self._layers = layers if layers <= LAYERS_MAX else 0
        self._link = link
        self._registration = registration
        self._block = block_tokens
        self._stores = stores
        self._tensor = tensor
        self._sessions: Dict[str, Session] = {}
        self._loading: Dict[str, tuple[Load, Optional[Ticket]]] = {}
        self._storing: Dict[str, List[Ticket]] = {}
        self._ending: Set[str] = set()  # requests that vLLM has finished, whose stores are not done
        self._errors: Set[int] = set()

    def _session(self, what: Load | Store) -> Session:
        session = self._sessions.get(what.request_id)
        if session is None:
            session = self._sessions[what.request_id] = self._registration.session(what.session_id, what.salt)
        if session.chunks < len(what.digests) // 32:
            session.set_digests(what.digests)
        return session

    # -- load ----

    def start(self, plan: Plan) -> None:
        for request_id in plan.drain:
            self.drain(request_id)
        for store in plan.stores:
            # The scheduler counts on it from now on, even if a load that fails is the end of this step.
            self._storing.setdefault(store.request_id, [])
        after = mark_after(self._link.client, self._tensor) if plan.loads and self._link.healthy else None
        for load in plan.loads:
            ticket = None
            try:
                if self._link.healthy:
                    count = len(load.blocks) * self._block // self._link.chunk_tokens
                    layers = self._layers if load.wait else 0
                    ticket = self._session(load).submit_retrieve(
                        load.first, count, load.blocks, load.skip, layers=layers, after=after
                    )
                else:
                    self._link.warn("loads are given up while the server is away")
            except Exception as error:
                self._link.warn("a load failed: %s", error)
            self._loading[load.request_id] = (load, ticket)

    def wait_layer(self, layer: int) -> None:
        """The forward pass is about to use this layer: what it launches from now on waits for it, or, where the KV is in
        host memory, it does. A load that fails lets it through, and is reported when the pass is over."""
        if not self._layers:
            return self.wait()
        for load, ticket in self._loading.values():
            if not load.wait or ticket is None:
                continue
            try:
                if is_cuda(self._tensor):
                    self._stream_wait(ticket, layer)
                else:
                    ticket.wait_layer(layer)
            except KvrailError as error:
                if not ticket.ended:
                    self._link.warn("a layer could not be waited for: %s", error)
                    self.wait()
                    return

    def _stream_wait(self, ticket: Ticket, layer: int) -> None:
        import torch

        with torch.cuda.device(self._tensor.device):
            ticket.stream_wait_layer(layer, torch.cuda.current_stream(self._tensor.device))

    def wait(self) -> None:
        """For loads that the forward pass is about to use, or has used."""
        for request_id, (load, ticket) in list(self._loading.items()):
            if load.wait:
                self._ended(load, ticket, forever=True)
                del self._loading[request_id]

    def _ended(self, load: Load, ticket: Optional[Ticket], forever: bool) -> bool:
        """False: under way. Notes the blocks that did not arrive."""
        outcomes = None
        try:
            if ticket is not None:
                if forever:
                    outcomes = ticket.wait().outcomes
                else:
                    result = ticket.poll()
                    if result is None:
                        return False
                    outcomes = result.outcomes
        except KvrailError as error:
            if ticket is not None and not ticket.ended:
                return False
            self._link.warn("a load failed: %s", error)
        per_chunk = self._link.chunk_tokens // self._block
        for chunk in range(len(load.blocks) // per_chunk):
            if outcomes is None or outcomes[chunk] not in (DELIVERED, SKIPPED):
                blocks = load.blocks[chunk * per_chunk : (chunk + 1) * per_chunk]
                there = max(0, load.skip - chunk * self._link.chunk_tokens) // self._block
                self._errors.update(blocks[there:])
        return True

    # -- store ----

    def save(self, plan: Plan) -> None:
        if not plan.stores:
            return
        after = None
        if self._stores and self._link.healthy:
            after = mark_after(self._link.client, self._tensor)
        for store in plan.stores:
            tickets = self._storing.setdefault(store.request_id, [])
            try:
                if self._stores and self._link.healthy:
                    count = len(store.blocks) * self._block // self._link.chunk_tokens
                    tickets.append(self._session(store).submit_store(store.first, count, store.blocks, after=after))
            except Exception as error:
                self._link.warn("a store failed: %s", error)

    def _stored(self, request_id: str) -> bool:
        """Whether nothing of it is under way."""
        left = []
        for ticket in self._storing.get(request_id, ()):
            try:
                if not ticket.done():
                    left.append(ticket)
                    continue
                ticket.wait(0)
            except KvrailError as error:
                self._link.warn("a store failed: %s", error)
        if request_id in self._storing:
            self._storing[request_id] = left
        return not left

    def drain(self, request_id: str) -> None:
        for ticket in self._storing.get(request_id, ()):
            try:
                ticket.wait()
            except KvrailError:
                pass
        self._stored(request_id)

    def drain_all(self) -> None:
        for request_id in list(self._storing):
            self.drain(request_id)

    # -- what is done ----

    def finished(self, request_ids: Set[str]) -> tuple[Set[str], Set[str]]:
        """Requests whose stores are done, of those that vLLM has finished, and those whose load has ended."""
        self._ending.update(request_id for request_id in request_ids if request_id in self._storing)
        received = set()
        for request_id, (load, ticket) in list(self._loading.items()):
            if not load.wait and self._ended(load, ticket, forever=False):
                del self._loading[request_id]
                received.add(request_id)
        sent = {request_id for request_id in self._ending if self._stored(request_id)}
        for request_id in sent:
            self._ending.discard(request_id)
            del self._storing[request_id]
        for request_id in [id for id in request_ids if id not in self._storing] + list(sent):
            self._forget(request_id)
        return sent, received

    def _forget(self, request_id: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is None:
            return
        try:
            if self._link.connected:
                # What we stored after the scheduler's END has begun the session anew.
                self._link.later(session.submit_end())
            session.close()
        except KvrailError:
            pass  # a load of it is under way, and it goes with that

    def errors(self) -> Set[int]:
        errors, self._errors = self._errors, set()
        return errors

    def close(self) -> None:
        if not self._link.client.closed:
            if self._link.connected:
                self.drain_all()
            self._link.close()
