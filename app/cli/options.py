"""Options shared by commands, each also an environment variable and a settings key."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from app.cli import completion
from app.settings.catalogue import BY_NAME, DEFAULT_MAX_TOKENS, LOSSY, variable_of
from decoding.lossy_rule import OFF
from decoding.sampling import SamplingSettings

_USUAL = SamplingSettings()


def option(
    name: str,
    kind: Any,
    default: object,
    help_text: str,
    metavar: str | None = None,
    complete: Callable[[str], Any] | None = None,
) -> inspect.Parameter:
    """A parameter that adds an option to a command; keys of the settings get their variable."""
    declared = typer.Option(
        f"--{name.replace('_', '-')}",
        envvar=variable_of(name) if name in BY_NAME else None,
        help=help_text,
        metavar=metavar,
        autocompletion=complete,
    )
    annotation = Annotated[kind, declared]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


MODEL = option(
    "model",
    str | None,
    None,
    "Alias, .gguf file, MLX folder, or name in the models folder.",
    "REF",
    completion.models,
)
DRAFT = option(
    "draft",
    str,
    "auto",
    "auto, off, lookup, retrieval, ngram, jacobi, lookahead[:w=N,n=N,g=N], self[:RECIPE], "
    "a model, cascade(A,B), vote(A,B), tree(A), paths(A), or a comma list of them.",
    "SPEC",
    completion.drafters,
)
BACKEND = option(
    "backend", str, "auto", "auto, llamacpp or mlx.", "NAME", complete=completion.backends
)
CTX = option("ctx", int | None, None, "Context in tokens.", "N")
THREADS = option("threads", int | None, None, "Processor threads (default: physical cores).", "N")
GPU_LAYERS = option("gpu_layers", int | None, None, "Layers on the GPU (default: all).", "N")
OFFLINE = option("offline", bool, False, "Never use the network.")
LOSSY_RULE = option(
    LOSSY,
    str,
    OFF,
    "Accept more drafted tokens than is exact: off, typical, ears:0.1, lenient:2.",
    "RULE",
)
SESSION = (MODEL, DRAFT, BACKEND, CTX, THREADS, GPU_LAYERS, OFFLINE)
"""What a session is opened with: the fields of SessionOptions."""

ANSWER = (
    option(
        "preset",
        str | None,
        None,
        "A preset of the settings file; options given here override it.",
        "NAME",
        completion.presets,
    ),
    option("system", str | None, None, "System prompt.", "TEXT"),
    option("temperature", float, _USUAL.temperature, "0 always takes the likeliest token.", "T"),
    option("top_k", int, _USUAL.top_k, "Only the K likeliest tokens; 0 for all.", "K"),
    option(
        "top_p",
        float,
        _USUAL.top_p,
        "Only the likeliest tokens, up to cumulative probability P.",
        "P",
    ),
    option(
        "min_p", float, _USUAL.min_p, "Only tokens at least P times as likely as the best.", "P"
    ),
    option("repeat_penalty", float, _USUAL.repeat_penalty, "Above 1 repeats less; 1 is off.", "R"),
    option("seed", int | None, None, "Repeats an answer exactly; random when absent.", "N"),
    LOSSY_RULE,
    option("max_tokens", int, DEFAULT_MAX_TOKENS, "Longest answer, in tokens.", "N"),
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
