"""A model on another machine, whose specchat verifies what is drafted here."""

from backends.remote.model import RemoteModel

__all__ = ["RemoteModel"]
