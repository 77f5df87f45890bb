"""The head that comes with specchat is made of a trained one, and tested as it will be used."""

import json
from pathlib import Path

import pytest

from scripts.models.bundle_head import main

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.mark.slow
def test_a_head_is_written_smaller_and_its_acceptance_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["demo-eagle3", "--prompts", "1", "--folder", str(tmp_path)])
    rows = capsys.readouterr().out.splitlines()[-6:]
    told = [row.split(" | ") for row in rows]
    assert [row[0] for row in told] == ["| head"] * 2 + ["| as trained"] * 2 + ["| explain"] * 2
    facts = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert [f"{share:.2f}" for share in facts["acceptance"]] == told[1][5].split(" / ")
    assert all(0 < share < 1 for share in facts["acceptance"])
    assert 7e6 < (tmp_path / "head.gguf").stat().st_size < 9e6


def test_what_was_not_trained_here_is_not_bundled(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("no-such-head", "demo-eagle3"):
        with pytest.raises(SystemExit):
            main([name])
        assert f"{name} was not trained here" in capsys.readouterr().err
