"""Only what specchat brought is removed."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import SpecchatError, UsageError
from models.hub import DownloadRequest, HubSettings, download
from models.stores.available_models import remove
from models.stores.scan import Installed, Origin, hub_models
from tests.fixtures.local_hub import LocalHub

CONTENT = b"GGUF" + bytes(1000)
REPOSITORY = "maker/Small"
MODELS = Path("models")


@pytest.fixture
def settings(local_hub: LocalHub, tmp_path: Path) -> HubSettings:
    local_hub.repositories[REPOSITORY] = {
        "Small-Q4_K_M.gguf": CONTENT,
        "Small-Q8_0-00001-of-00002.gguf": CONTENT * 2,
        "Small-Q8_0-00002-of-00002.gguf": CONTENT * 3,
    }
    local_hub.repositories["mlx-community/Small"] = {
        "config.json": b'{"a": 1}',
        "model.safetensors": CONTENT,
    }
    # The cache may be reached through a link; the client resolves it.
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    return HubSettings(local_hub.endpoint, tmp_path / "cache", tmp_path / "receipts.json")


def _pull(settings: HubSettings, repository: str, wanted: str | None = None) -> None:
    for _ in download(DownloadRequest(repository, wanted), settings):
        pass


def _names(settings: HubSettings) -> dict[str, Installed]:
    return {model.name: model for model in hub_models(settings.cache)}


def test_one_quantization_leaves_the_other(settings: HubSettings) -> None:
    _pull(settings, REPOSITORY, "Q4_K_M")
    _pull(settings, REPOSITORY, "Q8_0")
    found = _names(settings)
    remove(found["maker/Small:Q8_0"], settings, MODELS)
    assert list(_names(settings)) == ["maker/Small:Q4_K_M"]
    assert len(list(settings.folder(REPOSITORY).glob("blobs/*"))) == 1
    remove(found["maker/Small:Q4_K_M"], settings, MODELS)
    assert not settings.folder(REPOSITORY).exists()


def test_a_repository_with_the_same_commit_stays(
    local_hub: LocalHub, settings: HubSettings
) -> None:
    local_hub.repositories["maker/Copy"] = {"Copy-Q4_K_M.gguf": CONTENT}
    names = {"maker/Small", "maker/Copy"}
    for name in names:  # the client takes the first it comes across, so each is removed once
        for one in names:
            _pull(settings, one, "Q4_K_M")
        remove(_names(settings)[f"{name}:Q4_K_M"], settings, MODELS)
        assert {one.partition(":")[0] for one in _names(settings)} == names - {name}


def test_a_folder_goes_whole(settings: HubSettings) -> None:
    _pull(settings, "mlx-community/Small")
    remove(_names(settings)["mlx-community/Small"], settings, MODELS)
    assert not settings.folder("mlx-community/Small").exists()


def test_what_another_program_downloaded_stays(settings: HubSettings) -> None:
    _pull(settings, REPOSITORY, "Q4_K_M")
    foreign = replace(settings, receipts=settings.receipts.with_name("none.json"))
    (model,) = _names(settings).values()
    with pytest.raises(UsageError, match="was downloaded by another program"):
        remove(model, foreign, MODELS)
    assert model.path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        *((one, f"it belongs to {one}") for one in (Origin.LM_STUDIO, Origin.LLAMA_CPP)),
        (Origin.OLLAMA, "it belongs to Ollama"),
        (Origin.BUNDLED, "it is a part of specchat"),
    ],
)
def test_what_is_not_the_users_is_left_alone(
    origin: Origin, why: str, settings: HubSettings, tmp_path: Path
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(CONTENT)
    with pytest.raises(UsageError, match=why):
        remove(Installed("model", file, len(CONTENT), origin), settings, MODELS)
    assert file.exists()


def test_the_models_folder(settings: HubSettings, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    parts = [folder / f"Big-0000{part}-of-00002.gguf" for part in (1, 2)]
    target, link, tree = tmp_path / "target.gguf", folder / "link.gguf", folder / "mlx"
    for file in (*parts, target):
        file.write_bytes(CONTENT)
    link.symlink_to(target)
    (tree / "below").mkdir(parents=True)
    for path in (parts[0], link, tree):
        remove(Installed("any", path, 1, Origin.MODELS_FOLDER), settings, folder)
    assert list(folder.iterdir()) == []
    assert target.exists()
    with pytest.raises(SpecchatError, match="cannot remove any"):
        remove(Installed("any", link, 1, Origin.MODELS_FOLDER), settings, folder)


@pytest.mark.parametrize("model", ["linked/Theirs.gguf", "below/linked/deeper/Theirs.gguf"])
def test_what_lies_behind_a_link_stays(model: str, settings: HubSettings, tmp_path: Path) -> None:
    own, theirs = tmp_path / "disk" / "models", tmp_path / "theirs"
    folder = tmp_path / "models"  # the whole folder may be reached through a link
    (own / "below").mkdir(parents=True)
    folder.symlink_to(own)
    (theirs / "deeper").mkdir(parents=True)
    for name in ("Theirs.gguf", "deeper/Theirs.gguf"):
        (theirs / name).write_bytes(CONTENT)
    for place in (folder, folder / "below"):
        (place / "linked").symlink_to(theirs)
        (place / "ours").mkdir()
        (place / "to-ours").symlink_to(place / "ours")
    with pytest.raises(UsageError, match=f"linked is a link to {theirs}"):
        remove(Installed("any", folder / model, 1, Origin.MODELS_FOLDER), settings, folder)
    assert (theirs / "Theirs.gguf").exists()
    assert (theirs / "deeper/Theirs.gguf").exists()
    (folder / "ours/Ours.gguf").write_bytes(CONTENT)
    inside = Installed("any", folder / "to-ours/Ours.gguf", 1, Origin.MODELS_FOLDER)
    remove(inside, settings, folder)
    assert not (folder / "ours/Ours.gguf").exists()
