"""Drafts what a grammar leaves no choice about."""
