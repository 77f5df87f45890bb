"""opencode answers a question through the server, set up as `--print-config opencode` says."""

from pathlib import Path

import pytest

from app.serve.clients import client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.clients.programs import from_npm
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

_OFFLINE = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
_CONTEXT = 65_536
"""opencode's own prompt has some 40,000 characters, each of which is a token of the script's."""


@pytest.mark.slow
def test_it_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    opencode = from_npm("opencode-ai", "1.18.33", "opencode")
    project = tmp_path / "project"
    project.mkdir()
    server = serve(ScriptedModel(["fine, ", "and ", "you?"], n_ctx=_CONTEXT))
    text = client_config("opencode", endpoint_of(server)).text
    (project / "opencode.json").write_text(text, encoding="utf-8")

    said = run_client([opencode, "run", "how are you?"], project, _OFFLINE).stdout

    assert "fine, and you?" in said
