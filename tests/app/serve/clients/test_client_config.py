"""What is printed for each client parses as that client would, and says where the server is."""

import json
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from app.serve.clients import CLIENTS, Endpoint, Posix, PowerShell, address_of, client_config
from app.settings.catalogue import KEY_VARIABLE
from backends.base import UsageError

yaml = pytest.importorskip("yaml")

ADDRESS = "http://127.0.0.1:4321"
MODEL = 'an org/name-3b:q4_0 "it\'s"'
CONTEXT = 12_288
OPEN = Endpoint(ADDRESS, MODEL, CONTEXT)
LOCKED = Endpoint(ADDRESS, MODEL, CONTEXT, needs_key=True)


def _shell_words(text: str) -> list[str]:
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n"], input=text.encode(), check=True)
    return shlex.split(text, comments=False)


_PARSED = {
    "zed": json.loads,
    "continue": yaml.safe_load,
    "aider": _shell_words,
    "opencode": json.loads,
    "claude-code": _shell_words,
    "codex": tomllib.loads,
    "open-webui": _shell_words,
    "llm": yaml.safe_load,
}


def _parsed(client: str, endpoint: Endpoint) -> Any:
    return _PARSED[client](client_config(client, endpoint, Posix()).text)


def _leaves(value: object) -> Iterator[str]:
    """All keys and values of what was parsed, as text."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield str(key)
                yield from _leaves(inner)
        case str() | int():
            yield str(value)
        case Sequence():
            for inner in value:
                yield from _leaves(inner)
        case _:
            raise AssertionError(f"{value!r} is no part of a configuration")


def test_every_client_has_a_format() -> None:
    assert set(_PARSED) == set(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_it_names_address_model_and_context(client: str) -> None:
    leaves = list(_leaves(_parsed(client, OPEN)))
    assert any(ADDRESS in leaf for leaf in leaves)
    assert any(leaf.endswith(MODEL) or f"={MODEL}" in leaf for leaf in leaves)
    assert client == "llm" or str(CONTEXT) in client_config(client, OPEN, Posix()).text


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_referred_to_only_where_the_server_wants_one(client: str) -> None:
    said = {
        endpoint: " ".join((config.text, config.then))
        for endpoint in (OPEN, LOCKED)
        for config in [client_config(client, endpoint, Posix())]
    }

    names_key = {"llm": "llm keys set specchat"}.get(client, KEY_VARIABLE)
    assert names_key in said[LOCKED]
    assert client == "zed" or names_key not in said[OPEN]
    _parsed(client, LOCKED)


def test_zed_lists_the_model_with_its_context() -> None:
    (model,) = _parsed("zed", OPEN)["language_models"]["openai_compatible"]["specchat"][
        "available_models"
    ]

    assert (model["name"], model["max_tokens"]) == (MODEL, CONTEXT)


def test_opencode_sends_titles_to_the_same_model() -> None:
    config = _parsed("opencode", OPEN)

    assert config["model"] == config["small_model"] == f"specchat/{MODEL}"
    assert config["provider"]["specchat"]["models"][MODEL]["limit"]["context"] == CONTEXT


def test_codex_speaks_responses() -> None:
    config = _parsed("codex", OPEN)

    provider = config["model_providers"][config["model_provider"]]
    assert provider["wire_api"] == "responses"
    assert provider["base_url"] == f"{ADDRESS}/v1"
    assert "env_key" not in provider
    assert _parsed("codex", LOCKED)["model_providers"]["specchat"]["env_key"] == KEY_VARIABLE


def test_claude_code_gets_the_address_without_a_path() -> None:
    assert f"ANTHROPIC_BASE_URL={ADDRESS}" in _parsed("claude-code", OPEN)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_posix_shell_runs_what_is_printed_for_aider(tmp_path: Any) -> None:
    script = client_config("aider", OPEN, Posix()).text
    own = tmp_path / ".aider.model.metadata.json"  # of the user
    own.write_text("{}")
    echo = 'aider() { printf "%s\\n" "$OPENAI_API_BASE" "$OPENAI_API_KEY" "$@"; }\n'

    ran = subprocess.run(
        ["bash"], input=(echo + script).encode(), cwd=tmp_path, capture_output=True, check=True
    )

    assert ran.stdout.decode().splitlines() == [
        f"{ADDRESS}/v1", "none", "--model", f"openai/{MODEL}",
        "--model-metadata-file", ".aider.specchat.json",
    ]  # fmt: skip
    assert own.read_text() == "{}"
    written = json.loads((tmp_path / ".aider.specchat.json").read_text())
    assert written[f"openai/{MODEL}"]["max_input_tokens"] == CONTEXT


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_posix_shell_stops_without_the_key() -> None:
    line = Posix().copied("OPENAI_API_KEY", KEY_VARIABLE)

    ran = subprocess.run(
        ["bash", "-c", f"{line}\necho reached"], env={}, capture_output=True, check=False
    )

    assert ran.returncode != 0
    assert KEY_VARIABLE.encode() in ran.stderr
    assert not ran.stdout


def test_powershell_quotes_are_doubled() -> None:
    text = client_config("aider", OPEN, PowerShell()).text

    assert "$env:OPENAI_API_KEY = 'none'\n" in text
    assert "'openai/an org/name-3b:q4_0 \"it''s\"'" in text
    assert "export" not in text


def test_an_unknown_client_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        client_config("emacs", OPEN)

    assert all(client in str(raised.value) for client in CLIENTS)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("box.local", "http://box.local:80"),
    ],
)
def test_the_address_is_one_that_clients_can_reach(host: str, address: str) -> None:
    assert address_of(host, 80) == address


def test_a_port_that_the_system_chooses_has_no_address() -> None:
    with pytest.raises(UsageError):
        address_of("127.0.0.1", 0)
