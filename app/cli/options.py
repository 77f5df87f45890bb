"""The options commands share, each also an environment variable and a settings key."""

import secrets
from dataclasses import fields
from typing import Annotated, Any

import typer
from typer import Context

from app.session_options import SessionOptions
from app.settings.catalogue import BY_NAME, LOSSY, checked, unusable, variable_of
from backends.base import SpecchatError, UsageError
from decoding.lossy_rule import LossyRule, parse_lossy
from decoding.sampling import SamplingSettings

_FROM_COMMAND_LINE, _FROM_VARIABLE = "COMMANDLINE", "ENVIRONMENT"
_SESSION_OPTIONS = [field.name for field in fields(SessionOptions)]


def _option(key: str, *, metavar: str | None = None, help_text: str | None = None) -> Any:
    """The command line's option of a settings key."""
    comment = help_text or BY_NAME[key].comment
    return typer.Option(
        f"--{key.replace('_', '-')}",
        envvar=variable_of(key),
        help=f"{comment[0].upper()}{comment[1:]}.",
        metavar=metavar,
    )


_DRAFT_HELP = (
    "drafter: auto, off, lookup, retrieval, ngram, jacobi, lookahead[:w=N,n=N,g=N], self[:RECIPE], "
    "a model, cascade(A,B), vote(A,B), tree(A), paths(A), or a comma-separated list"
)

Model = Annotated[str | None, _option("model", metavar="REF")]
Draft = Annotated[str, _option("draft", metavar="SPEC", help_text=_DRAFT_HELP)]
Backend = Annotated[str, _option("backend")]
Ctx = Annotated[int | None, _option("ctx")]
Threads = Annotated[int | None, _option("threads")]
GpuLayers = Annotated[int | None, _option("gpu_layers")]
Offline = Annotated[bool, _option("offline")]
System = Annotated[str | None, _option("system")]
Temperature = Annotated[float, _option("temperature")]
TopK = Annotated[int, _option("top_k")]
TopP = Annotated[float, _option("top_p")]
MinP = Annotated[float, _option("min_p")]
RepeatPenalty = Annotated[float, _option("repeat_penalty")]
Seed = Annotated[int | None, _option("seed")]
Lossy = Annotated[str, _option(LOSSY, metavar="RULE")]
MaxTokens = Annotated[int, _option("max_tokens")]


def session_options(context: Context) -> SessionOptions:
    """Those options that a command has; what was typed before the command's name counts too.

    Raises:
        UsageError: the settings file, or the value of a variable, cannot be used.
    """
    if isinstance(context.obj, SpecchatError):
        raise context.obj
    _check_variables(context)
    values = {name: context.params[name] for name in _SESSION_OPTIONS if name in context.params}
    outer = context.find_root()
    for name in values:
        if _typed(outer, name) and not _typed(context, name):
            values[name] = outer.params[name]
    return SessionOptions(**values)


def lossy_rule(context: Context, *, only_typed: bool = False) -> LossyRule | None:
    """A command's --lossy, or the one typed before its name.

    only_typed: neither a variable nor the settings file counts.

    Raises:
        UsageError: there is no such rule.
    """
    outer = context.find_root()
    if _typed(context, LOSSY):
        return parse_lossy(context.params[LOSSY])
    if _typed(outer, LOSSY):
        return parse_lossy(outer.params[LOSSY])
    return None if only_typed else parse_lossy(context.params[LOSSY])


def is_offline(context: Context, offline: bool) -> bool:
    """A command's own --offline, or the one before its name, or the setting.

    Raises:
        UsageError: the settings file cannot be used; it may forbid the network.
    """
    if isinstance(context.obj, SpecchatError):
        raise context.obj
    return offline or bool(context.find_root().params.get("offline"))


def _check_variables(context: Context) -> None:
    """Refuse what a variable says and nothing that was typed overrules, by the variable's name."""
    outer = context.find_root()
    for name in BY_NAME.keys() & context.params.keys():
        if _source(context, name) != _FROM_VARIABLE or _typed(outer, name):
            continue
        try:
            checked(BY_NAME[name], context.params[name])
        except UsageError as error:
            raise unusable(name, context.params[name], error) from error


def _typed(context: Any, name: str) -> bool:
    """Whether a value comes from the command line, not from a default, setting or variable."""
    return _source(context, name) == _FROM_COMMAND_LINE


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else source.name


def check_max_tokens(max_tokens: int) -> None:
    """Refuse an answer of no tokens.

    Raises:
        UsageError: it is not positive.
    """
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens} is out of range", "it is at least 1")


def sampling(
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    seed: int | None,
    lossy: LossyRule | None,
) -> SamplingSettings:
    """Checked settings; a seed is drawn where none is given.

    Raises:
        UsageError: a value is out of range.
    """
    drawn = secrets.randbelow(1 << 32) if seed is None else seed
    return SamplingSettings(temperature, top_k, top_p, min_p, repeat_penalty, drawn, lossy)
