"""Status and live figures."""
