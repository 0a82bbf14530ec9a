"""Requests under way: polled, waited for, or awaited by tasks of an event loop."""
from __future__ import annotations

import asyncio
import errno
import time
import weakref
from typing import TYPE_CHECKING, Any, Dict, Generator, Optional

from ._kvrail import ffi, lib
from .errors import KvrailError
from .memory import words
from .results import Result, failed, result, until_ns

if TYPE_CHECKING:
    from .client import Client, Session

# A wait is cut into pieces, so that a signal's handler (KeyboardInterrupt) and close() in another thread are not kept
# waiting.
_WAIT_PIECE_NS = 100_000_000


def stream_handle(stream: Any) -> Any:
    return ffi.cast("void *", int(getattr(stream, "cuda_stream", stream)))


class Ticket:
    """A request under way: to be polled, waited for, or awaited. While a transfer's ticket is not done, its blocks are
    the server's. A ticket holds its place in the client until it is done and was looked at."""

    __slots__ = ("client", "session", "number", "_outcomes", "_done", "_result", "_error", "__weakref__")

    def __init__(self, session: Session, number: int, outcomes: Any) -> None:
        client = session.client
        self.client = client
        self.session: Optional[Session] = session  # which can't go before it
        self.number = number
        self._outcomes = outcomes
        self._done = False
        self._result: Optional[Result] = None
        self._error: Optional[KvrailError] = None
        client._tickets[number] = self

    def _finish(self, code: int, out: Any) -> None:
        try:
            self._result = result(code, out, self._outcomes)
        except KvrailError as error:
            self._error = error
        self._done = True
        self._outcomes = self.session = None
        self.client._tickets.pop(self.number, None)

    def _lost(self) -> None:
        if not self._done:
            self._error = KvrailError(errno.ECONNRESET, "the client was closed")
            self._done = True

    def _look(self, timeout_ns: Optional[int]) -> bool:
        if self._done:
            return True
        out = ffi.new("struct kvr_result *")
        try:
            handle = self.client._enter()
        except KvrailError:
            if self._done:
                return True
            raise
        try:
            if timeout_ns is None:
                code = lib.kvr_poll(handle, self.number, out)
            else:
                code = lib.kvr_wait(handle, self.number, timeout_ns, out)
            if out.status == 0 and code in (-errno.EAGAIN, -errno.ETIMEDOUT):
                return False
            if out.status == 0 and code == -errno.ENOENT:
                # Another thread has taken it, and is about to say so.
                return self._done
            self._finish(code, out)
            return True
        finally:
            self.client._leave()

    @property
    def ended(self) -> bool:
        """Whether a result is known already, without looking; also when the client was closed."""
        return self._done or self.client.closed

    def done(self) -> bool:
        """Looks whether it has ended, well or not."""
        return self._look(None)

    def poll(self) -> Optional[Result]:
        """The result, or None while it is under way. Raises what the request failed with."""
        return self._outcome() if self._look(None) else None

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Raises KvrailError(ETIMEDOUT) with status 0 when the time is up: the request goes on."""
        until = until_ns(timeout)
        while True:
            piece = _WAIT_PIECE_NS if until is None else min(_WAIT_PIECE_NS, until - time.monotonic_ns())
            if self._look(max(piece, 0)):
                return self._outcome()
            if until is not None and piece <= 0:
                raise KvrailError(errno.ETIMEDOUT, "not done yet: the ticket stays, and a transfer's memory is the server's")

    def wait_layer(self, layer: int, timeout: Optional[float] = None) -> None:
        """Returns when that layer of a RETRIEVE with `layers` is there. It must still be waited for, and its result
        looked at. Raises what the request failed with; KvrailError(ETIMEDOUT) when the time is up."""
        until = until_ns(timeout)
        while not self._done:
            piece = _WAIT_PIECE_NS if until is None else min(_WAIT_PIECE_NS, until - time.monotonic_ns())
            handle = self.client._enter()
            try:
                code = lib.kvr_wait_layer(handle, self.number, layer, max(piece, 0))
            finally:
                self.client._leave()
            if code == 0:
                return
            if code == -errno.ERANGE or (code != -errno.ETIMEDOUT and not self._look(None)):
                raise failed(code)
            if code == -errno.ETIMEDOUT and not self._look(None) and until is not None and piece <= 0:
                raise KvrailError(errno.ETIMEDOUT, f"layer {layer} is not there yet")
        self._outcome()

    def stream_wait_layer(self, layer: int, stream: Any) -> None:
        """What is launched on this CUDA stream (a handle, or PyTorch's object) from now on waits for the layer; nobody
        else does. The stream's context must be current."""
        if self._done:
            return
        handle = self.client._enter()
        try:
            code = lib.kvr_stream_wait_layer(handle, self.number, layer, stream_handle(stream))
        finally:
            self.client._leave()
        if code == -errno.ERANGE or (code and not self._look(None)):
            raise failed(code)

    def cancel(self) -> None:
        """Asks the server to stop it. It must still be waited for. Harmless when it is done."""
        if self._done:
            return
        handle = self.client._enter()
        try:
            code = lib.kvr_cancel(handle, self.number)
            if code not in (0, -errno.ENOENT, -errno.ECONNRESET):
                raise failed(code)
        finally:
            self.client._leave()

    def _outcome(self) -> Result:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def __await__(self) -> Generator[Any, None, Result]:
        """Canceling the task that awaits does not cancel the request."""
        if not self._look(None):
            yield from self.client._watcher(asyncio.get_running_loop()).future(self)
        return self._outcome()


class Watcher:
    """Tickets that tasks of one event loop await: one descriptor of the client tells of all of them."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = weakref.ref(client)
        self._loop = loop
        self._waiting: Dict["asyncio.Future[None]", Ticket] = {}
        handle = client._enter()
        try:
            self._fd = lib.kvr_event_fd(handle)
            if self._fd < 0:
                raise KvrailError(errno.EMFILE, words())
        finally:
            client._leave()

    def future(self, ticket: Ticket) -> "asyncio.Future[None]":
        future: "asyncio.Future[None]" = self._loop.create_future()
        if not self._waiting:
            self._loop.add_reader(self._fd, self._news)
        self._waiting[future] = ticket
        self._loop.call_soon(self._news)
        return future

    def _news(self) -> None:
        client = self._client()
        # All tickets are looked at, those that nobody awaits too: the descriptor is readable until each result was
        # taken.
        for ticket in list(client._tickets.values()) if client else []:
            try:
                ticket._look(None)
            except KvrailError:
                break
        for future, ticket in list(self._waiting.items()):
            if ticket._done and not future.done():
                future.set_result(None)
            if future.done():
                del self._waiting[future]
        if not self._waiting and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)

    def stop(self) -> None:
        """The client is being closed, perhaps by another thread than the loop's."""
        try:
            self._loop.call_soon_threadsafe(self._news)  # resolves what waits, and takes the descriptor out of the loop
        except RuntimeError:
            pass  # the loop is closed
