"""What a person wrote is theirs alone, whatever made it, and what is not ours stays as it is."""

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.unsent import ComposerDraft
from app.engine.session_opening import open_session
from app.engine.status import crash_report
from app.history import History
from app.learned.acceptance_memory import TrialResult, TrialResults
from app.loading.session_options import SessionOptions
from app.paths import Paths, tighten
from backends.base import UsageError
from tests.app.conftest import Specchat
from tests.fixtures.scripted import ScriptedModel

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")


def modes(folder: Path) -> dict[str, int]:
    """Modes of all below a folder that others may use in any way."""
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}
    return {str(path.relative_to(folder)): mode for path, mode in found.items() if mode & 0o077}


@pytest.mark.slow
def test_a_whole_session_leaves_nothing_to_others(bare_home: Path, specchat: Specchat) -> None:
    usual = os.umask(0)
    try:
        answer = ("ask", "--model", "demo", "--draft", "ngram", "--max-tokens", "8", "hi")
        assert specchat(*answer).returncode == 0
        paths = Paths.of_this_user()
        ComposerDraft(paths).keep("half a question")
        crash_report(ValueError("a secret"), paths)
        with closing(History.open(paths.history)) as history:
            history.add(history.create("demo"), "user", "hi")
            assert (paths.data / "chats.sqlite3-wal").exists()
            assert modes(bare_home) == {}
        TrialResults(ScriptedModel(["a"]).info, paths).add("key", TrialResult(0.5))
        assert specchat("chats", "list").returncode == 0
    finally:
        os.umask(usual)
    assert paths.last_model.exists()
    assert len(list(bare_home.rglob("*"))) > 10
    assert modes(bare_home) == {}


def test_what_earlier_versions_left_is_tightened(home: Path, specchat: Specchat) -> None:
    paths = Paths.of_this_user()
    ours = [paths.unsent, paths.last_error, paths.settings, paths.retrieval / "v" / "a.segment"]
    models = [paths.models, paths.models / "mine.gguf"]
    for path in (*ours, models[1]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o644)
    for path in (home, paths.config, paths.data, paths.cache, paths.retrieval, models[0]):
        path.chmod(0o755)
    program = paths.cuda_build / "kit" / "bin" / "ninja"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    specchat("--version")
    left = modes(home)
    assert stat.S_IMODE(program.stat().st_mode) == 0o700, "a program stays one"
    assert set(left) == {".", *(str(path.relative_to(home)) for path in models)}


def test_folders_that_hold_anything_else_stay_as_they_are(tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    for path in (shared, target):
        path.mkdir()
        path.chmod(0o755)
    (shared / "theirs.txt").touch(0o644)
    (target / "unsent.txt").touch(0o644)
    (shared / "recipes").symlink_to(target)
    (tmp_path / "link").symlink_to(target)
    tighten(Paths(shared, tmp_path / "link", tmp_path / "none"))
    assert set(modes(shared)) == {".", "theirs.txt", "recipes"}
    assert set(modes(target)) == {"."}  # the folder a link names is the user's choice


def test_a_home_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, specchat: Specchat, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "file"))
    listed = specchat("chats", "list")
    assert (listed.returncode, listed.stdout) == (1, "")
    assert "cannot open the chats" in listed.stderr
    assert specchat("ask", "--max-tokens", "0", "hi").returncode == 2


def test_what_a_person_put_beside_ours_is_no_leftover(home: Path) -> None:
    paths = Paths.of_this_user()
    left = paths.cache / "states" / ".a.state.4194305"
    theirs = [paths.models / ".notes.4194305", paths.config / ".mine.4194305"]
    for path in (left, *theirs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1.0, 1.0))
    assert left.is_relative_to(paths.saved_states)
    with pytest.raises(UsageError):
        open_session(SessionOptions(model="nobody-knows-this"), paths, lambda _: None)
    assert not left.exists()
    assert all(path.exists() for path in theirs)
