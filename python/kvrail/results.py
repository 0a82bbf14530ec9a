"""What requests come to: outcomes, results, what is known of a connection; and the base of all handles."""
from __future__ import annotations

import time
from types import TracebackType
from typing import Any, NamedTuple, Optional, Type, TypeVar

from ._kvrail import ffi, lib
from .errors import KvrailError
from .memory import words

NULL_BLOCK: int = lib.KVR_NULL_BLOCK
DELIVERED: int = lib.KVR_DELIVERED
SKIPPED: int = lib.KVR_SKIPPED
MISSING: int = lib.KVR_MISSING
STORED: int = lib.KVR_STORED
PRESENT: int = lib.KVR_PRESENT
NO_MEMORY: int = lib.KVR_NO_MEMORY
FAILED_CHUNK: int = lib.KVR_FAILED_CHUNK
CANCELED: int = lib.KVR_CANCELED
NO_QUOTA: int = lib.KVR_NO_QUOTA

CENTURY = 100 * 365.25 * 86400.0

HEALTHY, CONNECTING, FAILED = "healthy", "connecting", "failed"
HEALTH = {lib.KVR_HEALTHY: HEALTHY, lib.KVR_CONNECTING: CONNECTING, lib.KVR_FAILED: FAILED}

Self = TypeVar("Self", bound="Closing")


class Result(NamedTuple):
    """What became of a request. outcomes: for each chunk of a transfer what became of it (DELIVERED, ...)."""

    chunks: int
    tokens: int
    from_l2: int
    status: int
    outcomes: Optional[bytes] = None

    @property
    def complete(self) -> bool:
        """All of a transfer's chunks ended well."""
        return self.status == 0

    def leading(self) -> int:
        """How many chunks of a RETRIEVE are in our memory from the first one on."""
        count = 0
        for outcome in self.outcomes or b"":
            if outcome not in (DELIVERED, SKIPPED):
                break
            count += 1
        return count


class Info(NamedTuple):
    chunk_tokens: int
    chunks_max: int
    in_flight: int
    lock_seconds: int
    boot_id: int
    reconnects: int
    server: str
    tenant: str
    driver: str


class Closing:
    """A handle: a context manager whose close() may come twice."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def ns(timeout: Optional[float]) -> int:
    """Seconds to the library's nanoseconds, where 0 means its default. More than a century, or infinity, is a
    century."""
    return 0 if timeout is None else max(1, int(min(timeout, CENTURY) * 1e9))


def until_ns(timeout: Optional[float]) -> Optional[int]:
    """When that time is up; None: never."""
    return None if timeout is None or timeout > CENTURY else time.monotonic_ns() + int(timeout * 1e9)


def encoded(text: str) -> bytes:
    """What would end at a NUL in C is refused: two names must not become one."""
    if not isinstance(text, str):
        raise TypeError(f"a text is needed, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL in it")
    return text.encode()


def text_of(text: Optional[str]) -> Any:
    return ffi.NULL if text is None else ffi.new("char[]", encoded(text))


def failed(code: int) -> KvrailError:
    return KvrailError(-code, words())


def result(code: int, out: Any, outcomes: Any) -> Result:
    if code:
        raise KvrailError(-code, ffi.string(out.text).decode("utf-8", "replace"), out.status)
    return Result(out.chunks, out.tokens, out.from_l2, out.status, bytes(ffi.buffer(outcomes)) if outcomes else None)
