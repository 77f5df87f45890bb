"""Drafters: lookups, n-grams, drafter models, and drafters made of these."""
