"""What the connectors of all engines share: a client that is watched, prompts with their chains, identities, planes."""
from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._tokens import History, Tokens
from .client import Client, Mark, Registration, Session
from .errors import KvrailError
from .memory import Extent, Layout, MemoryLike, Plane, extent
from .results import HEALTHY
from .ticket import Ticket

logger = logging.getLogger("kvrail")

HISTORY_BYTES = 64 << 20  # of earlier prompts; $KVRAIL_HISTORY_BYTES
LOOKUP_SECONDS = 5.0  # longest wait in a scheduler's thread
PING_SECONDS = 5.0  # without an answer the server hangs
RECONNECT_SECONDS = 0.2  # between looks at a lost connection


class Link:
    """A connection to the server for one process of an engine, watched by a thread of its own: reconnecting happens in
    calls only, and a server that hangs is noticed by its pings. healthy is what a connector asks before it calls."""

    def __init__(self, url: Optional[str], name: str, request_timeout: float, heartbeat_interval: float) -> None:
        self.client = Client(url, name=name, request_timeout=request_timeout)
        self.chunk_tokens = self.client.chunk_tokens
        self.history = History(self.chunk_tokens, int(os.environ.get("KVRAIL_HISTORY_BYTES", HISTORY_BYTES)))
        self._interval = max(heartbeat_interval, 0.01)
        self.answers = True  # its last request or ping did not time out
        self._background: List[Ticket] = []
        self._lock = threading.Lock()
        self._closing = False
        self._wake = threading.Event()
        self._words: Dict[str, float] = {}
        self._thread = threading.Thread(target=self._watch, name="kvrail-watch", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Requests can be sent, whether or not they will be answered soon."""
        return self.client.health == HEALTHY

    @property
    def healthy(self) -> bool:
        return self.answers and self.client.health == HEALTHY

    def suspect(self) -> None:
        """A request timed out: unhealthy until a ping comes back."""
        self.answers = False
        self._wake.set()

    def _watch(self) -> None:
        while True:
            self._wake.wait(self._interval if self.healthy else RECONNECT_SECONDS)
            self._wake.clear()
            if self._closing:
                return
            was = self.healthy
            try:
                self.client.progress()
                if self.client.health == HEALTHY:
                    self.client.ping(PING_SECONDS)
                    self.answers = True
            except KvrailError as error:
                self.answers = False
                self.warn("the server does not answer: %s", error)
            if self.healthy != was:
                logger.log(logging.INFO if not was else logging.WARNING, "kvrail: %s", "connected again" if not was else "lost")
            self.sweep()

    def warn(self, text: str, *arguments: object) -> None:
        """At most one line of a kind in ten seconds: a server that is gone must not fill the engine's log."""
        now = time.monotonic()
        if now - self._words.get(text, -60.0) > 10.0:
            self._words[text] = now
            logger.warning("kvrail: " + text, *arguments)

    def failed(self, words: str, error: Exception) -> None:
        """A call failed. After a time-out the server is left alone until a ping comes back; a connection that was lost is
        looked after at once."""
        if isinstance(error, KvrailError) and error.name == "ETIMEDOUT":
            self.suspect()
        elif not self.connected:
            self._wake.set()
        self.warn(words, error)

    def later(self, ticket: Ticket) -> None:
        """Nobody waits for it, but its place must be given back."""
        with self._lock:
            self._background.append(ticket)
        if len(self._background) > 32:
            self.sweep()

    def sweep(self) -> None:
        with self._lock:
            tickets, self._background = self._background, []
        left = []
        for ticket in tickets:
            try:
                if not ticket.done():
                    left.append(ticket)
            except KvrailError:
                pass  # closed
        with self._lock:
            self._background[:0] = left

    def session(self, registration: Registration, id: str, salt: Optional[str] = None) -> Session:
        return registration.session(session_id(id), salt)

    def chain(self, session: Session, tokens: Tokens) -> None:
        """Gives the session the chain of these tokens: what an earlier prompt has in common is not hashed again."""
        count = len(tokens) // self.chunk_tokens * self.chunk_tokens
        if count == 0:
            return
        if session.chunks == 0:
            known = self.history.find(tokens)
            if known is not None:
                session.set_digests(known)
        session.tokens(tokens)

    def remember(self, session: Session, tokens: Tokens) -> None:
        """For the next turn. Nobody may append to these tokens afterwards."""
        digests = session.digests()
        if digests:
            self.history.remember(tokens, digests)

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        self.client.close()


def session_id(id: str) -> str:
    """An engine's request id as a session's: users choose them, and a session's has 1 to 128 bytes of UTF-8 and no
    NUL."""
    data = id.encode("utf-8", "surrogatepass")
    return id if len(data) <= 128 and id.isprintable() else hashlib.sha256(data).hexdigest()


def url_from(host: Optional[str], port: Optional[int]) -> Optional[str]:
    """The server's URL from what an engine's options call host and port: $KVRAIL_URL, a URL as host, the host's own
    server for a local name, else kvrail://host:port."""
    if os.environ.get("KVRAIL_URL"):
        return os.environ["KVRAIL_URL"]
    if not host:
        return None
    for prefix in ("unix:", "kvrail://"):
        if host.startswith(prefix):
            return host
    host = host.split("://")[-1]
    if host in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
        return None
    return f"kvrail://{host}:{port}"


def model_name(name: str) -> str:
    """With the version of its weights, which only the operator knows: $KVRAIL_MODEL_VERSION."""
    version = os.environ.get("KVRAIL_MODEL_VERSION")
    name = f"{name}@{version}" if version else name
    if len(name.encode()) > 128:
        name = name[:40] + "..." + hashlib.sha256(name.encode()).hexdigest()
    return name


def version_of(package: str) -> str:
    """Of an engine that is imported already; "none" for a stand-in."""
    module = sys.modules.get(package)
    return str(getattr(module, "__version__", "none"))


def identity(engine: str, version: str, facts: Mapping[str, object]) -> str:
    """The identity's part besides model, dtype, layout and ranks: engine, its version, and all facts that decide over
    the bytes. None counts as "not said" and is another identity than any value."""
    words = [f"{name}={facts[name]}" for name in sorted(facts)]
    return " ".join([engine, version, *words])


def dtype_name(thing: Any) -> str:
    """"bfloat16" for torch.bfloat16 and NumPy's alike."""
    dtype = getattr(thing, "dtype", None)
    return "uint8" if dtype is None else str(dtype).split(".")[-1]


def token_planes(tensors: Sequence[MemoryLike], page: int) -> tuple[List[Plane], int]:
    """Planes of tensors whose rows are tokens, `page` rows a block; and the number of blocks that all have."""
    planes, blocks = [], 0
    for tensor in tensors:
        rows = extent(tensor)
        if len(rows.shape) < 1 or rows.rows < page or not rows.row_is_contiguous or rows.row_bytes * rows.rows != rows.nbytes:
            raise ValueError(f"a KV tensor of shape {rows.shape} with stride {rows.stride} has no contiguous pages of {page} tokens")
        planes.append(Plane(rows.address, page * rows.row_bytes, page * rows.row_bytes))
        blocks = rows.rows // page if len(planes) == 1 else min(blocks, rows.rows // page)
    return planes, blocks


def page_planes(tensors: Sequence[MemoryLike]) -> List[Plane]:
    """Planes of tensors whose rows are pages."""
    planes = []
    for tensor in tensors:
        rows: Extent = extent(tensor)
        if not rows.row_is_contiguous:
            raise ValueError(f"a tensor of shape {rows.shape} with stride {rows.stride} has no contiguous pages")
        planes.append(Plane(rows.address, rows.row_bytes, rows.nbytes // rows.rows))
    return planes


def is_cuda(tensor: object) -> bool:
    return bool(getattr(tensor, "is_cuda", False))


def synchronize(tensor: object) -> None:
    """What the engine has queued on its current stream has happened when this returns: the server sees memory, not
    streams."""
    if is_cuda(tensor):
        import torch

        torch.cuda.current_stream(getattr(tensor, "device", None)).synchronize()


def mark_after(client: Client, tensor: object) -> Optional[Mark]:
    """What the engine has queued on its current stream until now, as a mark for transfers: this process does not wait
    for it. None: it has happened already, or was waited for because this CUDA can't tell."""
    if not is_cuda(tensor):
        return None
    import torch

    device = getattr(tensor, "device", None)
    try:
        mark = client.mark()
        with torch.cuda.device(device):
            mark.record(torch.cuda.current_stream(device))
        return mark
    except KvrailError:
        synchronize(tensor)
        return None


def host_numbers(numbers: Any) -> Any:
    """A buffer of 64-bit integers in host memory from a tensor on any device, or from what is one already."""
    if hasattr(numbers, "detach"):
        import torch

        return numbers.detach().to(device="cpu", dtype=torch.int64).contiguous().numpy()
    return numbers


__all__ = [
    "HISTORY_BYTES",
    "LOOKUP_SECONDS",
    "Layout",
    "Link",
    "dtype_name",
    "host_numbers",
    "identity",
    "is_cuda",
    "mark_after",
    "model_name",
    "page_planes",
    "session_id",
    "synchronize",
    "token_planes",
    "url_from",
    "version_of",
]
