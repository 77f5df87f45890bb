"""Reads the values of shared options, by precedence, and checks them."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from typer import Context

from app.cli.command import FROM_COMMAND_LINE, FROM_VARIABLE, source_of
from app.cli.terminal import text_input
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.serve.server_options import SERVED_NAMES, ServerOptions
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, CHAT_KEYS, LOSSY, MODEL, checked, from_variable, shown
from app.settings.in_effect import CAUTIOUS
from app.settings.presets import Presets, of_preset
from backends.base import SpecchatError, UsageError
from backends.engines.backend_selection import REMOTE
from decoding.sampling.settings import LossyRule, parse_lossy

_SESSION_NAMES = [one.name for one in fields(SessionOptions) if one.name in BY_NAME]


def session_options(context: Context) -> SessionOptions:
    """A command's session options; those typed before the command's name count too."""
    for name in CAUTIOUS:
        from_variable(name)
    name, preset = _preset(context)
    options = SessionOptions.of(_values(context, _SESSION_NAMES, preset))
    if options.backend != REMOTE and _typed_in(context, "url"):
        why = f"--backend {options.backend} runs a model here"
        remedy = f"To ask it: --backend {REMOTE}"
        raise UsageError("--url names a server that would not be asked", why, remedy)
    if options.model and options.model == preset.get(MODEL) and options.backend != REMOTE:
        from backends.engines.backend_selection import forms
        from models.reference import resolve

        with of_preset(name):
            resolve(options.model, Paths.of_this_user().models, forms=forms(options.backend))
    return options


def own_options(context: Context) -> SessionOptions:
    """Session options of a command that needs a model in this process.

    Raises:
        UsageError: they name a server instead.
    """
    options = session_options(context)
    if options.asks_server:
        why = "with --backend remote a server elsewhere does; programs can ask it themselves"
        raise UsageError("specchat runs no model that programs could ask", why)
    return options


def server_options(context: Context) -> ServerOptions:
    values = _values(context, SERVED_NAMES).items()
    return ServerOptions.of({name: checked_option(name, value) for name, value in values})


def checked_option(name: str, value: Any) -> Any:
    """Return a typed value, or None for none, if its type and range are right."""
    try:
        return None if value is None else checked(BY_NAME[name], value)
    except UsageError as error:
        what = f"--{name.replace('_', '-')} cannot be {shown(value)}"
        raise UsageError(what, error.why, error.remedy) from error


def answer_options(context: Context) -> tuple[str, Answering]:
    """System prompt and options for answers: typed, of the preset, variables, the settings file."""
    values = _values(context, [key.name for key in CHAT_KEYS], _preset(context)[1])
    system = text_input.check(values.pop("system") or "", "the system prompt")
    given = {
        name: checked_option(name, value) for name, value in values.items() if value is not None
    }
    given.setdefault("seed", secrets.randbelow(1 << 32))
    return system, Answering.of(given)


def typed_lossy_rule(context: Context) -> LossyRule | None:
    """The --lossy that was typed, whatever the variable and the settings file hold.

    Raises:
        UsageError: there is no such rule.
    """
    is_typed = bool(_typed_in(context, LOSSY))
    return parse_lossy(_values(context, [LOSSY])[LOSSY]) if is_typed else None


def is_offline(context: Context) -> bool:
    """Whether --offline was given, to the command or before its name, or is set.

    Raises:
        UsageError: the settings file cannot be used; it may forbid the network.
    """
    _check_settings(context)
    return bool(context.params.get("offline") or context.find_root().params.get("offline"))


def _values(
    context: Context, names: Iterable[str], preset: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The values of a command's options, in order of precedence.

    Typed, typed before the command's name, of the preset, of the variable, of the settings file.

    Raises:
        UsageError: the settings file cannot be used, or a variable that no typed option overrides.
    """
    _check_settings(context)
    values: dict[str, Any] = {}
    for name in context.params.keys() & set(names):
        typed = _typed_in(context, name)
        if not typed and preset and name in preset:
            values[name] = preset[name]
            continue
        if not typed and source_of(context, name) == FROM_VARIABLE:
            from_variable(name)
        values[name] = [*typed, context][0].params[name]
    return values


def _preset(context: Context) -> tuple[str, dict[str, Any]]:
    """The preset that was named, after the command's name or before it, and its settings."""
    names = (one.params.get("preset") for one in (context, context.find_root()))
    name = next(filter(None, names), "")
    return name, Presets.of(Paths.of_this_user()).get(name) if name else {}


def _check_settings(context: Context) -> None:
    """Raise the fault of the settings file that was found at the start, if any."""
    if isinstance(context.obj, SpecchatError):
        raise context.obj


def _typed_in(context: Context, name: str) -> list[Any]:
    """Where an option was typed: after the command's name, or before it."""
    both = context, context.find_root()
    return [one for one in both if source_of(one, name) == FROM_COMMAND_LINE]
