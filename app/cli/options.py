"""Options shared by commands, each also an environment variable and a settings key."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from app import completion
from app.loading.session_options import AUTO_LAYERS, DEFAULT_PARALLEL, MOST_PARALLEL, STREAM_AUTO
from app.settings.catalogue import (
    BY_NAME,
    DEFAULT_HOST,
    DEFAULT_MAX_TOKENS,
    DEFAULT_PORT,
    LOSSY,
    variable_of,
)
from backends.chat.reply_form import THINK_AUTO
from decoding.sampling.settings import OFF, SamplingSettings

_USUAL = SamplingSettings()


def option(
    name: str,
    kind: Any,
    default: object,
    metavar: str | None = None,
    *,
    help_text: str = "",
    complete: Callable[[str], Any] | None = None,
    parser: Callable[[Any], Any] | None = None,
) -> inspect.Parameter:
    """A parameter that adds an option to a command.

    A key of the settings also gets its variable, and by default its comment as help. parser: reads
    a typed value; without one, kind does.
    """
    key = BY_NAME.get(name)
    text = help_text or (key.comment if key else "")
    declared = typer.Option(
        f"--{name.replace('_', '-')}",
        envvar=variable_of(name) if key else None,
        help=f"{text[:1].upper()}{text[1:]}.",
        metavar=metavar,
        autocompletion=complete,
        parser=parser,
    )
    annotation = Annotated[kind, declared]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def argument(metavar: str, text: str, complete: Callable[[str], Any]) -> Any:
    """An argument of a command that a shell completes."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete)


def _layers(value: Any) -> int | str:
    if value == AUTO_LAYERS:
        return AUTO_LAYERS
    try:
        return int(value)
    except ValueError:
        what = f"{value!r} is neither a whole number nor {AUTO_LAYERS}."
        raise typer.BadParameter(what) from None


_DRAFT_HELP = (
    "drafter: auto, off, lookup, retrieval, ngram, jacobi, lookahead[:w=N,n=N,g=N], self[:RECIPE], "
    "a model (cpu:MODEL: on the processor), mtp, eagle3, hydra, dflash, dspark or assistant (what "
    "was trained for the model; [:FILE]), cascade(A,B), vote(A,B), tree(A), paths(A), or a "
    "comma-separated list"
)

Folder = Annotated[
    str | None,
    typer.Option(
        "--folder", metavar="FOLDER", help="Answer with what a folder, pattern or file says."
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="TOOL", help="A server's tool that may be called."),
]
MODEL = option("model", str | None, None, "REF", complete=completion.models)
DRAFT = option("draft", str, "auto", "SPEC", help_text=_DRAFT_HELP, complete=completion.drafters)
BACKEND = option("backend", str, "auto", "NAME", complete=completion.backends)
REMOTE = (
    option("url", str | None, None, "URL"),
    option("remote_key_file", str | None, None, "FILE"),
)
CTX = option("ctx", int | None, None, "N")
THREADS = option("threads", int | None, None, "N")
GPU_LAYERS = option("gpu_layers", str, AUTO_LAYERS, "N|auto", parser=_layers)
RPC = option("rpc", str | None, None, "HOST:PORT,…")
KV = option("kv", str | None, None, "TYPE", complete=completion.kv_choices)
STREAM = option("stream", str, STREAM_AUTO, "WHEN", complete=completion.stream_choices)
OFFLINE = option("offline", bool, False)
LOSSY_RULE = option(LOSSY, str, OFF, "RULE")
TOOLS_ON = option("tools", str, OFF, "NAMES")
SESSION = (MODEL, DRAFT, BACKEND, *REMOTE, CTX, THREADS, GPU_LAYERS, RPC, KV, STREAM, OFFLINE)
"""What a session is opened with: the fields of SessionOptions."""

SERVER = (
    option("host", str, DEFAULT_HOST, "ADDRESS"),
    option("port", int, DEFAULT_PORT, "N"),
    option("key_file", str | None, None, "FILE"),
    option("allow_host", str | None, None, "NAMES"),
)
"""Where the server listens, and who may ask it."""

SERVED = (option("models", str | None, None, "A,B"), option("unload_after", float, 0.0, "MINUTES"))
"""Which models the server answers with."""

PARALLEL = option("parallel", int, DEFAULT_PARALLEL, "N")
PARALLEL_IN_BATCH = option("parallel", int, MOST_PARALLEL, "N")
"""Nobody waits for one of them."""

PRESET = option(
    "preset",
    str | None,
    None,
    "NAME",
    help_text="a preset's instructions and settings; typed options override it",
    complete=completion.presets,
)
ANSWER = (
    PRESET,
    option("system", str | None, None, "TEXT"),
    option("temperature", float, _USUAL.temperature, "T"),
    option("top_k", int, _USUAL.top_k, "K"),
    option("top_p", float, _USUAL.top_p, "P"),
    option("min_p", float, _USUAL.min_p, "P"),
    option("repeat_penalty", float, _USUAL.repeat_penalty, "R"),
    option("seed", int | None, None, "N"),
    LOSSY_RULE,
    option("max_tokens", int, DEFAULT_MAX_TOKENS, "N"),
    option("think", str, THINK_AUTO, "HOW", complete=completion.efforts),
    option("think_budget", int, 0, "N"),
    TOOLS_ON,
)
"""How answers are made."""


def with_options(
    *parameters: inspect.Parameter,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options to a command, which reads their values from its context."""
    names = {parameter.name for parameter in parameters}

    def added(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            command(**{name: value for name, value in values.items() if name not in names})

        signature = inspect.signature(command)
        own = signature.parameters.values()
        named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        vars(run)["__signature__"] = signature.replace(parameters=[*named, *parameters])
        return run

    return added
