"""Drafters, one package per family."""
