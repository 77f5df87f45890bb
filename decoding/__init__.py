"""Speculative decoding over token ids and logits. Knows no engine and no screen."""
