"""Measures the server: its overhead, other servers beside it, and thousands of requests."""
