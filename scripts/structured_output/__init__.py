"""Measures structured output."""
