"""`serve --print-config`: what a client needs, without a server and without loading a model."""

import json
import tomllib
from pathlib import Path

import pytest

from app.serve.clients import CLIENTS
from tests.app.conftest import Specchat


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("a-key-that-is-long-enough", encoding="ascii")
    return path


@pytest.mark.parametrize("chosen", [("--model", "demo"), ("--models", "demo,other")])
def test_it_is_of_the_server_that_the_options_would_start(
    chosen: tuple[str, str], specchat: Specchat, demo_file: Path
) -> None:
    ended = specchat("serve", "--print-config", "codex", *chosen, "--port", "9876", "--ctx", "1024")

    assert ended.returncode == 0
    config = tomllib.loads(ended.stdout)
    assert config["model"] == "demo"
    assert config["model_context_window"] == 1024
    assert config["model_providers"]["specchat"]["base_url"] == "http://127.0.0.1:9876/v1"
    assert "~/.codex/config.toml" in ended.stderr


def test_the_context_is_the_one_that_a_session_opens_with(
    specchat: Specchat, demo_file: Path
) -> None:
    ended = specchat("serve", "--print-config", "opencode", "--model", str(demo_file))

    (model,) = json.loads(ended.stdout)["provider"]["specchat"]["models"].values()
    assert model["limit"]["context"] == 8192


def test_a_key_is_never_printed(specchat: Specchat, demo_file: Path, key_file: Path) -> None:
    for client in CLIENTS:
        ended = specchat("serve", "--print-config", client, "--key-file", str(key_file))

        assert ended.returncode == 0
        told = ended.stdout + ended.stderr
        assert ("llm keys set" if client == "llm" else "first:      set SPECCHAT_API_KEY") in told
        assert client != "llm" or "SPECCHAT_API_KEY" not in told  # it does not read it
        assert key_file.read_text() not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--print-config", "emacs"], "claude-code"),
        (["--print-config", "zed", "--port", "0"], "--port 0"),
        (["--print-config", "zed", "--ctx", "1000000"], "1,000,000"),
        (["--print-config", "zed", "--model", "nothing-of-that-name"], "nothing-of-that-name"),
    ],
)
def test_what_cannot_be_served_is_refused(
    specchat: Specchat, demo_file: Path, options: list[str], said: str
) -> None:
    ended = specchat("serve", *options)

    assert ended.returncode == 2
    assert said in ended.stderr
    assert not ended.stdout


def test_the_variable_of_the_key_is_not_taken_for_a_setting(
    specchat: Specchat, demo_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_API_KEY", "whatever")

    ended = specchat("doctor", "--json")

    assert "SPECCHAT_API_KEY" not in ended.stdout + ended.stderr
