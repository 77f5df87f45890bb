"""Files of candidates: few at a time, and none left."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import DiskFullError, Model, UsageError
from backends.files.gguf_header import read_header
from models.self_draft import self_draft_store
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import CandidateFiles, SelfDrafts


@pytest.fixture
def target(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(layers=4))) as model:
        yield model


@pytest.fixture
def store(tmp_path: Path) -> SelfDrafts:
    return SelfDrafts(tmp_path / "self-drafts")


@pytest.fixture
def files(target: Model, store: SelfDrafts) -> Iterator[CandidateFiles]:
    with closing(CandidateFiles(store, target.info, lambda recipe: lambda done, total: None)) as it:
        yield it


def left(store: SelfDrafts) -> list[Path]:
    return list(store.folder.iterdir()) if store.folder.exists() else []


def test_there_is_one_candidate_beside_what_it_is_cut_from(
    files: CandidateFiles, store: SelfDrafts, target: Model
) -> None:
    with files.made(Recipe(None, (1,))) as path:
        assert read_header(path).integer("block_count") == 3
        assert left(store) == [path]
    assert left(store) == []
    with files.made(Recipe("q8_0")) as body:
        assert body.stat().st_size < target.info.path.stat().st_size
    with files.made(Recipe("q8_0", (1, 2))) as path:
        assert read_header(path).integer("block_count") == 2
        assert path.stat().st_size < body.stat().st_size
        assert sorted(left(store)) == sorted([body, path])
    with files.made(Recipe("q4_0")) as other:
        assert left(store) == [other]
    files.close()
    assert left(store) == []


def test_fewer_experts_need_no_file(
    files: CandidateFiles, store: SelfDrafts, target: Model
) -> None:
    with pytest.raises(UsageError, match="experts"), files.made(Recipe(experts=1)):
        pass
    with files.made(Recipe()) as path:
        assert path == target.info.path
    assert left(store) == []


def test_what_fails_inside_leaves_nothing(files: CandidateFiles, store: SelfDrafts) -> None:
    with pytest.raises(KeyboardInterrupt), files.made(Recipe("q8_0", (1,))):
        raise KeyboardInterrupt
    files.close()
    assert left(store) == []


def test_stopping_while_a_file_is_made_leaves_nothing(target: Model, store: SelfDrafts) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    stopped = CandidateFiles(store, target.info, lambda recipe: stop)
    with pytest.raises(KeyboardInterrupt), stopped.made(Recipe("q8_0", (1,))):
        pass
    assert left(store) == []


def test_room_is_looked_at_before(
    files: CandidateFiles, store: SelfDrafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = self_draft_store.shutil.disk_usage(store.folder.parent)._replace(free=1000)
    monkeypatch.setattr(self_draft_store.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFullError, match="too little disk space"), files.made(Recipe("q8_0")):
        pass
    assert left(store) == []
