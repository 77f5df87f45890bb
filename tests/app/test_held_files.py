"""Files that another program holds open, as Windows refuses to delete or replace: nothing is lost.

There os.replace fails with error 5 and os.unlink with error 32, both as PermissionError; the same
is injected here. Afterwards the file is let go, and what was refused succeeds.
"""

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.chat.unsent import ComposerDraft
from app.history import History
from app.history.repair import repair
from app.learned.ngram_memory import NgramFile, NgramMemory
from app.paths import Paths
from backends.base import DownloadError, SpecchatError
from backends.base.safe_files import write_whole
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from models.bounded_files import change_object, read_object
from models.hub import DownloadRequest, HubSettings, download
from models.stores.available_models import remove
from models.stores.scan import Installed, Origin, hub_models
from tests.fixtures.damaged_chats import filled
from tests.fixtures.local_hub import LocalHub

CONTENT = b"GGUF" + bytes(1000)
Hold = Callable[..., set[str]]


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Lets files of these names be held; the set that is returned can be emptied."""
    names: set[str] = set()

    def refusing(call: Callable[..., Any], code: int, text: str) -> Callable[..., Any]:
        def run(*paths: Any, **options: Any) -> Any:
            for path in paths:
                if os.path.basename(os.fspath(path)) in names:
                    raise PermissionError(errno.EACCES, text, str(path), code)
            return call(*paths, **options)

        return run

    for name in ("unlink", "remove"):
        used = "The process cannot access the file because it is being used by another process"
        monkeypatch.setattr(os, name, refusing(getattr(os, name), 32, used))
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), 5, "Access is denied"))

    def held(*more: str) -> set[str]:
        names.update(more)
        return names

    return held


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")
    held = hold("file")
    with pytest.raises(PermissionError, match="denied"):
        write_whole(path, "new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
    held.clear()
    write_whole(path, "new")
    assert path.read_text() == "new"


def test_a_change_of_an_object_counts_in_this_process_alone(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "object.json"

    def add(key: str) -> dict[str, Any]:
        return change_object(path, lambda found: found | {key: 1})

    add("a")
    held = hold("object.json")
    assert add("b") == {"a": 1, "b": 1}
    assert read_object(path) == {"a": 1}
    held.clear()
    assert add("c") == read_object(path) == {"a": 1, "c": 1}


def test_what_ngram_learned_is_kept_for_the_next_save(tmp_path: Path, hold: Hold) -> None:
    file = NgramFile(tmp_path / "a.ngrams", "a" * 24, 100)
    memory = NgramMemory(file)
    memory.drafter.begin([], Sampler(SamplingSettings()))
    memory.drafter.commit(list(range(20)))
    held = hold("a.ngrams")
    memory.keep()
    memory.save()
    assert not file.path.exists()
    held.clear()
    memory.save()
    statistics = file.read()
    assert statistics is not None
    assert statistics.guess(list(range(10))) is not None


def test_unsent_texts_are_deleted_only_once_they_are_kept_elsewhere(hold: Hold) -> None:
    paths = Paths.of_this_user()

    def texts() -> list[str]:
        return sorted(file.read_text() for file in paths.data.glob("unsent*.txt"))

    windows = [ComposerDraft(paths), ComposerDraft(paths)]
    for window, text in zip(windows, ("one", "two"), strict=True):
        window.keep(text)
        window.close()
    held: set[str] = set()
    for names in (("unsent.txt",), ("unsent.txt", "unsent-2.txt")):
        held = hold(*names)
        again = ComposerDraft(paths)
        assert (again.left, texts()) == ("one\n\ntwo", ["one", "two"])
        again.keep("one\n\ntwo!")
        again.close()
    last = ComposerDraft(paths)
    held.clear()
    last.keep("one\n\ntwo!")
    assert texts() == ["one\n\ntwo!"]
    last.close()


def test_models_that_are_open_are_not_reported_as_removed(
    tmp_path: Path, hold: Hold, local_hub: LocalHub
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "own.gguf").write_bytes(CONTENT)
    settings = HubSettings(local_hub.endpoint, tmp_path / "cache", tmp_path / "receipts.json")
    local_hub.repositories["maker/One"] = {"One-Q4_K_M.gguf": CONTENT}
    local_hub.repositories["maker/Two"] = {
        f"Two-{name}.gguf": CONTENT + name.encode() for name in ("Q4_K_M", "Q8_0")
    }
    for repository, wanted in (("One", "Q4_K_M"), ("Two", "Q4_K_M"), ("Two", "Q8_0")):
        list(download(DownloadRequest(f"maker/{repository}", wanted), settings))
    own = Installed("own", folder / "own.gguf", len(CONTENT), Origin.MODELS_FOLDER)
    found = {model.name: model for model in hub_models(settings.cache)}
    models = [own, found["maker/One:Q4_K_M"], found["maker/Two:Q8_0"]]  # two: one file of several
    held = hold(*(path.name for path in tmp_path.rglob("*") if path.is_file()))
    for model in models:
        contents = model.path.resolve()
        with pytest.raises(SpecchatError, match="cannot remove"):
            remove(model, settings, folder)
        assert contents.read_bytes().startswith(CONTENT)
    held.clear()
    for model in models:
        remove(model, settings, folder)
    assert [model.name for model in hub_models(settings.cache)] == ["maker/Two:Q4_K_M"]
    assert not own.path.exists()


def test_a_download_that_cannot_be_put_in_place_goes_on(
    tmp_path: Path, hold: Hold, local_hub: LocalHub
) -> None:
    settings = HubSettings(local_hub.endpoint, tmp_path / "cache", tmp_path / "receipts.json")
    local_hub.repositories["maker/One"] = {"One-Q4_K_M.gguf": CONTENT}
    request = DownloadRequest("maker/One", "Q4_K_M")
    list(download(request, settings))
    (content,) = settings.cache.glob("models--*/blobs/*")
    content.write_bytes(b"another's")
    held = hold(content.name)
    local_hub.asked.clear()
    with pytest.raises(DownloadError, match="cannot write below"):
        list(download(request, settings))
    received = list(local_hub.ranges())
    assert received
    held.clear()
    list(download(request, settings))
    assert content.read_bytes() == CONTENT
    assert list(local_hub.ranges()) == received


def test_a_repair_that_cannot_replace_the_chats_leaves_their_log(
    tmp_path: Path, hold: Hold
) -> None:
    path = tmp_path / "chats.sqlite3"
    log = path.with_name(f"{path.name}-wal")
    texts = filled(path, Random(1), in_log=True)
    before = path.read_bytes(), log.read_bytes()
    for name in (path.name, log.name):
        held = hold(name)
        with pytest.raises(PermissionError):
            repair(path, 1.0, is_ours=True)
        assert (path.read_bytes(), log.read_bytes()) == before
        held.clear()
    assert repair(path, 1.0, is_ours=True)
    with closing(History.open(path)) as history:
        chats = history.chats(limit=99)
        found = {one.text for chat in chats for one in history.messages(chat.number)}
    assert found == set(texts.values())
