"""Structured output: which tokens may follow, at every position of a reply."""
