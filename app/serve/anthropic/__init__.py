"""Anthropic's dialect of messages."""
