"""HTTP: connections, checks, routes, bodies and streams."""
