"""Length of the passes that read a prompt while weights come from disk."""

STREAMED_CHUNK = 512
"""Tokens of a prefill pass that reads all streamed weights once, and can be stopped inside.

Its buffers take 14 MB more than those for 256 tokens (1.1B body)."""
