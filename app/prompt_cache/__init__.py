"""Prompt caches kept on disk across conversations and restarts."""
