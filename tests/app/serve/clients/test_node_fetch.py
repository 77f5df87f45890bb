"""Node's own fetch, which gives up after 300 s of silence, outlives a prompt that takes longer.

Time is scaled: 4 seconds for its 300, so that a heartbeat comes every 0.13 s.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from app.serve.server_options import Limits
from tests.app.serve.clients.conftest import PATIENCE_SECONDS
from tests.app.serve.clients.programs import found_node
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

_SCRIPT = Path(__file__).with_name("fetch.mjs")
_TIMEOUT_SECONDS = 4
"""Longer than a busy machine keeps a process waiting."""

_HEARTBEAT_SECONDS = _TIMEOUT_SECONDS / 30
_NEVER = 3600.0
_EIGHT_MINUTES = 48
"""Heartbeats in them. Six minutes would do, but Node looks at its clock once a second only."""

pytestmark = pytest.mark.slow


@contextmanager
def _fetching(address: str, comments: int) -> Iterator[subprocess.Popen[str]]:
    url = f"{address}/v1/chat/completions"
    command = [found_node().program, str(_SCRIPT), url, str(1000 * _TIMEOUT_SECONDS), str(comments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_waits_for_a_prompt_that_takes_eight_minutes(serve: Serve) -> None:
    gate = Event()
    server = serve(
        ScriptedModel(["at ", "last"], gate=gate),
        limits=Limits(heartbeat_seconds=_HEARTBEAT_SECONDS),
    )

    with _fetching(server.address, _EIGHT_MINUTES) as fetch:
        assert fetch.stdout is not None
        first = fetch.stdout.readline()
        gate.set()
        rest, _ = fetch.communicate(timeout=PATIENCE_SECONDS)

    assert (first, rest) == ("silent\n", "at last\n")


def test_without_heartbeats_it_gives_up(serve: Serve) -> None:
    gate = Event()
    server = serve(
        ScriptedModel(["at ", "last"], gate=gate), limits=Limits(heartbeat_seconds=_NEVER)
    )

    with _fetching(server.address, _EIGHT_MINUTES) as fetch:
        said, _ = fetch.communicate(timeout=PATIENCE_SECONDS)
    gate.set()

    assert said == "UND_ERR_BODY_TIMEOUT\n"
