"""Every key of the settings file, described once: for checks, template and settings screen."""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from app.session_options import RANGES, check_range
from backends.base import UsageError
from backends.choice import check_backend
from decoding.lossy_rule import OFF, parse_lossy
from decoding.sampling import SamplingSettings

Value = str | int | float | bool

DEFAULT_MAX_TOKENS = 2048
_USUAL = SamplingSettings()
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_MOST_BITS = 64
_MOST_SHOWN = 120
LOSSY = "lossy"
PREFIX = "SPECCHAT_"
"""How the variables of all keys begin."""
SAMPLING = tuple(field.name for field in fields(SamplingSettings))


class Kind(StrEnum):
    """What a value is; the text is how an error calls it."""

    TEXT = "text in quotes"
    INTEGER = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"


class Part(StrEnum):
    """Where a key can be set beside the file: for one chat, for the app, or only at its start."""

    CHAT = "chat"
    APP = "app"
    START = "start"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. default: what holds where nothing is set, or else an example."""

    name: str
    kind: Kind
    part: Part
    comment: str
    default: Value
    choices: tuple[str, ...] = ()
    title: str = ""

    @property
    def label(self) -> str:
        """What it is called on the screen."""
        return self.title or self.name.replace("_", " ").capitalize()


KEYS = (
    Key("model", Kind.TEXT, Part.APP, "alias, .gguf file, MLX folder or name", "demo"),
    Key(
        "draft",
        Kind.TEXT,
        Part.APP,
        "auto, off, lookup, self[:RECIPE], a model, or a chain",
        "auto",
        title="Drafter",
    ),
    Key("backend", Kind.TEXT, Part.START, "auto, llamacpp or mlx", "auto"),
    Key("ctx", Kind.INTEGER, Part.START, "context in tokens", 4096),
    Key("threads", Kind.INTEGER, Part.START, "processor threads; else all physical cores", 4),
    Key("gpu_layers", Kind.INTEGER, Part.START, "layers on the GPU; else all that fit", 99),
    Key("retrieval", Kind.SWITCH, Part.START, "learn from earlier chats; kept on disk", True),
    Key("offline", Kind.SWITCH, Part.START, "never touch the network", False),
    Key(
        "learn", Kind.SWITCH, Part.START, "keep what drafters learn from answers, here alone", True
    ),
    Key(
        "system",
        Kind.TEXT,
        Part.CHAT,
        "what the model is told first",
        "Be brief.",
        title="System prompt",
    ),
    Key(
        "temperature",
        Kind.NUMBER,
        Part.CHAT,
        "0 for always the likeliest token, up to 100",
        _USUAL.temperature,
    ),
    Key("top_k", Kind.INTEGER, Part.CHAT, "only the k likeliest tokens; 0 for all", _USUAL.top_k),
    Key(
        "top_p",
        Kind.NUMBER,
        Part.CHAT,
        "likeliest tokens of this share; above 0, up to 1",
        _USUAL.top_p,
    ),
    Key(
        "min_p",
        Kind.NUMBER,
        Part.CHAT,
        "least share of the best token's probability; 0 to 1",
        _USUAL.min_p,
    ),
    Key(
        "repeat_penalty",
        Kind.NUMBER,
        Part.CHAT,
        "above 1 repeats less; 1 is off; 0.01 to 100",
        _USUAL.repeat_penalty,
    ),
    Key("seed", Kind.INTEGER, Part.CHAT, "for the same answer again; else drawn", 1),
    Key(
        LOSSY,
        Kind.TEXT,
        Part.CHAT,
        "opt-in lossy rule: typical, ears:0.1 or lenient:2",
        OFF,
    ),
    Key("max_tokens", Kind.INTEGER, Part.CHAT, "the longest answer in tokens", DEFAULT_MAX_TOKENS),
    Key(
        "theme", Kind.TEXT, Part.APP, "colours of the app; Ctrl+P lists the themes", "textual-dark"
    ),
    Key("animations", Kind.SWITCH, Part.APP, "whether anything on the screen moves smoothly", True),
    Key("enter_sends", Kind.SWITCH, Part.APP, "false: Enter begins a line, Ctrl+J sends", True),
    Key(
        "panel",
        Kind.TEXT,
        Part.APP,
        "the live panel; auto shows it where there is room",
        "auto",
        ("auto", "shown", "hidden"),
    ),
)
BY_NAME = {key.name: key for key in KEYS}
CHAT_KEYS = tuple(key for key in KEYS if key.part is Part.CHAT)
APP_KEYS = tuple(key for key in KEYS if key.part is Part.APP)
PRESET_KEYS = tuple(key for key in CHAT_KEYS if key.name != "seed")


def as_sampling(values: Mapping[str, Value]) -> dict[str, Any]:
    """Values of keys about sampling, as SamplingSettings has them.

    Raises:
        UsageError: the text of a lossy rule cannot be read.
    """
    found: dict[str, Any] = {name: values[name] for name in SAMPLING if name in values}
    if LOSSY in found:
        found[LOSSY] = parse_lossy(found[LOSSY])
    return found


def known(name: str, names: Iterable[str], what: str) -> str:
    """The name, if it is among names. what: how the error begins.

    Raises:
        UsageError: it is not; the nearest one is named, or all.
    """
    names = sorted(names)
    if name in names:
        return name
    begun = [one for one in names if name and one.startswith(name.lower())]
    near = begun or difflib.get_close_matches(name, names, n=1)
    listed = f"known: {', '.join(names)}" if names else "there is none"
    raise UsageError(what, f"nearest: {', '.join(near)}" if near else listed)


def parsed(key: Key, text: str) -> Value:
    """A value typed or given in a variable.

    Raises:
        UsageError: it is of the wrong kind or out of range.
    """
    value: Value = text
    try:
        if key.kind is Kind.INTEGER:
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
    """What a key's variable sets, None where it sets nothing.

    Raises:
        UsageError: it is of the wrong kind or out of range.
    """
    text = os.environ.get(variable_of(name))
    if not text:
        return None
    try:
        return parsed(BY_NAME[name], text)
    except UsageError as error:
        raise unusable(name, text, error) from error


def variable_of(name: str) -> str:
    """The variable that sets a key."""
    return f"{PREFIX}{name.upper()}"


def shown(value: object) -> str:
    """A value as an error shows it: cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "so large a number"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def unusable(name: str, value: Value, error: UsageError) -> UsageError:
    """What is wrong with the value of a key's variable, by what is wrong with such a value."""
    return UsageError(f"{variable_of(name)} cannot be {shown(value)}", error.why, error.remedy)


def checked(key: Key, value: object) -> Value:
    """A value of the right kind and in range.

    Raises:
        UsageError: it is not.
    """
    wanted = {
        Kind.TEXT: str,
        Kind.INTEGER: int,
        Kind.NUMBER: (int, float),
        Kind.SWITCH: bool,
    }[key.kind]
    is_switch = isinstance(value, bool)
    if not isinstance(value, wanted) or is_switch != (key.kind is Kind.SWITCH):
        raise _wrong_kind(key, value)
    assert isinstance(value, str | int | float)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise UsageError(f"{key.name} cannot be {shown(value)}", "it is out of range")
    if key.choices:
        known(str(value), key.choices, f"{key.name} cannot be {shown(value)}")
    if isinstance(value, str):
        _check_text(key, value)
    _check_range(key.name, value)
    return value


def _check_text(key: Key, text: str) -> None:
    what = f"{key.name} cannot be {shown(text)}"
    if "\0" in text:
        raise UsageError(what, "it holds a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(what, "it is not valid Unicode") from error


def _check_range(name: str, value: Value) -> None:
    try:
        if name in SAMPLING:
            replace(_USUAL, **as_sampling({name: value}))
        elif name in RANGES and not isinstance(value, str):
            check_range(name, value)
        elif name == "backend":
            check_backend(str(value))
    except UsageError as error:
        raise UsageError(f"{name} cannot be {shown(value)}", error.why, error.remedy) from error
    if name == "max_tokens" and isinstance(value, int) and value < 1:
        raise UsageError(f"{name} cannot be {shown(value)}", "it is at least 1")


def _wrong_kind(key: Key, value: object) -> UsageError:
    return UsageError(f"{key.name} cannot be {shown(value)}", f"it is {key.kind}")
