"""Drafters made of other drafters: cascades and votes."""
