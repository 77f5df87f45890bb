"""Servers whose models write what each test wants."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.serve.server import Server
from app.serve.server_options import Limits
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import serving
from tests.fixtures.speaker import HERMES, Speaker

if TYPE_CHECKING:
    import openai

Serve = Callable[..., Server]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A server and its model."""

    server: Server
    model: Speaker

    def say(self, text: str) -> None:
        """Set the text of the next replies, to prompts that are rendered anew."""
        self.model.say(text)
        active = self.server.served.engine._active
        assert active is not None
        active.session.template._prompts.clear()
        self.model.prompts.clear()

    @property
    def prompt(self) -> str:
        """The prompt of the latest reply."""
        return self.model.prompts[-1]


@pytest.fixture
def client(spoken: Spoken) -> "Iterator[openai.OpenAI]":
    """OpenAI's own client of that server."""
    with asking(spoken.server) as made:
        yield made


def asking(server: Server) -> "openai.OpenAI":
    import openai

    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


_NUMBERS = count()


def question() -> str:
    """A question that was not asked before, so that its prompt is rendered anew."""
    return f"Question {next(_NUMBERS)}"


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    """A server whose model calls tools as Hermes does."""
    model = Speaker(HERMES)
    with serving(tmp_path_factory.mktemp("served"), opened(model)) as server:
        yield Spoken(server, model)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serves a scripted model: serve(model, key="", limits=None) -> Server."""
    with ExitStack() as held:

        def start(model: ScriptedModel, key: str = "", limits: Limits | None = None) -> Server:
            return held.enter_context(serving(tmp_path, opened(model), key=key, limits=limits))

        yield start
