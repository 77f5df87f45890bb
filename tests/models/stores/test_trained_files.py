"""Drafters trained for one model that were downloaded are found again."""

from pathlib import Path

import pytest

from models.hub.hub_settings import hub_cache
from models.stores.available_models import downloaded_drafter, downloaded_folder
from tests.fixtures.denied import deny

REPOSITORY, FILE = "maker/Model-GGUF", "MTP/mtp-model-Q8_0.gguf"


@pytest.mark.usefixtures("home")
def test_in_the_hub_cache_by_repository_and_in_the_models_folder_by_name(tmp_path: Path) -> None:
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) is None
    own = tmp_path / "some" / "MTP-Model-q8_0.gguf"
    own.parent.mkdir()
    own.touch()
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) == own
    snapshot = hub_cache() / "models--maker--Model-GGUF" / "snapshots" / "0123"
    (snapshot / "MTP").mkdir(parents=True)
    (snapshot / FILE).touch()
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) == snapshot / FILE
    assert downloaded_drafter("other/Model-GGUF", FILE, tmp_path) == own


@pytest.mark.usefixtures("home")
def test_a_folder_is_no_drafter_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without weights, or where nobody may read it, the next place is looked at."""
    repository = "maker/Model-MTP-4bit"
    places = [
        tmp_path / repository,
        tmp_path / "maker--Model-MTP-4bit",
        tmp_path / "Model-MTP-4bit",
    ]
    for place in places:
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
    assert downloaded_folder(repository, tmp_path) is None
    for place in places[1:]:
        (place / "model.safetensors").touch()
    assert downloaded_folder(repository, tmp_path) == places[1]
    deny(places[1], monkeypatch)
    assert downloaded_folder(repository, tmp_path) == places[2]
