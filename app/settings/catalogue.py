"""Every setting, described once for validation, help, the file template and the screen.

A value that cannot be used raises a UsageError, which says what can.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from app.loading.session_options import (
    AUTO_LAYERS,
    DEFAULT_PARALLEL,
    KV_CHOICES,
    RANGES,
    STREAM_AUTO,
    STREAM_CHOICES,
    check_range,
)
from backends.base import UsageError
from backends.chat.message import whole_characters
from backends.chat.reply_form import EFFORTS, THINK_AUTO
from backends.engines.backend_selection import AUTO, BACKENDS, check_backend
from decoding.sampling.settings import OFF, SamplingSettings, parse_lossy

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377
"""Neither llama-server's 8080, nor Ollama's 11434, LM Studio's 1234 or vLLM's 8000."""

KEY_VARIABLE = "SPECCHAT_API_KEY"
"""Variable in which clients find the server's key; it is none of our own."""


DEFAULT_PROMPT_MEMORY = 2048
"""Megabytes for copies of prompt caches: 14,000 tokens of a 4B model. A guess; not measured."""

AHEAD_AUTO, AHEAD_ON, AHEAD_OFF = "auto", "on", "off"
"""When the model reads ahead: while the machine has power and time to spare, always, or never."""

SWITCHED_OFF = "switched off"
"""Why nothing is read where the user wants that."""

AHEAD_CHOICES = (AHEAD_AUTO, AHEAD_ON, AHEAD_OFF)

DEFAULT_AHEAD_WASTE = 60.0
"""Processor seconds a message that may be read in vain: about two prompts of 2,000 tokens, as a
1.1B model reads them on two processors (36 s each). A guess; not measured."""

MOST_AHEAD_WASTE = 3600.0
"""Largest value of the setting: an hour."""


Value = str | int | float | bool

DEFAULT_MAX_TOKENS = 2048
_USUAL = SamplingSettings()
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_MOST_BITS = 64
_MOST_SHOWN = 120
LOSSY, THINK, THINK_BUDGET = "lossy", "think", "think_budget"
SYSTEM, MODEL, TOOLS, EMBEDDING_MODEL = "system", "model", "tools", "embedding_model"
DEFAULT_THEME = "specchat-dark"
_MOST = {
    "ahead_waste": MOST_AHEAD_WASTE,
    "port": 65_535,
    "unload_after": 525_600,  # minutes: a year
    "prompt_memory": 1 << 20,  # megabytes: a terabyte
    THINK_BUDGET: 1 << 31,
}
PREFIX = "SPECCHAT_"
"""How the variables of all keys begin."""
SAMPLING = tuple(field.name for field in fields(SamplingSettings))


class Kind(StrEnum):
    """Type of a value; the text names it in error messages."""

    TEXT = "text in quotes"
    INTEGER = "a whole number"
    COUNT = 'a whole number or "auto"'
    NUMBER = "a number"
    SWITCH = "true or false"


class Part(StrEnum):
    """Scope in which a key can be changed: one chat, the running app, or only at start."""

    CHAT = "chat"
    APP = "app"
    START = "start"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    comment: its description, in the file, on the screen and in the help. default: the
    value if nothing is set; an example if there is no fixed one.
    """

    name: str
    kind: Kind
    part: Part
    comment: str
    default: Value
    choices: tuple[str, ...] = ()
    title: str = ""

    @property
    def label(self) -> str:
        return self.title or self.name.replace("_", " ").capitalize()


KEYS = (
    Key("model", Kind.TEXT, Part.APP, "alias, .gguf file, MLX folder or name", "demo"),
    Key("draft", Kind.TEXT, Part.APP, "auto, off, lookup, self[:RECIPE], a model, or a chain",
        "auto", title="Drafter"),
    Key("backend", Kind.TEXT, Part.START, f"engine: {', '.join(BACKENDS)}", AUTO),
    Key("url", Kind.TEXT, Part.START, "server that answers with the backend remote",
        "http://127.0.0.1:8080/v1", title="Server"),
    Key("remote_key_file", Kind.TEXT, Part.START,
        "file that holds the key for that server, readable by you alone", "remote.key"),
    Key("ctx", Kind.INTEGER, Part.START, "context in tokens", 4096, title="Context size"),
    Key("threads", Kind.INTEGER, Part.START, "processor threads; else all physical cores", 4),
    Key("gpu_layers", Kind.COUNT, Part.START, "layers on the GPU; auto: as many as fit",
        AUTO_LAYERS, title="GPU layers"),
    Key("rpc", Kind.TEXT, Part.START,
        "other machines for layers of the model, as HOST:PORT, separated by commas",
        "192.168.1.20:50052", title="Other machines"),
    Key("kv", Kind.TEXT, Part.START,
        "type of the KV cache: f16, q8_0 or q4_0, which take less memory", "f16", KV_CHOICES,
        title="KV cache"),
    Key("stream", Kind.TEXT, Part.START,
        "read a model larger than memory from disk: auto (asks), on, off", STREAM_AUTO,
        STREAM_CHOICES),
    Key("prompt_memory", Kind.INTEGER, Part.START,
        "megabytes for the prompts of other conversations; 0 for none", DEFAULT_PROMPT_MEMORY),
    Key("retrieval", Kind.SWITCH, Part.START, "learn from earlier chats; kept on disk", True),
    Key(EMBEDDING_MODEL, Kind.TEXT, Part.START,
        "model that finds passages by meaning, and serves embeddings", "nomic-embed-text"),
    Key("offline", Kind.SWITCH, Part.START, "never touch the network", False),
    Key("shell", Kind.SWITCH, Part.START, "whether !COMMAND runs a command of yours", True),
    Key("learn", Kind.SWITCH, Part.START, "store what drafters learn, on this machine only", True),
    Key("host", Kind.TEXT, Part.START, "address that the server listens on", "127.0.0.1"),
    Key("port", Kind.INTEGER, Part.START, "port that the server listens on", DEFAULT_PORT),
    Key("key_file", Kind.TEXT, Part.START,
        "file that holds the key which programs must send to the server", "server.key"),
    Key("allow_host", Kind.TEXT, Part.START,
        "further names that the server is reached by, separated by commas", "host.docker.internal"),
    Key("models", Kind.TEXT, Part.START,
        "models that programs choose from by name, separated by commas", "demo"),
    Key("unload_after", Kind.NUMBER, Part.START,
        "idle minutes after which the server frees a model's memory; 0 for never", 0.0),
    Key("parallel", Kind.INTEGER, Part.START,
        "most requests that are answered at once, as memory allows", DEFAULT_PARALLEL),
    Key("ahead", Kind.TEXT, Part.APP,
        "read a question while it is typed: auto (not on battery or a busy machine), on, off",
        AHEAD_AUTO, AHEAD_CHOICES, title="Read ahead"),
    Key("ahead_waste", Kind.NUMBER, Part.APP,
        "processor seconds a message that may be spent on text that then changes",
        DEFAULT_AHEAD_WASTE, title="Reading limit"),
    Key("system", Kind.TEXT, Part.CHAT, "instructions to the model before the chat", "Be brief.",
        title="Instructions"),
    Key("temperature", Kind.NUMBER, Part.CHAT, "0 for always the likeliest token, up to 100",
        _USUAL.temperature),
    Key("top_k", Kind.INTEGER, Part.CHAT, "only the k likeliest tokens; 0 for all", _USUAL.top_k),
    Key("top_p", Kind.NUMBER, Part.CHAT, "cumulative probability kept; above 0, up to 1",
        _USUAL.top_p),
    Key("min_p", Kind.NUMBER, Part.CHAT, "least share of the best token's probability; 0 to 1",
        _USUAL.min_p),
    Key("repeat_penalty", Kind.NUMBER, Part.CHAT, "above 1 repeats less; 1 is off; 0.01 to 100",
        _USUAL.repeat_penalty),
    Key("seed", Kind.INTEGER, Part.CHAT, "for the same random numbers again; else drawn", 1),
    Key(LOSSY, Kind.TEXT, Part.CHAT, "opt-in lossy rule: typical, ears:0.1 or lenient:2", OFF),
    Key("max_tokens", Kind.INTEGER, Part.CHAT, "the longest answer in tokens", DEFAULT_MAX_TOKENS),
    Key(THINK, Kind.TEXT, Part.CHAT,
        "whether the model thinks first: auto, off, on, low, medium, high", THINK_AUTO, EFFORTS,
        title="Thinking"),
    Key(THINK_BUDGET, Kind.INTEGER, Part.CHAT,
        "tokens after which thinking is ended; 0 for any number", 0, title="Thinking budget"),
    Key(TOOLS, Kind.TEXT, Part.CHAT,
        "what the model may call: files (of attached folders), names in mcp.json, or off", OFF),
    Key("stars", Kind.TEXT, Part.APP, "models that are listed first, separated by commas", ""),
    Key("theme", Kind.TEXT, Part.APP, "colours of the app", DEFAULT_THEME),
    Key("animations", Kind.SWITCH, Part.APP, "whether changes on the screen are animated", True),
    Key("notify", Kind.SWITCH, Part.APP,
        "tell when a long answer ends while the terminal has no focus", True),
    Key("enter_sends", Kind.SWITCH, Part.APP, "false: Enter starts a new line, Ctrl+J sends", True),
    Key("panel", Kind.TEXT, Part.APP, "the live panel; auto shows it if there is room", "auto",
        ("auto", "shown", "hidden")),
)  # fmt: skip
BY_NAME = {key.name: key for key in KEYS}
SETTABLE = tuple(key.name for key in KEYS if key.part is not Part.START or key.name == "ctx")
"""Keys that can be set in the running app."""
CHAT_KEYS = tuple(key for key in KEYS if key.part is Part.CHAT)
PRESET_KEYS = (*(key for key in CHAT_KEYS if key.name not in ("seed", TOOLS)), BY_NAME[MODEL])


def as_sampling(values: Mapping[str, Value]) -> dict[str, Any]:
    """The sampling settings among the values, as arguments of SamplingSettings."""
    arguments: dict[str, Any] = {name: values[name] for name in SAMPLING if name in values}
    if LOSSY in arguments:
        arguments[LOSSY] = parse_lossy(arguments[LOSSY])
    return arguments


def known(name: str, names: Iterable[str], what: str) -> str:
    """Return the name if it is among names, else raise an error with the nearest, or all of them.

    what: the beginning of its message.
    """
    names = sorted(names)
    if name in names:
        return name
    if near := nearest(name, names):
        raise UsageError(f"{what}. Nearest: {', '.join(near)}")
    raise UsageError(f"{what}. Known: {', '.join(names) or 'none'}")


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names that begin as this one, or else the one most like it, if any is."""
    names = sorted(names)
    begun = [known for known in names if name and known.startswith(name.lower())]
    return begun or difflib.get_close_matches(name, names, n=1)


def parsed(key: Key, text: str) -> Value:
    """Parse a value that was typed or set in an environment variable."""
    value: Value = text
    try:
        if key.kind is Kind.INTEGER or (key.kind is Kind.COUNT and text != AUTO_LAYERS):
            value = int(text)
        elif key.kind is Kind.NUMBER:
            value = float(text)
    except ValueError:
        raise _wrong_kind(key, text) from None
    if key.kind is Kind.SWITCH:
        if text.lower() not in _TRUE + _FALSE:
            raise _wrong_kind(key, text)
        value = text.lower() in _TRUE
    return checked(key, value)


def from_variable(name: str) -> Value | None:
    """Value of a key's environment variable, None if it is not set."""
    text = os.environ.get(variable_of(name))
    if not text:
        return None
    try:
        return parsed(BY_NAME[name], text)
    except UsageError as error:
        raise unusable(name, text, error) from error


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def shown(value: object) -> str:
    """A value for an error message, truncated if long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "so large a number"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def unusable(name: str, value: Value, error: UsageError) -> UsageError:
    return UsageError(f"{variable_of(name)} cannot be {shown(value)}", error.why, error.remedy)


def _cannot_be(key: Key, value: object) -> str:
    """What is told of a value; the key by its title, as in context size or GPU layers."""
    title = key.title or key.name
    return f"{title if title[:2].isupper() else title.lower()} cannot be {shown(value)}"


def checked(key: Key, value: object) -> Value:
    """Return the value if its type and range are right."""
    wanted = {
        Kind.TEXT: str,
        Kind.INTEGER: int,
        Kind.COUNT: str if value == AUTO_LAYERS else int,
        Kind.NUMBER: (int, float),
        Kind.SWITCH: bool,
    }[key.kind]
    is_switch = isinstance(value, bool)
    if not isinstance(value, wanted) or is_switch != (key.kind is Kind.SWITCH):
        raise _wrong_kind(key, value)
    assert isinstance(value, str | int | float)
    what = _cannot_be(key, value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise UsageError(what, "it is out of range")
    if key.choices and value not in key.choices:
        raise UsageError(what, f"it is one of {', '.join(key.choices)}")
    if isinstance(value, str) and "\0" in value:
        raise UsageError(what, "it holds a NUL character")
    if isinstance(value, str) and whole_characters(value) != value:
        raise UsageError(what, "it is not valid Unicode")
    _check_range(key.name, value, what)
    return value


def _check_range(name: str, value: Value, what: str) -> None:
    try:
        if name in SAMPLING:
            replace(_USUAL, **as_sampling({name: value}))
        elif name in RANGES and not isinstance(value, str):
            check_range(name, value)
        elif name == "backend":
            check_backend(str(value))
    except UsageError as error:
        raise UsageError(what, error.why, error.remedy) from error
    if name == "max_tokens" and isinstance(value, int) and value < 1:
        raise UsageError(what, "it is at least 1")
    most = _MOST.get(name)
    if most is not None and not 0 <= float(value) <= most:
        bounds = f"it is at least 0, at most {most:,}".removesuffix(".0")
        raise UsageError(what, bounds)


def _wrong_kind(key: Key, value: object) -> UsageError:
    return UsageError(_cannot_be(key, value), f"it must be {key.kind}")
