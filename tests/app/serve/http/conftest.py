"""Servers over models that follow a script."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.serve.limits import Limits
from app.serve.server import Server
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import serving

Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serves a scripted model: serve(model, key="", limits=None) -> Server."""
    with ExitStack() as held:

        def start(model: ScriptedModel, key: str = "", limits: Limits | None = None) -> Server:
            return held.enter_context(serving(tmp_path, opened(model), key=key, limits=limits))

        yield start
