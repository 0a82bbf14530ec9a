"""SGLang: the connector, and the launcher that SGLang finds it by (docs/engines/sglang.md)."""
from .connector import KvrailConnector, LayerwiseConnector, LoadMetadata, StoreFuture, StoreMetadata

__all__ = ["KvrailConnector", "LayerwiseConnector", "LoadMetadata", "StoreFuture", "StoreMetadata"]
