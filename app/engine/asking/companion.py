"""What runs beside the app on the same engine."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from app.engine.engine import Engine

Companion = Callable[[Engine], AbstractContextManager[str]]
"""Runs beside an engine as long as its `with` lasts, and tells the user where it is found."""
