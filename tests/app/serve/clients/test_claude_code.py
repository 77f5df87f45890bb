"""Claude Code answers through the server, set up as `--print-config claude-code` says."""

import shlex
import shutil
from pathlib import Path

import pytest

from app.serve.clients import Posix, client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.clients.programs import from_npm
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

_CONTEXT = 262_144
"""Claude Code's own prompt has some 80,000 characters, each of which is a token of the script's."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_it_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    claude = shlex.quote(from_npm("@anthropic-ai/claude-code", "2.1.197", "claude"))
    server = serve(ScriptedModel(["fine, ", "and ", "you?"], n_ctx=_CONTEXT))
    script = f'claude() {{ {claude} "$@" --print "how are you?"; }}\n'
    script += client_config("claude-code", endpoint_of(server), Posix()).text

    said = run_client(["bash", "-ec", script], tmp_path).stdout

    assert said == "fine, and you?\n"
