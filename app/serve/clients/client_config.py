"""What to paste into each client of the server, as text in the client's own format."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.serve.clients.endpoint import NO_KEY, Endpoint
from app.serve.clients.shell import Shell, usual_shell
from app.settings.listening import KEY_VARIABLE
from backends.base import UsageError

_PROVIDER = "specchat"
"""Our name in the configuration of every client."""

_AIDER_FILE = ".aider.specchat.json"
"""Beside `.aider.model.metadata.json`, which aider reads too and the user may have written."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """A text to paste, where it belongs, and what to run then."""

    place: str
    text: str
    then: str = ""


def client_config(client: str, endpoint: Endpoint, shell: Shell | None = None) -> ClientConfig:
    """What to paste into a client so that it uses the server.

    shell: the one that clients without a file are started from; None for this system's.

    Raises:
        UsageError: the client is unknown.
    """
    check_client(client)
    return _CLIENTS[client](endpoint, shell or usual_shell())


def check_client(client: str) -> None:
    """Check that the configuration of a client is known.

    Raises:
        UsageError: it is not.
    """
    if client not in _CLIENTS:
        raise UsageError(f"unknown client “{client}”", f"choose {CLIENT_NAMES}")


def _zed(endpoint: Endpoint, _shell: Shell) -> ClientConfig:
    model = {
        "name": endpoint.model,
        "display_name": f"{endpoint.model} (specchat)",
        "max_tokens": endpoint.context,
        "max_output_tokens": endpoint.longest_answer,
        "capabilities": {"tools": True, "images": False, "parallel_tool_calls": False},
    }
    provider = {"api_url": endpoint.openai, "available_models": [model]}
    settings = {
        "language_models": {"openai_compatible": {_PROVIDER: provider}},
        "agent": {"default_model": {"provider": _PROVIDER, "model": endpoint.model}},
    }
    then = f"Zed asks for a key: start it with {KEY_VARIABLE} set"
    then += "." if endpoint.needs_key else ", to any text."
    return ClientConfig("settings.json of Zed (zed: open settings file)", _json(settings), then)


def _continue(endpoint: Endpoint, _shell: Shell) -> ClientConfig:
    key = _key(endpoint, f"${{{{ secrets.{KEY_VARIABLE} }}}}")
    text = f"""\
name: specchat
version: 1.0.0
schema: v1
models:
  - name: {_quoted(f"{endpoint.model} (specchat)")}
    provider: openai
    model: {_quoted(endpoint.model)}
    apiBase: {_quoted(endpoint.openai)}
    apiKey: {_quoted(key)}
    roles: [chat, edit, apply]
    defaultCompletionOptions:
      contextLength: {endpoint.context}
      maxTokens: {endpoint.longest_answer}
"""
    then = f"Put the key into ~/.continue/.env as {KEY_VARIABLE}=…" if endpoint.needs_key else ""
    return ClientConfig("~/.continue/config.yaml", text, then)


def _aider(endpoint: Endpoint, shell: Shell) -> ClientConfig:
    model = f"openai/{endpoint.model}"
    limits = {
        "max_input_tokens": endpoint.context,
        "max_output_tokens": endpoint.longest_answer,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    lines = [
        shell.variable("OPENAI_API_BASE", endpoint.openai),
        _key_line(shell, "OPENAI_API_KEY", endpoint),
        shell.file(_AIDER_FILE, _json({model: limits})),
        shell.command("aider", "--model", model, "--model-metadata-file", _AIDER_FILE),
    ]
    return ClientConfig("a shell, in the folder of the project", "".join(lines))


def _opencode(endpoint: Endpoint, _shell: Shell) -> ClientConfig:
    limit = {"context": endpoint.context, "output": endpoint.longest_answer}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "specchat",
        "options": {
            "baseURL": endpoint.openai,
            "apiKey": _key(endpoint, f"{{env:{KEY_VARIABLE}}}"),
        },
        "models": {endpoint.model: {"name": endpoint.model, "limit": limit}},
    }
    model = f"{_PROVIDER}/{endpoint.model}"
    config = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {_PROVIDER: provider},
        "model": model,
        "small_model": model,  # that of titles; they would go to another provider
    }
    return ClientConfig("opencode.json in the folder of the project", _json(config), "opencode")


def _claude_code(endpoint: Endpoint, shell: Shell) -> ClientConfig:
    variables = {
        "ANTHROPIC_BASE_URL": endpoint.address,
        "ANTHROPIC_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(endpoint.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(endpoint.longest_answer),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes with each request
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    lines = [shell.variable(name, value) for name, value in variables.items()]
    lines += [_key_line(shell, "ANTHROPIC_AUTH_TOKEN", endpoint), shell.command("claude")]
    return ClientConfig("a shell", "".join(lines))


def _codex(endpoint: Endpoint, _shell: Shell) -> ClientConfig:
    key = f"env_key = {_quoted(KEY_VARIABLE)}\n" if endpoint.needs_key else ""
    text = f"""\
model = {_quoted(endpoint.model)}
model_provider = {_quoted(_PROVIDER)}
model_context_window = {endpoint.context}
web_search = "disabled"

[model_providers.{_PROVIDER}]
name = "specchat"
base_url = {_quoted(endpoint.openai)}
wire_api = "responses"
{key}"""
    return ClientConfig("~/.codex/config.toml, above its tables", text, "codex")


def _open_webui(endpoint: Endpoint, shell: Shell) -> ClientConfig:
    lines = [
        shell.comment(f"model {endpoint.model}, context of {endpoint.context} tokens"),
        shell.variable("OPENAI_API_BASE_URL", endpoint.openai),
        _key_line(shell, "OPENAI_API_KEY", endpoint),
        shell.variable("DEFAULT_MODELS", endpoint.model),
        shell.variable("ENABLE_OLLAMA_API", "false"),
        shell.command("open-webui", "serve"),
    ]
    then = "In a container it needs the host's network, or an address that --allow-host names."
    return ClientConfig("a shell", "".join(lines), then)


def _llm(endpoint: Endpoint, _shell: Shell) -> ClientConfig:
    key = f"  api_key_name: {_PROVIDER}\n" if endpoint.needs_key else ""
    text = f"""\
- model_id: {_PROVIDER}
  model_name: {_quoted(endpoint.model)}
  api_base: {_quoted(endpoint.openai)}
  supports_schema: true
  supports_tools: true
{key}"""
    then = f"llm -m {_PROVIDER} hello"
    then = f"llm keys set {_PROVIDER}, then {then}" if endpoint.needs_key else then
    place = "extra-openai-models.yaml in the folder of the file that `llm logs path` prints"
    return ClientConfig(place, text, then)


_CLIENTS: Mapping[str, Callable[[Endpoint, Shell], ClientConfig]] = {
    "zed": _zed,
    "continue": _continue,
    "aider": _aider,
    "opencode": _opencode,
    "claude-code": _claude_code,
    "codex": _codex,
    "open-webui": _open_webui,
    "llm": _llm,
}

CLIENTS = tuple(_CLIENTS)
"""Names of the clients whose configuration is known."""

CLIENT_NAMES = f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}"


def _key(endpoint: Endpoint, reference: str) -> str:
    """What a client is given as key: how it finds the real one, if the server wants any."""
    return reference if endpoint.needs_key else NO_KEY


def _key_line(shell: Shell, variable: str, endpoint: Endpoint) -> str:
    """Sets a client's variable of the key."""
    if endpoint.needs_key:
        return shell.copied(variable, KEY_VARIABLE)
    return shell.variable(variable, NO_KEY)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _quoted(text: str) -> str:
    """A text in the quotes that JSON, YAML and TOML share."""
    return json.dumps(text)
