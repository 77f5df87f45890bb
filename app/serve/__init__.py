"""The server: other programs ask the engine over HTTP, in the dialects that they know."""
