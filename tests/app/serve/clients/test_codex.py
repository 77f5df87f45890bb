"""Codex answers a question through the server, set up as `--print-config codex` says."""

from pathlib import Path

import pytest

from app.serve.clients import client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.clients.programs import from_npm
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

_EXEC = ("exec", "--strict-config", "--skip-git-repo-check", "--sandbox", "read-only")
_CONTEXT = 131_072
"""Each character of Codex's own prompt is a token of the script's."""


@pytest.mark.slow
def test_it_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    codex = from_npm("@openai/codex", "0.169.0", "codex")
    project, home = tmp_path / "project", tmp_path / "codex-home"
    project.mkdir()
    home.mkdir()
    server = serve(ScriptedModel(["fine, ", "and ", "you?"], n_ctx=_CONTEXT))
    text = client_config("codex", endpoint_of(server)).text
    (home / "config.toml").write_text(text, encoding="utf-8")

    said = run_client([codex, *_EXEC, "how are you?"], project, {"CODEX_HOME": str(home)})

    assert "fine, and you?" in said.stdout
