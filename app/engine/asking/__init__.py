"""A request and the answer to it, between the engine's thread and those that ask."""
