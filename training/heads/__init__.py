"""Heads that can be trained: their computations, first weights and losses."""
