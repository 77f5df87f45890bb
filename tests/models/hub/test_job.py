"""A download on its own thread: watched, stopped, resumed."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from backends.base import DownloadError, DownloadStoppedError, UsageError
from models.hub import DownloadJob, DownloadRequest, HubSettings, Phase
from scripts.hostile_hub.server import HostileHub, Wire, serving
from tests.fixtures.local_hub import LocalHub
from tests.models.hub.conftest import CONTENT, FILE, REPOSITORY, part_of

PATIENCE_SECONDS = 60
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
    with pytest.raises(DownloadStoppedError, match="the downloaded part is kept"):
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


def test_stopped_while_the_listing_trickles(settings: HubSettings, tmp_path: Path) -> None:
    began = Event()

    def trickle(wire: Wire) -> None:
        wire.head(200, {"Content-Length": "1000000"})
        began.set()
        wire.trickle([b" " * 1000] * 1000, 0.01)

    hub = HostileHub(tmp_path, settings.cache, on_listing=trickle)
    with serving(hub):
        job = DownloadJob(REQUEST, replace(settings, endpoint=hub.endpoint))
        assert began.wait(PATIENCE_SECONDS)
        job.stop()
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


def test_two_that_share_a_file_do_not_write_the_same_part(
    hub: LocalHub, settings: HubSettings
) -> None:
    """A hub may list one part for two models: what one has checked the other must not append to."""
    shared = bytes(range(256)) * 2000
    names = ("Big-Q4_0-0000{}-of-00002.gguf", "Big-Q8_0-0000{}-of-00002.gguf")
    hub.repositories[REPOSITORY] = {
        file: shared if part == 2 else file.encode()
        for name in names
        for part in (1, 2)
        for file in [name.format(part)]
    }
    hub.pause_at, hub.pause_only = 1000, "Q4_0-00002"
    slow = DownloadJob(DownloadRequest(REPOSITORY, "Q4_0"), settings)
    assert hub.paused.wait(PATIENCE_SECONDS)
    quick = DownloadJob(DownloadRequest(REPOSITORY, "Q8_0"), settings).result()
    sizes = [len(names[0].format(1)), 1000]
    while slow.progress.done_bytes < sum(sizes):  # what the hub sent is written a moment later
        assert not slow.wait(0.01)
    parts = sorted(path.stat().st_size for path in settings.cache.rglob("*.incomplete"))
    assert parts == sizes
    hub.released.set()
    for done in (quick, slow.result()):
        second = done.path.with_name(done.path.name.replace("00001-of", "00002-of"))
        assert second.read_bytes() == shared


def test_nothing_is_written_to_the_terminal(
    settings: HubSettings, hub: LocalHub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.cuts = [1000]
    DownloadJob(REQUEST, settings).result()
    assert capfd.readouterr() == ("", "")
