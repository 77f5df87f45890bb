"""What lies in the cache is found by the client of the hub, with and without links."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from models.hub import HubSettings, Phase
from models.hub import repository_cache as receipts
from models.stores.available_models import remove
from models.stores.scan import hub_models
from tests.fixtures.local_hub import COMMIT, LocalHub
from tests.models.hub.conftest import CONTENT, FILE, REPOSITORY, Pull

FOLDER = "mlx-community/Small"
FILES = {
    "config.json": b'{"a": 1}',
    "generation_config.json": b'{"a": 1}',  # the same content twice
    "model.safetensors": b"weights" * 1000,
    "tokenizer.model": b"tokens",
    "chat_template.jinja": b"{{ messages }}",
}
NESTED = "maker/Nested"
PART = "Q8_0/Deep-Q8_0-0000{}-of-00002.gguf"


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the cache's disk has links; the client has a switch for one that has not."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", not request.param)
    return request.param


@pytest.fixture(autouse=True)
def _repositories(hub: LocalHub) -> None:
    others = ("tokenizer.py", "README.md", "original/model.safetensors", "pytorch_model.bin")
    hub.repositories[FOLDER] = FILES | dict.fromkeys(others, b"import os")
    hub.repositories[NESTED] = {PART.format(part): b"part %d" % part * 1000 for part in (1, 2)}


def _theirs(repository: str, file: str, settings: HubSettings, revision: str | None = None) -> Path:
    return Path(
        huggingface_hub.hf_hub_download(
            repository, file, revision=revision, cache_dir=settings.cache, local_files_only=True
        )
    )


def test_the_client_finds_what_specchat_brought(
    hub: LocalHub, settings: HubSettings, pull: Pull, links: bool
) -> None:
    pulled = [pull(), pull(None, FOLDER), pull("Q8_0", NESTED)]
    assert receipts.is_ours(settings.receipts, REPOSITORY, COMMIT, FILE)
    hub.asked.clear()
    expected = {
        (REPOSITORY, FILE): CONTENT,
        **{(FOLDER, name): content for name, content in FILES.items()},
        **{(NESTED, name): content for name, content in hub.repositories[NESTED].items()},
    }
    for (repository, file), content in expected.items():
        for revision in (None, COMMIT):
            path = _theirs(repository, file, settings, revision)
            assert path.read_bytes() == content
            assert path.is_symlink() == links
    scanned = huggingface_hub.scan_cache_dir(settings.cache)
    assert not scanned.warnings
    files = {(one.repo_id, one.nb_files) for one in scanned.repos}
    # A content that two files have is one file where there are links.
    assert files == {(REPOSITORY, 1), (FOLDER, 4 if links else 5), (NESTED, 2)}
    assert [done.path.exists() for done, _ in pulled] == [True] * 3
    assert hub.asked == []


def test_what_is_there_is_checked_and_does_not_come_again(
    hub: LocalHub, pull: Pull, links: bool
) -> None:
    first = [pull()[0], pull(None, FOLDER)[0]]
    hub.asked.clear()
    (again, seen), (folder, _) = pull("q4_k_m"), pull(None, FOLDER)
    assert [again, folder] == first
    assert {one.path for one in hub.asked} == {
        f"/api/models/{name}" for name in (REPOSITORY, FOLDER)
    }
    assert [one.done_bytes for one in seen if one.phase is Phase.CHECKING][-1] == len(CONTENT)


def test_what_was_damaged_since_comes_again(
    hub: LocalHub, settings: HubSettings, pull: Pull, links: bool
) -> None:
    path = pull()[0].path
    path.resolve().write_bytes(CONTENT[::-1])
    assert pull()[0].path.read_bytes() == CONTENT
    assert len(hub.ranges()) == 2


def test_it_takes_its_room_once_and_is_removed_whole(
    settings: HubSettings, pull: Pull, links: bool
) -> None:
    pull(None, FOLDER)
    pull()
    sizes = [path.lstat().st_size for path in settings.cache.rglob("*") if path.is_file()]
    assert sum(sizes) < len(CONTENT) + 20_000
    assert all(receipts.is_ours(settings.receipts, FOLDER, COMMIT, name) for name in FILES)
    for model in list(hub_models(settings.cache)):
        remove(model, settings, settings.cache)
    assert list(settings.cache.glob("models--*")) == []


def test_a_link_within_the_cache_is_a_content(
    hub: LocalHub, settings: HubSettings, pull: Pull
) -> None:
    """The client keeps contents that repositories share in one place, with links to it."""
    blob = pull()[0].path.resolve()
    shared = settings.cache / "blobs" / "12" / blob.name
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    assert pull()[0].path.read_bytes() == CONTENT
    assert len(hub.ranges()) == 1
    assert blob.is_symlink()


def test_program_code_and_what_is_not_read_is_not_downloaded(pull: Pull) -> None:
    assert sorted(path.name for path in pull(None, FOLDER)[0].path.iterdir()) == sorted(FILES)


def test_backup_programs_pass_the_cache_over(settings: HubSettings, pull: Pull) -> None:
    pull()
    tag = settings.cache / "CACHEDIR.TAG"
    assert tag.read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    tag.write_text("mine")
    pull()
    assert tag.read_text() == "mine"
