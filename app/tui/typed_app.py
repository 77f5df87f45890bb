"""The type of `Widget.app`, which Textual leaves partly unknown."""

from typing import Any

from textual import getters
from textual.app import App

typed_app = getters.app[App[Any]](lambda: App)
"""For the class attribute `app` of a widget or screen."""
