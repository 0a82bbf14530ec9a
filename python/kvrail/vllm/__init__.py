"""vLLM: kv_connector "KvrailConnector" with kv_connector_module_path "kvrail.vllm" (docs/engines/vllm.md)."""
from .connector import KvrailConnector

__all__ = ["KvrailConnector"]
