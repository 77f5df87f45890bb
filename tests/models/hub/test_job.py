"""A download on its own thread: watched, stopped, resumed."""

from dataclasses import replace

import pytest

from backends.base import DownloadError, DownloadStoppedError, UsageError
from models.hub import DownloadJob, DownloadRequest, HubSettings, Phase
from tests.fixtures.local_hub import LocalHub
from tests.models.hub.conftest import CONTENT, FILE, REPOSITORY, part_of

PATIENCE_SECONDS = 20
REQUEST = DownloadRequest(REPOSITORY, "Q4_K_M")


def test_it_ends_in_what_was_downloaded(settings: HubSettings) -> None:
    job = DownloadJob(REQUEST, settings)
    assert job.result().path.read_bytes() == CONTENT
    assert not job.running
    assert job.progress.done_bytes == job.progress.total_bytes == len(CONTENT)


def test_it_ends_in_an_error(settings: HubSettings) -> None:
    with pytest.raises(UsageError, match="has no Q1_S"):
        DownloadJob(DownloadRequest(REPOSITORY, "Q1_S"), settings).result()
    with pytest.raises(DownloadError, match="none cannot be read"):
        DownloadJob(DownloadRequest("maker/none"), settings).result()


def test_stopped_and_resumed(hub: LocalHub, settings: HubSettings) -> None:
    hub.pause_at = 2_000_000
    job = DownloadJob(REQUEST, settings)
    assert hub.paused.wait(PATIENCE_SECONDS)
    assert job.running
    assert not job.wait(0)
    job.stop()
    hub.released.set()
    with pytest.raises(DownloadStoppedError, match="what came is kept"):
        job.result()
    kept = part_of(settings).stat().st_size
    assert 0 < kept < len(CONTENT)
    hub.pause_at = None
    again = DownloadJob(REQUEST, settings)
    assert again.result().path.read_bytes() == CONTENT
    assert hub.ranges() == [None, f"bytes={kept}-"]


def test_stopped_while_it_waits_for_the_connection(hub: LocalHub, settings: HubSettings) -> None:
    hub.cuts = [1000, 0]
    job = DownloadJob(REQUEST, replace(settings, first_wait=1000.0))
    while job.progress.phase is not Phase.WAITING:
        assert not job.wait(0.01)
    assert job.progress.done_bytes == 1000
    job.stop()
    assert job.wait(PATIENCE_SECONDS)
    with pytest.raises(DownloadStoppedError):
        job.result()


def test_two_of_the_same_do_not_meet(hub: LocalHub, settings: HubSettings) -> None:
    hub.pause_at = 1000
    first = DownloadJob(REQUEST, settings)
    assert hub.paused.wait(PATIENCE_SECONDS)
    with pytest.raises(DownloadError, match=f"{FILE} is being downloaded already"):
        DownloadJob(REQUEST, settings).result()
    other = DownloadJob(DownloadRequest(REPOSITORY, "Q8_0"), settings)
    hub.released.set()
    assert first.result().path.read_bytes() == CONTENT
    assert other.result().path.read_bytes() == CONTENT * 2


def test_nothing_is_written_to_the_terminal(
    settings: HubSettings, hub: LocalHub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.cuts = [1000]
    DownloadJob(REQUEST, settings).result()
    assert capfd.readouterr() == ("", "")
