"""Choosing, importing and querying the engine that runs a model."""
