"""Engines for a test, closed at its end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from tests.fixtures.scripted import ScriptedModel, opened

WORDS = [f"word{number} " for number in range(40)]
Start = Callable[..., Engine]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an engine on a scripted model or a file: start(model, draft="off", may_read=...)."""
    with ExitStack() as stack:

        def begin(
            model: ScriptedModel | Path | None = None, draft: str = "off", **ports: Any
        ) -> Engine:
            if isinstance(model, Path):
                ports["options"] = SessionOptions(str(model), draft=draft, threads=1)
            else:
                ports["open_session"] = opened(model or ScriptedModel(WORDS))
            options = ports.pop("options", SessionOptions(draft=draft))
            engine = Engine(options, Paths.of_this_user(), **ports)
            engine.start()
            stack.callback(engine.close, 30.0)
            return engine

        yield begin
