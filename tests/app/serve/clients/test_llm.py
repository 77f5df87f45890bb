"""`llm` answers through the server, set up as `--print-config llm` says."""

import json
import sys
from pathlib import Path

import pytest

from app.serve.clients import client_config
from tests.app.serve.clients.conftest import Run, endpoint_of
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel

pytest.importorskip("llm")

_LLM = [sys.executable, "-c", "from llm.cli import cli; cli()"]
_NO_PLUGINS = {"LLM_LOAD_PLUGINS": ""}
"""The bundled model's package is a plugin that imports an engine."""


@pytest.mark.slow
def test_it_answers_with_a_key_and_reports_usage(
    serve: Serve, run_client: Run, tmp_path: Path
) -> None:
    server = serve(ScriptedModel(["one ", "two ", "three"]), key="secret")
    config = client_config("llm", endpoint_of(server, needs_key=True)).text
    (tmp_path / "extra-openai-models.yaml").write_text(config, encoding="utf-8")
    variables = _NO_PLUGINS | {"LLM_USER_PATH": str(tmp_path)}
    run_client([*_LLM, "keys", "set", "specchat", "--value", "secret"], tmp_path, variables)

    said = run_client([*_LLM, "-m", "specchat", "count"], tmp_path, variables)
    logged = run_client([*_LLM, "logs", "-n", "1", "--json"], tmp_path, variables)

    assert said.stdout == "one two three\n"
    (entry,) = json.loads(logged.stdout)
    assert entry["response"] == "one two three"
    assert entry["output_tokens"] == 4  # the end of the reply is one
