"""Verification rules: which drafted tokens are accepted, and the token that follows them."""
