"""Drafting while the target verifies: the next round, for the likeliest outcomes of this one."""
