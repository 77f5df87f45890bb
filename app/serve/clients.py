"""What to paste into other programs so that they use the server."""

import contextlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.loading.placement import plan
from app.loading.select import choose_model, expected_backend, facts_before
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.paths import Paths
from app.settings.values import KEY_VARIABLE
from backends.base import OutOfMemoryError, UsageError, check_context
from backends.engines.backend_selection import forms
from backends.engines.engine_facts import free_memory
from models.metadata.memory_bill import facts_of
from models.reference import Reference

NO_KEY = "none"
"""What clients that insist on a key are given, where the server wants none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a server without a path, the model it serves, and its context in tokens."""

    address: str
    model: str
    context: int
    needs_key: bool = False

    @property
    def openai(self) -> str:
        return f"{self.address}/v1"

    @property
    def longest_answer(self) -> int:
        """Tokens to leave for an answer, where a client wants them told from the context.

        A quarter: a guess; not measured.
        """
        return max(1, self.context // 4)


def address_of(host: str, port: int) -> str:
    """The URL of a server, without a path."""
    if port == 0:
        raise UsageError("--port 0 has no address yet", "the system chooses a port at the start")
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


class Posix:
    """Writes lines that shells of Linux and macOS understand; each ends with a line break."""

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def variable(self, name: str, value: str) -> str:
        """Set a variable for all programs that are started then."""
        return f"export {name}={shlex.quote(value)}\n"

    def copied(self, name: str, source: str) -> str:
        """Set a variable to what another holds."""
        return f'export {name}="${{{source}:?set it to the key of the server}}"\n'

    def file(self, path: str, text: str) -> str:
        """Write a file of whole lines."""
        return f"cat > {shlex.quote(path)} <<'END'\n{text}END\n"

    def command(self, *words: str) -> str:
        return f"{shlex.join(words)}\n"


class PowerShell(Posix):
    """The same for the shell of Windows."""

    def variable(self, name: str, value: str) -> str:
        return f"$env:{name} = {_powershell_quoted(value)}\n"

    def copied(self, name: str, source: str) -> str:
        return f"$env:{name} = $env:{source}\n"

    def file(self, path: str, text: str) -> str:
        return f"@'\n{text}'@ | Set-Content {_powershell_quoted(path)}\n"

    def command(self, *words: str) -> str:
        return " ".join([words[0], *map(_powershell_quoted, words[1:])]) + "\n"


def _powershell_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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


def client_config(client: str, endpoint: Endpoint, shell: Posix | None = None) -> ClientConfig:
    """What to paste into a client so that it uses the server.

    shell: the one that clients without a file are started from; None for this system's.
    """
    check_client(client)
    return _CLIENTS[client](endpoint, shell or (PowerShell() if os.name == "nt" else Posix()))


def check_client(client: str) -> None:
    """Check that the configuration of a client is known."""
    if client not in _CLIENTS:
        raise UsageError(f"unknown client “{client}”", f"choose {CLIENT_NAMES}")


def _zed(endpoint: Endpoint, _shell: Posix) -> ClientConfig:
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


def _continue(endpoint: Endpoint, _shell: Posix) -> ClientConfig:
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


def _aider(endpoint: Endpoint, shell: Posix) -> ClientConfig:
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


def _opencode(endpoint: Endpoint, _shell: Posix) -> ClientConfig:
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


def _claude_code(endpoint: Endpoint, shell: Posix) -> ClientConfig:
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


def _codex(endpoint: Endpoint, _shell: Posix) -> ClientConfig:
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


def _open_webui(endpoint: Endpoint, shell: Posix) -> ClientConfig:
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


def _llm(endpoint: Endpoint, _shell: Posix) -> ClientConfig:
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


_CLIENTS: Mapping[str, Callable[[Endpoint, Posix], ClientConfig]] = {
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


def _key_line(shell: Posix, variable: str, endpoint: Endpoint) -> str:
    if endpoint.needs_key:
        return shell.copied(variable, KEY_VARIABLE)
    return shell.variable(variable, NO_KEY)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _quoted(text: str) -> str:
    """A text in the quotes that JSON, YAML and TOML share."""
    return json.dumps(text)


def served_model(options: SessionOptions, paths: Paths) -> tuple[str, int]:
    """The name of the model that a server opened with these options serves, and its context.

    The context is what fits into memory now.
    """
    check_ranges(options)
    chosen = choose_model(options.model, paths, forms(options.backend))
    backend = expected_backend(chosen, options.backend)
    is_here = isinstance(chosen, Reference)
    facts = facts_of(chosen.path, backend) if is_here else facts_before(chosen)
    if facts is None:
        return chosen.name, options.ctx or DEFAULT_CONTEXT
    if facts.context_limit:
        check_context(chosen.name, options.ctx or 1, facts.context_limit)
    facts = facts.with_cache(options.cache_type)
    free = free_memory(backend, options.gpu_layers)
    with contextlib.suppress(OutOfMemoryError):  # it may be allowed to stream from disk
        return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, free).n_ctx
    return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, None).n_ctx
