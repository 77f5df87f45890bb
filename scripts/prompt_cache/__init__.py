"""Measurements of prompt caches."""
