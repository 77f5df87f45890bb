"""aider edits a file through the server, set up as `--print-config aider` says."""

import shlex
import shutil
from pathlib import Path

import pytest

from app.serve.clients import Posix, client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.clients.programs import from_pypi
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

_OPTIONS = (
    "--yes-always", "--no-git", "--no-gitignore", "--no-check-update", "--analytics-disable",
    "--no-show-release-notes", "--no-show-model-warnings", "--no-pretty", "--no-fancy-input",
)  # fmt: skip
_EDIT = ["greeting.py\n", "```\n", 'print("', "goodbye", '")\n', "```\n"]
"""The answer of a model that was asked for the whole file."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_it_edits_a_file(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    aider = shlex.quote(from_pypi("aider-chat", "0.86.2", "aider"))
    file = tmp_path / "project" / "greeting.py"
    file.parent.mkdir()
    file.write_text('print("hello")\n', encoding="utf-8")
    server = serve(ScriptedModel(_EDIT))
    options = shlex.join([*_OPTIONS, "--message", "say goodbye", file.name])
    script = f'aider() {{ {aider} "$@" {options}; }}\n'
    script += client_config("aider", endpoint_of(server), Posix()).text

    said = run_client(["bash", "-ec", script], file.parent).stdout

    assert "Applied edit to greeting.py" in said
    assert file.read_text(encoding="utf-8") == 'print("goodbye")\n'
