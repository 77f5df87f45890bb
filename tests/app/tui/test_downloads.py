"""Downloads in the background: progress in the store, stopping, resuming, and what fails."""

import time
from collections.abc import Callable

import pytest

from app.paths import Paths
from app.settings.in_effect import Preferences
from app.tui.downloads import Downloads, progress_words
from app.tui.store import Store
from backends.base import SpecchatError
from models.hub import HubSettings
from models.hub.progress import Phase, Progress
from models.reference import HubReference, Reference, on_hub, resolve
from tests.fixtures.local_hub import LocalHub

REPOSITORY = "bartowski/SmolLM2-360M-Instruct-GGUF"
FILE = "SmolLM2-360M-Instruct-Q4_K_M.gguf"
CONTENT = b"GGUF" + bytes(3_000_000)
PATIENCE_SECONDS = 120.0


@pytest.fixture
def hub(local_hub: LocalHub) -> LocalHub:
    local_hub.repositories[REPOSITORY] = {FILE: CONTENT}
    return local_hub


@pytest.fixture
def store() -> Store:
    return Store(Preferences(Paths.of_this_user().settings))


def small() -> HubReference:
    return on_hub("smollm2-360m", Paths.of_this_user().models)


def settings() -> HubSettings:
    return HubSettings.of_environment(Paths.of_this_user().downloads)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end


def failed(downloads: Downloads, store: Store) -> list[tuple[str, SpecchatError]]:
    """What has failed once none runs any more."""
    told: list[tuple[str, SpecchatError]] = []
    until(lambda: bool(told.extend(downloads.update()) or not store.downloads))
    return told


def test_a_download_is_stopped_and_resumed(hub: LocalHub, store: Store) -> None:
    hub.pause_at = 1_000_000
    downloads = Downloads(store)
    done: list[str] = []
    downloads.start(small(), settings(), lambda: done.append("stopped"))
    assert hub.paused.wait(PATIENCE_SECONDS)
    until(lambda: downloads.update() == [] and "%" in store.downloads.get("smollm2-360m", ""))
    assert downloads.stop("smollm2-360m")
    assert not downloads.stop("another")
    hub.pause_at = None
    hub.released.set()
    assert failed(downloads, store) == []
    assert done == []

    downloads.start(small(), settings(), lambda: done.append("small"))
    downloads.start(small(), settings(), lambda: done.append("again"))  # it runs already
    assert failed(downloads, store) == []
    assert done == ["small"]
    assert str(hub.ranges()[-1]).startswith("bytes=")
    model = resolve("smollm2-360m", Paths.of_this_user().models)
    assert isinstance(model, Reference)
    assert model.path.read_bytes() == CONTENT


def test_a_hub_that_cannot_be_reached_is_an_error_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    downloads = Downloads(store)
    downloads.start(small(), settings(), lambda: None)
    ((name, error),) = failed(downloads, store)
    assert name == "smollm2-360m"
    assert "offline" in str(error)
    assert downloads.update() == []


@pytest.mark.parametrize(
    ("done", "rate", "words"),
    [
        (34, 0.55, "34 %, 2 min left"),
        (0, None, "0 %, downloading"),
        (99, 0.5, "99 %, 10 s left"),
        (10, 90 / 55.5, "10 %, 1 min left"),
        (50, 0.005, "50 %, 3 h left"),
    ],
)
def test_progress_is_told_as_fine_as_it_is_known(done: int, rate: float | None, words: str) -> None:
    assert progress_words(Progress(Phase.RECEIVING, done, 100, rate)) == words


def test_a_download_of_unknown_size_is_told_by_its_phase() -> None:
    assert progress_words(Progress(Phase.ASKING)) == "asking the hub…"
