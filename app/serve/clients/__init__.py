"""What to paste into other programs so that they use the server."""
