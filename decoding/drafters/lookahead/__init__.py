"""Lookahead and Jacobi decoding: the target model drafts for itself beside its own tokens."""
