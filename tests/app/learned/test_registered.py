"""The register of trained drafters: what each is bound to, and what became of its chats."""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.history.store import open_history, remove_chat
from app.learned import registered as register_module
from app.learned.registered import (
    MANIFEST,
    Registered,
    forget,
    found_here,
    named,
    of_file,
    register,
    registered,
)
from app.paths import Paths
from backends.base import UsageError
from backends.engines.backend_selection import LLAMACPP, MLX
from models.metadata.identity import fingerprint
from tests.fixtures.tiny.kinds import Pair, Tiny
from tests.fixtures.tiny.last_state import write_last_state


@pytest.fixture(autouse=True)
def _nothing_bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(register_module, "BUNDLED", tmp_path / "bundled")


@pytest.fixture
def model(tiny: Tiny, tmp_path: Path) -> Path:
    return shutil.copyfile(tiny("qwen3"), tmp_path / "mine.gguf")


def trained(paths: Paths, model: Path, name: str = "mine-hydra", **more: object) -> Registered:
    head = write_last_state(model.parent / "a run" / "trained", "hydra")
    files = [head / "config.json", head / "model.safetensors"]
    chats = more.pop("chats", ())
    own = {"method": "hydra", "engine": LLAMACPP, "made": "2026-11-27"} | more
    entry = Registered(name, target=fingerprint(model), model=model.name, **own)  # type: ignore[arg-type]
    return register(paths, entry, files, chats)  # type: ignore[arg-type]


def test_what_was_registered_is_found_for_its_model_alone(
    paths: Paths, model: Path, tiny: Tiny
) -> None:
    entry = trained(paths, model, acceptance=(0.6, 0.5, 0.4, 0.0))
    assert list(registered(paths)) == [entry]
    assert named(paths, "MINE-hydra") == of_file(entry.path) == entry
    assert entry.prior == pytest.approx(0.5)
    assert entry.words == "trained here on 2026-11-27"
    ((found, head),) = found_here(paths, model, LLAMACPP)
    assert (found, head.path, head.drafter.kind.word, head.misfit) == (
        entry, entry.folder, "hydra", ""
    )  # fmt: skip
    assert not list(found_here(paths, tiny("llama"), LLAMACPP))
    assert entry.refusal(model, MLX) == "it was trained with llamacpp, and mlx runs the model"
    other = entry.refusal(tiny("llama"), LLAMACPP)
    assert other == "it was trained for mine.gguf, not for llama.gguf"


def test_a_model_that_changed_since_is_told(paths: Paths, model: Path) -> None:
    trained(paths, model)
    with model.open("ab") as file:
        file.write(b"more")
    ((_, head),) = found_here(paths, model, LLAMACPP)
    assert head.misfit == "it was trained for mine.gguf before that file changed; train it anew"


@pytest.mark.skipif(os.name == "nt", reason="profiles are private there")
def test_all_of_it_is_readable_by_its_owner_alone(paths: Paths, model: Path) -> None:
    entry = trained(paths, model, chats=["1 2.5"])
    assert entry.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in entry.folder.iterdir()} == {0o600}


def test_chats_that_were_removed_since_are_missed(paths: Paths, model: Path) -> None:
    with closing(open_history(paths)) as history:
        first, second = (history.create("demo") for _ in range(2))
        entry = trained(paths, model, chats=history.marks())
        assert entry.words.endswith("learnt from your chats")
        assert "1 " not in (entry.folder.parent / MANIFEST).read_text().split("taught_by")[1]
        assert entry.missing(history.marks()) == 0
        remove_chat(history, second, paths)
        assert entry.missing(history.marks()) == 1
        history.restore(second)
        assert entry.missing(history.marks()) == 0
        remove_chat(history, first, paths)
        assert entry.missing([*history.marks(), f"{first} 99.0"]) == 1, "a new one of its number"


def test_two_registers_tell_nothing_of_a_chat_to_each_other(paths: Paths, model: Path) -> None:
    one, other = (trained(paths, model, name, chats=["1 2.5"]) for name in ("one", "other"))
    assert not set(one.taught_by) & set(other.taught_by)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"schema": 1}', '{"schema": 1, "method": 3, "acceptance": 7}', "{" * 999]
)
def test_damaged_manifests_are_passed_over(paths: Paths, model: Path, content: str) -> None:
    entry = trained(paths, model)
    (paths.heads / "damaged").mkdir()
    (paths.heads / "damaged" / MANIFEST).write_text(content)
    assert list(registered(paths)) == [entry]


def test_damaged_files_are_passed_over(paths: Paths, model: Path) -> None:
    entry = trained(paths, model)
    (entry.folder / "model.safetensors").write_bytes(b"{")
    assert not list(found_here(paths, model, LLAMACPP))


@pytest.mark.parametrize(
    ("name", "kept"), [("../Up x", "up-x"), ("Qwen3 8B-hydra", "qwen3-8b-hydra")]
)
def test_names_are_no_paths(name: str, kept: str, paths: Paths, model: Path) -> None:
    assert trained(paths, model, name).folder.parent == paths.heads / kept


def test_what_is_forgotten_leaves_nothing(paths: Paths, model: Path) -> None:
    entry = trained(paths, model)
    forget(paths, entry)
    assert not entry.folder.exists()


def test_what_comes_with_specchat_stays(paths: Paths, model: Path, tmp_path: Path) -> None:
    made = trained(paths, model)
    place = Path(shutil.move(made.folder, tmp_path / "bundled" / made.name))
    facts = json.loads((made.folder.parent / MANIFEST).read_text())
    del facts["folder"]
    (place / MANIFEST).write_text(json.dumps(facts))
    shutil.rmtree(paths.heads)
    (entry,) = registered(paths)
    assert entry.words == "comes with specchat"
    assert of_file(entry.path) == entry
    with pytest.raises(UsageError, match="cannot be removed"):
        forget(paths, entry)
    assert named(paths, "mine-hydra") == entry
    anew = trained(paths, model)
    assert [*registered(paths)] == [anew]  # in its place
    forget(paths, anew)
    assert [*registered(paths)] == [entry]


def test_a_file_for_llamacpp_is_its_path_there(paths: Paths, pair: Pair) -> None:
    model, head = pair("eagle3")
    made = Registered("e", "eagle3", fingerprint(model), model.name, LLAMACPP)
    entry = register(paths, made, [head])
    assert entry.path == entry.folder / head.name
    assert of_file(entry.path) == entry
    assert head.exists()
    ((_, found),) = found_here(paths, model, LLAMACPP)
    assert found.drafter.kind.word == "eagle3"
    facts = json.loads((entry.folder.parent / MANIFEST).read_text())
    assert facts["target"] == entry.target


class _KilledError(BaseException):
    pass


@dataclass
class Kill:
    """Ends a process at a change of the file system, as far as one can from within: all fail."""

    left: float = math.inf

    def __call__(self, event: str, _arguments: object) -> None:
        if event in {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}:
            self.left -= 1
            if self.left < 0:
                raise _KilledError


@pytest.fixture(scope="module")
def kill() -> Kill:
    made = Kill()
    sys.addaudithook(made)
    return made


def killed_at(kill: Kill, step: int, work: Callable[[], object]) -> bool:
    """Whether the work had not ended by then."""
    kill.left = step
    try:
        work()
    except _KilledError:
        return True
    finally:
        kill.left = math.inf
    return False


def content(entry: Registered) -> tuple[tuple[float, ...], set[bytes]]:
    return entry.acceptance, {file.read_bytes() for file in entry.folder.iterdir()}


@pytest.mark.slow
def test_a_kill_while_one_is_replaced_leaves_either_whole(
    paths: Paths, model: Path, tmp_path: Path, kill: Kill
) -> None:
    files = [tmp_path / "config.json", tmp_path / "model.safetensors"]

    def kept(text: str) -> Registered:
        for file in files:
            file.write_text(f"{text} {file.name}")
        facts = "hydra", fingerprint(model), model.name, LLAMACPP
        return register(paths, Registered("mine", *facts, acceptance=(len(text),)), files)

    new, step = content(kept("newer")), 0
    old = content(kept("old"))
    while killed_at(kill, step, lambda: kept("newer")):
        (entry,) = registered(paths)
        assert content(entry) in (old, new)
        step += 1
        assert content(kept("old")) == old
        assert len(list((paths.heads / "mine").iterdir())) == 2  # the manifest, and its files
    assert step > 8
    assert content(next(registered(paths))) == new


def test_a_kill_while_one_is_removed_leaves_it_whole_or_none(
    paths: Paths, model: Path, kill: Kill
) -> None:
    step, entry = 0, trained(paths, model)
    whole = content(entry)
    while killed_at(kill, step, lambda entry=entry: forget(paths, entry)):
        assert [content(one) for one in registered(paths)] in ([], [whole])
        step, entry = step + 1, trained(paths, model)
    assert step > 3
    assert not list(paths.heads.iterdir())
