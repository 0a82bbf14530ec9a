"""kvrail: client of the KV-cache server for LLM inference. kvrail.sglang, kvrail.vllm and kvrail.tensorrt_llm are
connectors."""
from ._tokens import History, Tokens
from .client import Client, Mark, Memory, Registration, Session
from .errors import KvrailError
from .memory import LAYOUTS, Extent, Layout, Plane, address_of, extent
from .results import (
    CANCELED,
    CONNECTING,
    DELIVERED,
    FAILED,
    FAILED_CHUNK,
    HEALTHY,
    MISSING,
    NO_MEMORY,
    NO_QUOTA,
    NULL_BLOCK,
    PRESENT,
    SKIPPED,
    STORED,
    Info,
    Result,
)
from .ticket import Ticket

__version__ = "0.1.0"

__all__ = [
    "CANCELED",
    "CONNECTING",
    "DELIVERED",
    "FAILED",
    "FAILED_CHUNK",
    "HEALTHY",
    "LAYOUTS",
    "MISSING",
    "NO_MEMORY",
    "NO_QUOTA",
    "NULL_BLOCK",
    "PRESENT",
    "SKIPPED",
    "STORED",
    "Client",
    "Extent",
    "History",
    "Info",
    "KvrailError",
    "Layout",
    "Mark",
    "Memory",
    "Plane",
    "Registration",
    "Result",
    "Session",
    "Ticket",
    "Tokens",
    "address_of",
    "extent",
]
