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
    """Tokens of a prefill pass, a power of two, by what a token uses of the largest matrix."""
    fitting = min(_WORK // max(largest_bytes, 1), STREAMED_CHUNK)
    return max(1 << (fitting.bit_length() - 1) if fitting else 0, _FEWEST)
