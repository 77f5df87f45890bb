"""Replies that must match a schema or a grammar."""
