"""TensorRT-LLM: connector_module "kvrail.tensorrt_llm" (docs/engines/tensorrt-llm.md)."""
from .connector import KvrailScheduler, KvrailWorker

__all__ = ["KvrailScheduler", "KvrailWorker"]
