"""Answers of the engine on the event loop of the server, one after the other."""
