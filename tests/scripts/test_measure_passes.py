"""The file of what passes cost that people send us."""

import json
from pathlib import Path

import pytest

from models.stores.available_models import demo_path
from scripts.measure_passes import main


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_it_has_a_curve_and_no_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, file = demo_path(), tmp_path / "passes.json"
    assert model is not None
    main([str(model), "--json", str(file)])
    text = file.read_text()
    (found,) = json.loads(text)["models"]
    assert found["model"] == model.name
    assert {"1", "2", "4", "8", "16"} <= found["seconds"].keys()
    assert found["changes"] == {} or found["changes"].keys() == found["seconds"].keys()
    assert str(Path.home()) not in text
    assert len(capsys.readouterr().out.splitlines()) == len(found["seconds"]) + 3
