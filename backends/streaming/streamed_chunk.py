"""Length of the passes that read a prompt while weights come from disk."""

STREAMED_CHUNK = 512
"""Most tokens of a prefill pass that reads all streamed weights once, and can be stopped inside.

Its buffers take 14 MB more than those for 256 tokens (1.1B body)."""

_FEWEST = 64
_WORK = 19_000_000_000
"""Tokens times bytes of the largest matrix, between two moments at which a pass can be stopped: on
two cores 40 tokens times 240 MB took about 0.3 s. A matrix that makes chunks shorter computes for
longer than it is read from disk."""


def streamed_chunk(largest_bytes: int) -> int:
    """Tokens of a prefill pass, by what a token uses of the largest matrix."""
    tokens = STREAMED_CHUNK
    while tokens > _FEWEST and tokens * largest_bytes > _WORK:
        tokens //= 2
    return tokens
