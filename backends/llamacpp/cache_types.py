"""Types of KV cache as llama.cpp numbers them, and its reasons against them."""

from llama_cpp import llama_cpp as api

from backends.base import CacheType

GGML_TYPES = {
    CacheType.F16: api.GGML_TYPE_F16,
    CacheType.Q8_0: api.GGML_TYPE_Q8_0,
    CacheType.Q4_0: api.GGML_TYPE_Q4_0,
}


def is_against_cache_type(reason: str) -> bool:
    """Whether the engine's reason for not opening a context is the type of its cache.

    It names the block size that does not divide the heads, or flash attention that a model lacks
    (llama_init_from_model).
    """
    return "cache type" in reason or "V cache" in reason
