"""Drafters that exist for one reply only."""
