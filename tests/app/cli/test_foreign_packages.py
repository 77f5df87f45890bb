"""Packages of the project in which someone works are not taken for ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.hub.repository import is_safe
from tests.app.conftest import COMMAND

NAMES = ("app", "backends", "decoding", "models", "training")


@pytest.fixture(params=[".", "the whole path"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder that has packages of our names, and is on the path of modules."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('a foreign {name}')")
    monkeypatch.setenv("PYTHONPATH", "." if request.param == "." else str(tmp_path))
    return tmp_path


STARTS = pytest.mark.parametrize(
    "start", [[COMMAND], [sys.executable, "-m", "specchat"]], ids=["specchat", "-m specchat"]
)


@STARTS
def test_ours_start(start: list[str], project: Path) -> None:
    ended = subprocess.run(
        [*start, "path", "models"], cwd=project, capture_output=True, text=True, check=False
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.startswith(os.environ["SPECCHAT_HOME"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "project"),
    [([COMMAND], "the whole path"), ([sys.executable, "-m", "specchat"], ".")],
    indirect=["project"],
    ids=["specchat", "-m specchat"],
)
@pytest.mark.usefixtures("llamacpp")
def test_ours_answer_with_every_process_they_start(
    start: list[str], project: Path, home: Path, demo_file: Path
) -> None:
    """A model that is new here runs in a child first; another renders its template."""
    (home / "cache" / "proofs.json").unlink(missing_ok=True)
    options = ["--max-tokens", "2", "--draft", "self"]
    ended = subprocess.run(
        [*start, "ask", "hi", "--model", str(demo_file), *options],
        cwd=project, input="", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
    written = [path.relative_to(home).as_posix() for path in home.rglob("*")]
    assert any(name.endswith(".gguf") for name in written)
    assert [name for name in written if not is_safe(name)] == [], "Windows knows no such name"
