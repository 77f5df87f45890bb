"""Drafters trained for one model that were downloaded are found again."""

from pathlib import Path

import pytest

from models.hub.hub_settings import hub_cache
from models.stores.trained_files import downloaded_drafter

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
