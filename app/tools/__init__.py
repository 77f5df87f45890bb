"""Tools that a model may call: read-only ones, those of MCP servers, and calls in a reply."""
