"""Downloads through the real client from a hub on this machine."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import DownloadError, HubUnreachableError
from models.hub import HubSettings, Phase
from models.hub import repository_cache as receipts
from models.hub.connection import mapped_errors
from models.hub.progress import Meter, hub_cache
from tests.fixtures.clock import Clock
from tests.fixtures.local_hub import COMMIT, LocalHub
from tests.models.hub.conftest import CONTENT, FILE, REPOSITORY, Pull, part_of


def test_a_model_comes_whole(hub: LocalHub, settings: HubSettings, pull: Pull) -> None:
    done, seen = pull()
    assert done.path.read_bytes() == CONTENT
    assert (done.commit, done.size_bytes, done.path.name) == (COMMIT, len(CONTENT), FILE)
    received = [one for one in seen if one.phase is Phase.RECEIVING]
    counts = [one.done_bytes for one in received]
    assert counts == sorted(counts)
    assert (counts[-1], received[-1].total_bytes) == (len(CONTENT), len(CONTENT))
    assert seen[-1].phase is Phase.CHECKING
    assert not list(settings.cache.rglob("*.incomplete"))


def test_a_file_of_another_program_gets_no_receipt(settings: HubSettings, pull: Pull) -> None:
    blobs = settings.folder(REPOSITORY) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / hashlib.sha256(CONTENT).hexdigest()).write_bytes(CONTENT)
    pull()
    assert not receipts.is_ours(settings.receipts, REPOSITORY, COMMIT, FILE)


def test_all_parts_of_a_split_model_come(hub: LocalHub, pull: Pull) -> None:
    names = [f"Q8_0/Big-Q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    hub.repositories["maker/Big"] = {name: name.encode() * 1000 for name in names}
    done, seen = pull("Q8_0", "maker/Big")
    assert done.path.name == "Big-Q8_0-00001-of-00003.gguf"
    for name in names:
        assert (done.path.parent / Path(name).name).read_bytes() == name.encode() * 1000
    assert {one.total_bytes for one in seen} == {None, done.size_bytes}


def test_a_cut_connection_is_taken_up_again(hub: LocalHub, pull: Pull) -> None:
    hub.cuts = [100_000, 2_000_000]
    done, seen = pull()
    assert done.path.read_bytes() == CONTENT
    assert hub.ranges() == [None, "bytes=100000-", "bytes=2100000-"]
    assert Phase.WAITING in {one.phase for one in seen}


def test_a_download_that_failed_goes_on_where_it_stopped(
    hub: LocalHub, settings: HubSettings, pull: Pull
) -> None:
    hub.cuts = [300_000, 0, 0]
    with pytest.raises(HubUnreachableError, match="cannot be reached"):
        pull()
    assert part_of(settings).stat().st_size == 300_000
    hub.asked.clear()
    done, seen = pull()
    assert hub.ranges() == ["bytes=300000-"]
    assert done.path.read_bytes() == CONTENT
    assert min(one.done_bytes for one in seen if one.phase is Phase.RECEIVING) > 300_000


def test_a_hub_in_trouble_is_asked_again(hub: LocalHub, settings: HubSettings, pull: Pull) -> None:
    hub.refusals["/resolve/"] = (503, {})
    with pytest.raises(HubUnreachableError, match="503"):
        pull()
    tried = [one for one in hub.asked if "/resolve/" in one.path]
    assert len(tried) == settings.attempts


def test_a_hub_that_knows_no_ranges(hub: LocalHub, pull: Pull) -> None:
    hub.cuts = [300_000]
    hub.ignores_ranges = True
    done, _ = pull()
    assert done.path.read_bytes() == CONTENT


def test_a_wrong_checksum(hub: LocalHub, settings: HubSettings, pull: Pull) -> None:
    hub.wrong = {FILE}
    with pytest.raises(DownloadError, match=f"{FILE} arrived damaged and was deleted"):
        pull()
    assert not [path for path in settings.folder(REPOSITORY).rglob("*") if path.is_file()]
    hub.wrong.clear()
    assert pull()[0].path.read_bytes() == CONTENT


def test_a_small_file_is_checked_too(hub: LocalHub, pull: Pull) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    hub.repositories["maker/Odd"] = files
    hub.wrong = {"config.json"}
    with pytest.raises(DownloadError, match=r"config\.json arrived damaged"):
        pull(None, "maker/Odd")


def test_an_answer_that_is_no_listing(hub: LocalHub, pull: Pull) -> None:
    for content in (b"<html>sign in</html>", b"[]", b"{}", b'{"id": "x", "sha": "../x"}'):
        hub.listings[REPOSITORY] = content
        with pytest.raises(DownloadError, match="gave an invalid answer"):
            pull()


@pytest.mark.slow
def test_a_silent_hub(hub: LocalHub, settings: HubSettings, pull: Pull) -> None:
    hub.pause_at = 1000
    with pytest.raises(HubUnreachableError, match="silent for 3 seconds"):
        pull(settings=replace(settings, timeout=3.0, attempts=1))
    assert part_of(settings).stat().st_size == 1000


def test_nobody_at_the_address(settings: HubSettings, pull: Pull) -> None:
    with pytest.raises(HubUnreachableError, match="cannot be reached"):
        pull(settings=replace(settings, endpoint="http://127.0.0.1:9"))


def test_too_little_room_is_told_before_anything_comes(
    hub: LocalHub, settings: HubSettings, pull: Pull
) -> None:
    hub.claimed_sizes[FILE] = 10**18
    with pytest.raises(DownloadError, match=r"needs 1000000\.0 TB: .* free below"):
        pull()
    assert hub.ranges() == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_disk_that_fills_up(settings: HubSettings) -> None:
    with (
        pytest.raises(DownloadError, match=r"the disk is full: .* free"),
        mapped_errors(REPOSITORY, settings),
    ):
        Path("/dev/full").write_bytes(CONTENT)


def test_the_token_goes_to_the_hub_alone(
    hub: LocalHub, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pull()
    tokens = {one.path.startswith("/storage/"): one.token for one in hub.asked}
    assert tokens == {False: "Bearer hf_secret", True: None}


def test_nothing_is_asked_but_what_is_needed(hub: LocalHub, pull: Pull) -> None:
    pull()
    resolve = f"/{REPOSITORY}/resolve/{COMMIT}/{FILE}"
    assert [(one.method, one.path) for one in hub.asked] == [
        ("GET", f"/api/models/{REPOSITORY}"),
        ("GET", resolve),
        ("GET", f"/storage/{REPOSITORY}/{FILE}"),
    ]
    assert not any("agent/" in one.user_agent for one in hub.asked)


@pytest.mark.parametrize("variable", [None, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_socket(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pull: Pull, variable: str | None
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    settings = HubSettings.of_environment(tmp_path / "receipts.json", offline=not variable)
    monkeypatch.setattr("socket.socket", lambda *_, **__: pytest.fail("a socket"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("a name is looked up"))
    with pytest.raises(HubUnreachableError, match="offline"):
        pull(settings=settings)
    assert hub.asked == []


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache() == Path("~/.cache/huggingface/hub").expanduser()
    places = {"XDG_CACHE_HOME": "huggingface/hub", "HF_HOME": "hub", "HF_HUB_CACHE": "."}
    for name, below in places.items():
        monkeypatch.setenv(name, str(tmp_path / name))
        assert hub_cache() == tmp_path / name / below
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert HubSettings.of_environment(tmp_path).endpoint == "https://huggingface.co"


def test_damaged_receipts_count_as_none(settings: HubSettings, pull: Pull) -> None:
    for content in ("[]", "{", json.dumps({f"{REPOSITORY}@{COMMIT}": 3})):
        settings.receipts.write_text(content)
        assert not receipts.is_ours(settings.receipts, REPOSITORY, COMMIT, FILE)
    pull()
    assert receipts.is_ours(settings.receipts, REPOSITORY, COMMIT, FILE)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, done=1_000, clock=clock)
    first = meter.add(0)
    assert (first.done_bytes, first.bytes_per_second, first.remaining_seconds) == (
        1_000,
        None,
        None,
    )
    for _ in range(100):
        clock.now += 1.0
        meter.add(10)
    progress = meter.add(0)
    assert (progress.done_bytes, progress.total_bytes) == (2_000, 10_000)
    assert progress.bytes_per_second == 10.0
    assert progress.remaining_seconds == 800.0
    for _ in range(1_000):
        clock.now += 0.01
        progress = meter.add(5)
    assert progress.bytes_per_second is not None
    assert abs(progress.bytes_per_second - 500.0) < 1.0


def test_waiting_is_not_counted_into_the_rate() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, clock=clock)
    clock.now += 1.0
    meter.add(1_000)
    waiting = meter.waiting()
    assert (waiting.phase, waiting.done_bytes) == (Phase.WAITING, 1_000)
    clock.now += 60.0
    meter.waiting()
    clock.now += 1.0
    assert meter.add(500).bytes_per_second == 500.0


def test_bytes_that_are_taken_back_leave_no_negative_rate() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, clock=clock)
    clock.now += 1.0
    meter.add(4_000)
    clock.now += 1.0
    back = meter.add(-4_000)
    assert (back.done_bytes, back.bytes_per_second) == (0, None)
    clock.now += 1.0
    assert meter.add(100).bytes_per_second == 100.0


REFUSALS = {
    "gated": (403, {"X-Error-Code": "GatedRepo"}, ["is gated", "HF_TOKEN", f"/{REPOSITORY}"]),
    "unauthorized": (401, {}, ["private", "HF_TOKEN", f"/{REPOSITORY}"]),
    "stale token": (
        401,
        {"X-Error-Message": "Invalid credentials in Authorization header"},
        ["does not know your token", "HF_TOKEN"],
    ),
    "forbidden": (403, {}, ["private", "HF_TOKEN"]),
    "missing": (404, {}, [f"has no {REPOSITORY}"]),
    "busy": (429, {"Retry-After": "37"}, ["too many requests", "in 37 seconds"]),
    "broken": (500, {}, ["500", "is resumed"]),
    "teapot": (418, {}, ["418"]),
}


@pytest.mark.parametrize("place", ["/api/models/", "/resolve/"])
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_explained(hub: LocalHub, pull: Pull, case: str, place: str) -> None:
    status, headers, words = REFUSALS[case]
    hub.refusals[place] = (status, headers)
    with pytest.raises(DownloadError) as refused:
        pull()
    for word in words:
        assert word in str(refused.value)


def test_a_repository_that_does_not_exist(pull: Pull) -> None:
    with pytest.raises(DownloadError, match="nobody/nothing cannot be read"):
        pull(None, "nobody/nothing")
    with pytest.raises(DownloadError, match="organization/name"):
        pull(None, "../../etc")


def test_names_that_steer_a_terminal_are_passed_over(hub: LocalHub, pull: Pull) -> None:
    hub.repositories["maker/Odd"] = {"\x1b[2J-Q8_0.gguf": b"odd", "Odd-Q4_0.gguf": b"weights"}
    assert pull(None, "maker/Odd")[0].path.name == "Odd-Q4_0.gguf"
