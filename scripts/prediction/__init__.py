"""Measures what knowing a reply in advance is worth."""
