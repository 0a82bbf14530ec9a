"""The client: connections, registrations, sessions. include/kvrail.h says what each call does; here are Python's parts.

Threads: all objects may be used from any thread. Every call into the library releases the interpreter's lock.
fork: a child must open a client of its own; all calls on its parent's raise KvrailError(ECHILD).
"""
from __future__ import annotations

import asyncio
import errno
import functools
import os
import time
import weakref
from typing import Any, Dict, Optional, Sequence, Union

from ._kvrail import ffi, lib
from ._tokens import Gate, Tokens, bind
from .errors import KvrailError
from .memory import Layout
from .results import FAILED, HEALTH, Closing, Info, Result, encoded, failed, ns, result, text_of
from .ticket import Ticket, Watcher, stream_handle

TokenLike = Union[Tokens, Sequence[int], Any]
BlockLike = Union[Tokens, Sequence[int], Any]

_IDS, _ADDRESS = ffi.typeof("uint32_t[]"), ffi.typeof("intptr_t")
_POINTER, _SESSION = ffi.typeof("struct kvr_session *"), ffi.typeof("struct kvr_session **")

_ASKED = ("health", "session_create", "session_digests", "session_tokens", "submit_lookup", "wait", "error_text")
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _refusal(foreign: int) -> KvrailError:
    if foreign:
        return KvrailError(errno.ECHILD, "this client belongs to the parent process: open one of its own after fork")
    return KvrailError(errno.EBADF, "the client was closed")


def _refusal_of_session(foreign: int) -> KvrailError:
    return KvrailError(errno.EBADF, "the session was closed")


bind(
    functools.partial(ffi.cast, _POINTER),
    _refusal_of_session,
    *(int(ffi.cast(_ADDRESS, ffi.addressof(lib, "kvr_" + name))) for name in _ASKED),
)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._gate.disown()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Client(Closing):
    """A connection to a kvrail server. url: "unix:/run/kvrail/kvrail.sock", "kvrail://host:7471", or None for
    $KVRAIL_URL or the default socket. Times are seconds."""

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        driver: Optional[str] = None,
        device: Optional[str] = None,
        name: Optional[str] = None,
        tenant: Optional[str] = None,
        key_name: Optional[str] = None,
        key_file: Optional[str] = None,
        in_flight: int = 0,
        connect_timeout: Optional[float] = None,
        request_timeout: Optional[float] = None,
        reconnect: bool = True,
    ) -> None:
        self._tickets: Dict[int, "Ticket"] = {}  # what the server may still write to
        self._watchers: Dict[asyncio.AbstractEventLoop, "Watcher"] = {}
        texts = [text_of(text) for text in (url, driver, device, name, tenant, key_name, key_file)]
        options = ffi.new("struct kvr_options *")
        options.struct_bytes = ffi.sizeof("struct kvr_options")
        (
            options.url,
            options.driver,
            options.device,
            options.name,
            options.tenant,
            options.key_name,
            options.key_file,
        ) = texts
        options.in_flight = in_flight
        options.connect_timeout_ns = ns(connect_timeout)
        options.request_timeout_ns = ns(request_timeout)
        options.reconnect = reconnect
        out = ffi.new("struct kvr_client **")
        code = lib.kvr_open(options, out)
        if code:
            raise failed(code)
        self._pointer = out
        # Every call on the handle is between _enter and _leave, so that close() can't free it underneath.
        self._gate = Gate(out[0], int(ffi.cast(_ADDRESS, out[0])), _refusal)
        self._enter, self._leave = self._gate.enter, self._gate.leave
        self.chunk_tokens: int = self.info().chunk_tokens
        _clients.add(self)

    # -- the handle ----

    def close(self) -> None:
        """Waits for calls of other threads to return. Tickets, sessions, registrations and Memory are gone
        afterwards."""
        if not self._gate.close():
            return
        while self._gate.calls > 0:
            time.sleep(0.001)
        for watcher in list(self._watchers.values()):
            watcher.stop()
        lib.kvr_close(self._pointer)
        for ticket in list(self._tickets.values()):
            ticket._lost()
        self._tickets.clear()

    def __del__(self) -> None:
        if hasattr(self, "_gate"):
            self.close()

    @property
    def closed(self) -> bool:
        return self._gate.closed

    # -- the connection ----

    @property
    def health(self) -> str:
        """HEALTHY, CONNECTING (lost, and trying again whenever it is called) or FAILED (also when closed)."""
        try:
            handle = self._enter()
        except KvrailError:
            return FAILED
        try:
            return HEALTH[lib.kvr_health(handle)]
        finally:
            self._leave()

    def info(self) -> Info:
        out = ffi.new("struct kvr_info *")
        handle = self._enter()
        try:
            code = lib.kvr_get_info(handle, out)
            if code:
                raise failed(code)
        finally:
            self._leave()
        text = [ffi.string(field).decode("utf-8", "replace") for field in (out.server, out.tenant, out.driver)]
        return Info(out.chunk_tokens, out.chunks_max, out.in_flight, out.lock_seconds, out.boot_id, out.reconnects, *text)

    def ping(self, timeout: Optional[float] = None) -> None:
        """To a poll core and back."""
        handle = self._enter()
        try:
            code = lib.kvr_ping(handle, ns(timeout))
            if code:
                raise failed(code)
        finally:
            self._leave()

    def progress(self) -> None:
        """Moves everything on a little: reconnecting, too, happens in calls only."""
        handle = self._enter()
        try:
            lib.kvr_poll(handle, 0, ffi.new("struct kvr_result *"))
        finally:
            self._leave()

    def mark(self) -> "Mark":
        """A point that the engine will reach: transfers `after` it do not touch their blocks before."""
        out = ffi.new("kvr_mark *")
        handle = self._enter()
        try:
            code = lib.kvr_mark_new(handle, out)
            if code:
                raise failed(code)
        finally:
            self._leave()
        return Mark(self, out[0])

    # -- memory and registrations ----

    def alloc(self, nbytes: int) -> "Memory":
        """Zeroed memory that the server reaches best."""
        out = ffi.new("void **")
        handle = self._enter()
        try:
            code = lib.kvr_alloc(handle, nbytes, out)
            if code:
                raise failed(code)
        finally:
            self._leave()
        return Memory(self, out[0], nbytes)

    def register(
        self,
        model: str,
        dtype: str,
        layout: Optional[Layout] = None,
        *,
        engine: Optional[str] = None,
        world_size: int = 1,
        rank: int = 0,
        readers: int = 1,
        reader: int = 0,
        fingerprint: Optional[bytes] = None,
    ) -> "Registration":
        """Which KV cache this is, and where this process has its part. layout None: a scheduler, which gives its
        workers' fingerprint. See struct kvr_model for what belongs into the names."""
        texts = [text_of(text) for text in (model, dtype, engine)]
        described = ffi.new("struct kvr_model *")
        described.struct_bytes = ffi.sizeof("struct kvr_model")
        described.name, described.dtype, described.engine = texts
        described.world_size, described.rank = world_size, rank
        described.readers, described.reader = readers, reader
        if fingerprint is not None and len(fingerprint) != 32:
            raise ValueError("a fingerprint has 32 bytes")
        number = ffi.new("uint32_t *")
        handle = self._enter()
        try:
            code = lib.kvr_register(
                handle,
                described,
                layout.handle if layout else ffi.NULL,
                fingerprint if fingerprint is not None else ffi.NULL,
                number,
            )
            if code:
                raise failed(code)
        finally:
            self._leave()
        return Registration(self, number[0], layout)

    def clear(self, registration: Optional["Registration"] = None, timeout: Optional[float] = None) -> Result:
        """Drops what is not in use: of one registration's model, or of the whole tenant."""
        number = 0xFFFFFFFF if registration is None else registration.number
        out = ffi.new("struct kvr_result *")
        handle = self._enter()
        try:
            code = lib.kvr_clear(handle, number, ns(timeout), out)
            return result(code, out, None)
        finally:
            self._leave()

    def _watcher(self, loop: asyncio.AbstractEventLoop) -> "Watcher":
        watcher = self._watchers.get(loop)
        if watcher is None:
            watcher = self._watchers[loop] = Watcher(self, loop)
        return watcher


class Mark:
    """A point in the engine's work (Client.mark). One that is never reached holds its transfers back for ever."""

    __slots__ = ("client", "number")

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number

    def reach(self) -> None:
        """It is reached now."""
        handle = self.client._enter()
        try:
            code = lib.kvr_mark_reach(handle, self.number)
            if code:
                raise failed(code)
        finally:
            self.client._leave()

    def record(self, stream: Any) -> None:
        """It is reached when all that was launched on this CUDA stream (a handle, or PyTorch's object) has ended. The
        stream's context must be current."""
        handle = self.client._enter()
        try:
            code = lib.kvr_stream_mark(handle, self.number, stream_handle(stream))
            if code:
                raise failed(code)
        finally:
            self.client._leave()


class Memory(Closing):
    """Memory of Client.alloc: a buffer, and an array of bytes to NumPy. Gone with close() and with the client: keep no
    view."""

    def __init__(self, client: Client, pointer: Any, nbytes: int) -> None:
        self._client = client
        self._pointer = pointer
        self.address = int(ffi.cast("uintptr_t", pointer))
        self.nbytes = nbytes

    @property
    def view(self) -> memoryview:
        return memoryview(ffi.buffer(self._pointer, self.nbytes))

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def close(self) -> None:
        """EBUSY while a registration uses it."""
        if self._pointer is None or self._client.closed:
            return
        handle = self._client._enter()
        try:
            code = lib.kvr_free(handle, self._pointer)
            if code:
                raise failed(code)
            self._pointer = None
        finally:
            self._client._leave()


class Registration(Closing):
    """A model's KV memory, known to the server. Keeps the layout's tensors alive."""

    def __init__(self, client: Client, number: int, layout: Optional[Layout]) -> None:
        self.client = client
        self.number = number
        self.layout = layout
        self._closed = False

    def session(self, id: str, salt: Optional[str] = None) -> "Session":
        return Session(self, id, salt)

    def close(self) -> None:
        """Waits until no transfer uses the memory."""
        if self._closed or self.client.closed:
            return
        handle = self.client._enter()
        try:
            self._closed = True
            code = lib.kvr_unregister(handle, self.number)
            if code not in (0, -errno.ECONNRESET):
                raise failed(code)
        finally:
            self.client._leave()
        self.layout = None


class Session(Closing):
    """One request of the engine. close() frees our part of it; end() tells the server that the request is over."""

    __slots__ = ("client", "registration", "id", "_gate", "_enter", "_leave", "__weakref__")

    def __init__(self, registration: Registration, id: str, salt: Optional[str]) -> None:
        client, out = registration.client, ffi.new(_SESSION)
        handle = client._enter()
        try:
            code = lib.kvr_session_create(
                handle, registration.number, encoded(id), encoded(salt) if salt else ffi.NULL, out
            )
            if code:
                raise failed(code)
            address = int(ffi.cast(_ADDRESS, out[0]))
            self._begin(registration, id, Gate(out[0], address, _refusal_of_session, client._gate))
        finally:
            client._leave()

    @classmethod
    def _of(cls, registration: Registration, id: str, gate: Gate) -> "Session":
        """What ask() has made."""
        session = cls.__new__(cls)
        session._begin(registration, id, gate)
        return session

    def _begin(self, registration: Registration, id: str, gate: Gate) -> None:
        self.client = registration.client
        self.registration = registration
        self.id = id
        self._gate = gate
        self._enter, self._leave = gate.enter, gate.leave

    def close(self) -> None:
        """EBUSY while requests of it are under way, or another thread's call."""
        if self.client.closed:
            return
        try:
            self.client._enter()
        except KvrailError:
            return  # closed meanwhile, or a child of fork
        try:
            if not self._gate.close():
                return
            busy = self._gate.calls > 0
            code = 0 if busy else lib.kvr_session_destroy(ffi.new(_SESSION, self._gate.handle))
            if busy or code:
                self._gate.open()
                raise KvrailError(errno.EBUSY, "another thread uses the session") if busy else failed(code)
        finally:
            self.client._leave()

    def __del__(self) -> None:
        try:
            if hasattr(self, "_gate"):
                self.close()
        except KvrailError:
            pass  # under way: goes with the client

    # -- the chain ----

    def tokens(self, tokens: TokenLike) -> None:
        """All tokens from the first one on; those of chunks that earlier calls hashed are not looked at."""
        ids = tokens if isinstance(tokens, Tokens) else Tokens(tokens)
        pointer = ffi.from_buffer(_IDS, ids)  # and they can't be appended to by another thread
        handle = self._enter()
        try:
            code = lib.kvr_session_tokens(handle, pointer, len(ids))
            if code:
                raise failed(code)
        finally:
            self._leave()

    def set_digests(self, digests: bytes) -> None:
        """The digests of all chunks so far, 32 bytes each, in place of hashing."""
        if len(digests) % 32:
            raise ValueError(f"{len(digests)} bytes are no digests of 32 bytes each")
        handle = self._enter()
        try:
            code = lib.kvr_session_digests(handle, digests, len(digests) // 32)
            if code:
                raise failed(code)
        finally:
            self._leave()

    def digests(self) -> bytes:
        handle = self._enter()
        try:
            count = lib.kvr_session_chunks(handle)
            out = ffi.new("uint8_t[]", 32 * count)
            code = lib.kvr_session_copy_digests(handle, 0, count, out)
            if code:
                raise failed(code)
        finally:
            self._leave()
        return bytes(ffi.buffer(out))

    @property
    def chunks(self) -> int:
        handle = self._enter()
        try:
            return int(lib.kvr_session_chunks(handle))
        finally:
            self._leave()

    # -- operations: each waits, or is submitted as a ticket ----

    def lookup(self, timeout: Optional[float] = None) -> Result:
        """How many chunks, from the first on, are in the cache; they are locked for us."""
        out = ffi.new("struct kvr_result *")
        handle = self._enter()
        try:
            return result(lib.kvr_lookup(handle, ns(timeout), out), out, None)
        finally:
            self._leave()

    def retrieve(
        self, first: int, count: int, blocks: BlockLike, skip_tokens: int = 0, timeout: Optional[float] = None
    ) -> Result:
        """Chunks first .. first + count - 1 into these blocks of ours. Leading skip_tokens are left alone."""
        return self._transfer(lib.kvr_retrieve, first, count, blocks, skip_tokens, timeout)

    def store(self, first: int, count: int, blocks: BlockLike, timeout: Optional[float] = None) -> Result:
        return self._transfer(lib.kvr_store, first, count, blocks, 0, timeout)

    def free_locks(self, first: int, count: int, all_ranks: bool = False, timeout: Optional[float] = None) -> Result:
        out = ffi.new("struct kvr_result *")
        handle = self._enter()
        try:
            return result(lib.kvr_free_locks(handle, first, count, all_ranks, ns(timeout), out), out, None)
        finally:
            self._leave()

    def end(self, timeout: Optional[float] = None) -> None:
        """Releases what the session still holds on the server, and forgets it there. Harmless when there is nothing."""
        handle = self._enter()
        try:
            code = lib.kvr_end(handle, ns(timeout))
            if code:
                raise failed(code)
        finally:
            self._leave()

    # Timed out, it was canceled and waited for: whatever is raised, the blocks are ours again.
    def _transfer(
        self, call: Any, first: int, count: int, blocks: BlockLike, skip_tokens: int, timeout: Optional[float]
    ) -> Result:
        transfer, outcomes, keep = _transfer(first, count, blocks, skip_tokens)
        out = ffi.new("struct kvr_result *")
        handle = self._enter()
        try:
            code = call(handle, transfer, ns(timeout), out)
            return result(code, out, outcomes)
        finally:
            self._leave()

    def submit_lookup(self, wait: bool = True, lock: bool = True) -> "Ticket":
        """wait False: answers at once; EAGAIN with status 2 while L2 is asked, and submit_query() tells later."""
        flags = (0 if wait else lib.KVR_LOOKUP_NO_WAIT) | (0 if lock else lib.KVR_LOOKUP_NO_LOCK)
        return self._submit(lambda handle, out: lib.kvr_submit_lookup(handle, flags, out))

    def submit_query(self, wait: float = 0.0, early: bool = False) -> "Ticket":
        return self._submit(lambda handle, out: lib.kvr_submit_query(handle, ns(wait) if wait > 0 else 0, early, out))

    def submit_retrieve(
        self,
        first: int,
        count: int,
        blocks: BlockLike,
        skip_tokens: int = 0,
        *,
        layers: int = 0,
        after: Optional[Mark] = None,
    ) -> "Ticket":
        """layers: that the ticket's wait_layer and stream_wait_layer tell apart."""
        transfer, outcomes, keep = _transfer(first, count, blocks, skip_tokens)
        transfer.layers = layers
        transfer.after = after.number if after is not None else 0
        return self._submit(lambda handle, out: lib.kvr_submit_retrieve(handle, transfer, out), outcomes)

    def submit_store(
        self, first: int, count: int, blocks: BlockLike, *, after: Optional[Mark] = None
    ) -> "Ticket":
        transfer, outcomes, keep = _transfer(first, count, blocks, 0)
        transfer.after = after.number if after is not None else 0
        return self._submit(lambda handle, out: lib.kvr_submit_store(handle, transfer, out), outcomes)

    def submit_free_locks(self, first: int, count: int, all_ranks: bool = False) -> "Ticket":
        return self._submit(lambda handle, out: lib.kvr_submit_free_locks(handle, first, count, all_ranks, out))

    def submit_end(self) -> "Ticket":
        return self._submit(lib.kvr_submit_end)

    def _submit(self, call: Any, outcomes: Any = None) -> "Ticket":
        out = ffi.new("kvr_ticket *")
        handle = self._enter()
        try:
            code = call(handle, out)
            if code:
                raise failed(code)
            return Ticket(self, out[0], outcomes)
        finally:
            self._leave()


def _transfer(first: int, count: int, blocks: BlockLike, skip_tokens: int) -> tuple[Any, Any, Any]:
    """The struct, the place for outcomes, and what must live until the call has returned."""
    if first < 0 or count < 1:
        raise ValueError(f"chunks from {first}, {count} of them: a transfer is of one chunk or more")
    ids = blocks if isinstance(blocks, Tokens) else Tokens(blocks)
    group = ffi.new("struct kvr_blocks *")
    pointer = ffi.from_buffer(_IDS, ids)
    group.ids = pointer
    group.count = len(ids)
    outcomes = ffi.new("uint8_t[]", count)
    transfer = ffi.new("struct kvr_transfer *")
    transfer.struct_bytes = ffi.sizeof("struct kvr_transfer")
    transfer.first_chunk, transfer.chunk_count, transfer.skip_tokens = first, count, skip_tokens
    transfer.group_count = 1
    transfer.groups = group
    transfer.outcomes = outcomes
    return transfer, outcomes, (pointer, group)
