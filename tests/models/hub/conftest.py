"""A hub with models, and settings that point at it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.hub import Downloaded, DownloadRequest, HubSettings, Progress, download
from tests.fixtures.local_hub import LocalHub

REPOSITORY = "maker/Small-GGUF"
FILE = "Small-Q4_K_M.gguf"
CONTENT = bytes(range(256)) * 20_000

Pull = Callable[..., tuple[Downloaded, list[Progress]]]


@pytest.fixture
def hub(local_hub: LocalHub) -> LocalHub:
    """One repository with two quantizations and what must never be chosen."""
    local_hub.repositories[REPOSITORY] = {
        "README.md": b"read me",
        FILE: CONTENT,
        "Small-Q8_0.gguf": CONTENT * 2,
        "Small-imatrix.gguf": b"matrix",
    }
    return local_hub


@pytest.fixture
def settings(hub: LocalHub, tmp_path: Path) -> HubSettings:
    """Few attempts, so that failures come at once."""
    return HubSettings(
        hub.endpoint,
        tmp_path / "cache",
        tmp_path / "receipts.json",
        timeout=60.0,
        attempts=2,
        first_wait=0.01,
    )


@pytest.fixture
def pull(settings: HubSettings) -> Pull:
    """Downloads to the end: pull("Q8_0") -> the result and every progress."""

    def run(
        wanted: str | None = None, repository: str = REPOSITORY, settings: HubSettings = settings
    ) -> tuple[Downloaded, list[Progress]]:
        seen: list[Progress] = []
        steps = download(DownloadRequest(repository, wanted), settings)
        while True:
            try:
                seen.append(next(steps))
            except StopIteration as end:
                return end.value, seen

    return run


def part_of(settings: HubSettings) -> Path:
    """The only part in the cache."""
    (part,) = settings.folder(REPOSITORY).glob("blobs/*.incomplete")
    return part
