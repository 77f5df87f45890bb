"""What to paste into other programs so that they use the server."""

import contextlib
import json
import os
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.loading.placement import plan
from app.loading.select import choose_model, expected_backend, known_facts
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.paths import Paths
from app.settings.catalogue import KEY_VARIABLE
from backends.base import OutOfMemoryError, UsageError, check_context
from backends.engines.backend_selection import forms
from backends.engines.engine_facts import free_memory

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
    """Writes lines that shells of Linux and macOS understand."""

    def variable(self, name: str, value: object) -> str:
        """Set a variable for all programs that are started then."""
        return f"export {name}={shlex.quote(str(value))}"

    def copied(self, name: str, source: str) -> str:
        """Set a variable to what another holds."""
        return f'export {name}="${{{source}:?set it to the key of the server}}"'

    def file(self, path: str, caller: Callable[[], str]) -> str:
        """Write a file of whole lines. caller: gives its text, as Jinja's `call` has it."""
        return f"cat > {shlex.quote(path)} <<'END'\n{caller()}END\n"

    def command(self, *words: str) -> str:
        return shlex.join(words)


class PowerShell(Posix):
    """The same for the shell of Windows."""

    def variable(self, name: str, value: object) -> str:
        return f"$env:{name} = {_powershell_quoted(str(value))}"

    def copied(self, name: str, source: str) -> str:
        return f"$env:{name} = $env:{source}"

    def file(self, path: str, caller: Callable[[], str]) -> str:
        return f"@'\n{caller()}'@ | Set-Content {_powershell_quoted(path)}\n"

    def command(self, *words: str) -> str:
        return " ".join([words[0], *map(_powershell_quoted, words[1:])])


def _powershell_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_TEMPLATES = tomllib.loads(Path(__file__).with_name("clients.toml").read_text(encoding="utf-8"))

CLIENTS = tuple(_TEMPLATES)
"""Names of the clients whose configuration is known."""

CLIENT_NAMES = f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """A text to paste, where it belongs, and what to run then."""

    place: str
    text: str
    then: str = ""


def check_client(client: str) -> None:
    if client not in CLIENTS:
        raise UsageError(f"unknown client “{client}”", f"choose {CLIENT_NAMES}")


def client_config(client: str, endpoint: Endpoint, shell: Posix | None = None) -> ClientConfig:
    """What to paste into a client so that it uses the server.

    shell: the one that clients without a file are started from; None for this system's.
    """
    from jinja2 import Environment, StrictUndefined

    check_client(client)
    shell = shell or (PowerShell() if os.name == "nt" else Posix())
    jinja = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )

    def key(place: str) -> str:
        return place if endpoint.needs_key else NO_KEY

    def key_variable(name: str) -> str:
        is_set = endpoint.needs_key
        return shell.copied(name, KEY_VARIABLE) if is_set else shell.variable(name, NO_KEY)

    known: dict[str, object] = {
        "server": endpoint,
        "key": key,
        "key_variable": key_variable,
        "variable": shell.variable,
        "command": shell.command,
        "file": shell.file,
        "json": partial(json.dumps, ensure_ascii=False),
    }
    texts = _TEMPLATES[client].items()
    return ClientConfig(**{name: jinja.from_string(text).render(known) for name, text in texts})


def served_model(options: SessionOptions, paths: Paths) -> tuple[str, int]:
    """The name of the model that a server opened with these options serves, and its context.

    The context is what fits into memory now.
    """
    check_ranges(options)
    chosen = choose_model(options.model, paths, forms(options.backend))
    backend = expected_backend(chosen, options.backend)
    facts = known_facts(chosen, options)
    if facts is None:
        return chosen.name, options.ctx or DEFAULT_CONTEXT
    if facts.context_limit:
        check_context(chosen.name, options.ctx or 1, facts.context_limit)
    free = free_memory(backend, options.gpu_layers)
    with contextlib.suppress(OutOfMemoryError):  # it may be allowed to stream from disk
        return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, free).n_ctx
    return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, None).n_ctx
