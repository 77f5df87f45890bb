"""Checks a user can run: losslessness and settings."""
