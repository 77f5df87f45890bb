"""Searching for the self-drafter recipe with the highest speedup."""
