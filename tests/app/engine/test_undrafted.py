"""A drafter that cannot be had: the reply comes all the same, undrafted, with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from app.engine.engine import Engine
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from tests.app.conftest import Launch, Specchat
from tests.app.engine.test_engine import request, text_of

pytestmark = pytest.mark.usefixtures("llamacpp")


ASK = ("ask", "hi", "--max-tokens", "2", "--temperature", "0")


def check_undrafted(ended: CompletedProcess[str], *told: str) -> None:
    """The reason must stand on standard error and in the JSON object."""
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["text"]
    assert report["stats"]["drafted"] == 0
    assert (report["draft"]["state"], report["draft"]["drafters"]) == ("off", [])
    for part in told:
        assert part in report["draft"]["reason"]
    assert report["draft"]["reason"] in ended.stderr


@pytest.mark.slow
def test_a_home_below_a_regular_file(
    specchat: Specchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "file" / "home"))
    check_undrafted(specchat(*ASK, "--draft", "self", "--json"), "cannot be kept")


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_nothing_half_written(launch: Launch, home: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000_000,) * 2)"
    process = launch(*ASK, "--draft", "self", "--json", first=limit)
    out, err = process.communicate(b"")
    ended = CompletedProcess((), process.returncode, out.decode(), err.decode())
    check_undrafted(ended, "no drafter could be made")
    kept = sorted(path.name for path in (home / "cache" / "self-drafts").iterdir())
    assert kept == ["hashes.json"]


@pytest.mark.slow
def test_a_chain_goes_on_without_the_drafter_that_failed(
    specchat: Specchat, bare_home: Path
) -> None:
    bare_home.mkdir()
    (bare_home / "cache").touch()
    ended = specchat(*ASK, "--draft", "lookup,self", "--json")
    draft = json.loads(ended.stdout)["draft"]
    assert (draft["state"], draft["drafters"]) == ("on", ["lookup"])
    assert "cannot be kept" in draft["reason"]


@pytest.mark.slow
def test_a_drafter_of_another_vocabulary(
    specchat: Specchat, tiny_gguf: Callable[..., Path]
) -> None:
    path = tiny_gguf("other.gguf")
    ended = specchat(*ASK, "--draft", str(path), "--json")
    check_undrafted(ended, "vocabulary mismatch", "token 0 is '<|endoftext|>'", "'tok0'")


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 20, 1_000_000, 50_000_000])
def test_a_damaged_drafter(specchat: Specchat, demo_file: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "drafter.gguf"
    with demo_file.open("rb") as whole:
        path.write_bytes(whole.read(kept))
    check_undrafted(specchat(*ASK, "--draft", str(path), "--json"), path.name)


def test_a_missing_drafter(specchat: Specchat, tmp_path: Path) -> None:
    path = tmp_path / "missing.gguf"
    ended = specchat(*ASK, "--draft", str(path), "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"no file {path}" in ended.stderr


@pytest.mark.slow
def test_a_drafter_that_cannot_be_downloaded(specchat: Specchat) -> None:
    ended = specchat(*ASK, "--draft", "124m", "--offline", "--json")
    check_undrafted(ended, "gpt2-124m is not on this machine", "offline")


@pytest.mark.slow
def test_auto_drafts_in_place_of_a_missing_one_and_the_app_is_told() -> None:
    options = SessionOptions(model="demo", draft="124m", offline=True)
    engine = Engine(options, Paths.of_this_user())
    engine.start()
    try:
        answered = engine.ask(request(max_tokens=4))
        text_of(answered)
        assert answered.error is None
        status = engine.status
        assert "gpt2-124m is not on this machine" in str(status.error)
        assert (engine.draft, status.phase) == ("auto", Phase.READY)
        assert status.loaded is not None
        assert "lookup" in status.loaded.drafters
        names = ", ".join(status.loaded.drafters)
        assert str(status.error).endswith(f"; auto drafts instead: {names}")
    finally:
        assert engine.close(10.0)
