"""Checks that drafting leaves greedy replies and output distributions unchanged."""
