"""Programs of others answer and edit through the server, set up as `--print-config` says."""

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.serve.clients import Posix, client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.clients.programs import from_npm, from_pypi
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

pytestmark = pytest.mark.slow
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

ASKED, FINE = "how are you?", ["fine, ", "and ", "you?"]

AIDER_OPTIONS = (
    "--yes-always", "--no-git", "--no-gitignore", "--no-check-update", "--analytics-disable",
    "--no-show-release-notes", "--no-show-model-warnings", "--no-pretty", "--no-fancy-input",
)  # fmt: skip


@needs_bash
def test_aider_edits_a_file(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    aider = shlex.quote(from_pypi("aider-chat", "0.86.2", "aider"))
    file = tmp_path / "project" / "greeting.py"
    file.parent.mkdir()
    file.write_text('print("hello")\n', encoding="utf-8")
    whole = ["greeting.py\n", "```\n", 'print("', "goodbye", '")\n', "```\n"]
    server = serve(ScriptedModel(whole))
    options = shlex.join([*AIDER_OPTIONS, "--message", "say goodbye", file.name])
    script = f'aider() {{ {aider} "$@" {options}; }}\n'
    script += client_config("aider", endpoint_of(server), Posix()).text

    said = run_client(["bash", "-ec", script], file.parent).stdout

    assert "Applied edit to greeting.py" in said
    assert file.read_text(encoding="utf-8") == 'print("goodbye")\n'


@needs_bash
def test_claude_code_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    claude = shlex.quote(from_npm("@anthropic-ai/claude-code", "2.1.197", "claude"))
    # Its own prompt has some 80,000 characters, each of which is a token of the script's.
    server = serve(ScriptedModel(FINE, n_ctx=262_144))
    script = f'claude() {{ {claude} "$@" --print "{ASKED}"; }}\n'
    script += client_config("claude-code", endpoint_of(server), Posix()).text

    assert run_client(["bash", "-ec", script], tmp_path).stdout == "fine, and you?\n"


def test_codex_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    codex = from_npm("@openai/codex", "0.169.0", "codex")
    project, home = tmp_path / "project", tmp_path / "codex-home"
    project.mkdir()
    home.mkdir()
    server = serve(ScriptedModel(FINE, n_ctx=131_072))
    text = client_config("codex", endpoint_of(server)).text
    (home / "config.toml").write_text(text, encoding="utf-8")
    options = ("exec", "--strict-config", "--skip-git-repo-check", "--sandbox", "read-only")

    said = run_client([codex, *options, ASKED], project, {"CODEX_HOME": str(home)})

    assert "fine, and you?" in said.stdout


def test_opencode_answers(serve: Serve, run_client: Run, tmp_path: Path) -> None:
    opencode = from_npm("opencode-ai", "1.18.33", "opencode")
    project = tmp_path / "project"
    project.mkdir()
    server = serve(ScriptedModel(FINE, n_ctx=65_536))
    text = client_config("opencode", endpoint_of(server)).text
    (project / "opencode.json").write_text(text, encoding="utf-8")
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    assert "fine, and you?" in run_client([opencode, "run", ASKED], project, offline).stdout


@pytest.mark.skipif(find_spec("llm") is None, reason="llm is not installed")
def test_llm_answers_with_a_key_and_reports_usage(
    serve: Serve, run_client: Run, tmp_path: Path
) -> None:
    server = serve(ScriptedModel(["one ", "two ", "three"]), key="secret")
    config = client_config("llm", endpoint_of(server, needs_key=True)).text
    (tmp_path / "extra-openai-models.yaml").write_text(config, encoding="utf-8")
    llm = [sys.executable, "-c", "from llm.cli import cli; cli()"]
    # The bundled model's package is a plugin that imports an engine.
    variables = {"LLM_LOAD_PLUGINS": "", "LLM_USER_PATH": str(tmp_path)}
    run_client([*llm, "keys", "set", "specchat", "--value", "secret"], tmp_path, variables)

    said = run_client([*llm, "-m", "specchat", "count"], tmp_path, variables)
    logged = run_client([*llm, "logs", "-n", "1", "--json"], tmp_path, variables)

    assert said.stdout == "one two three\n"
    (entry,) = json.loads(logged.stdout)
    assert entry["response"] == "one two three"
    assert entry["output_tokens"] == 4  # the end of the reply is one
