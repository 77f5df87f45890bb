"""Child process that renders one chat template; run by path, reads and writes lines of JSON.

A template is an untrusted program. The sandbox isolates it from the system, the limits below bound
its memory and processor time, and the parent kills the process if it takes too long.
"""

# what Jinja calls globals and filters is untyped:
# pyright: reportUnknownMemberType=false

import json
import os
import sys
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template

MAX_MEMORY_BYTES = 1 << 29
MAX_SECONDS = 10


class GenerationBlock(Extension):
    """`{% generation %}`, with which some templates mark the model's reply; the body is kept."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a plain set

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any
) -> str:
    """The filter of the reference, which takes options of json.dumps: separators, sort_keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationBlock]
    )
    now: Callable[[str], str] = lambda form: datetime.now().strftime(form)  # noqa: E731
    environment.globals.update(raise_exception=_raise_exception, strftime_now=now)
    environment.filters["tojson"] = _to_json
    return environment


def _limit_resources() -> None:
    """Bound memory and processor time, except on Windows."""
    if sys.platform == "win32":
        return
    import resource

    for kind, most in ((resource.RLIMIT_AS, MAX_MEMORY_BYTES), (resource.RLIMIT_CPU, MAX_SECONDS)):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            continue


def _rendered(make: "Callable[[], Template]", variables: Any, max_chars: int) -> dict[str, str]:
    try:
        text = make().render(variables)
        over = len(text) > max_chars
        return {"error": f"it wrote {len(text):,} characters"} if over else {"text": text}
    except MemoryError:
        return {"error": "it asked for too much memory"}
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
        return {"error": why.encode(errors="replace").decode()}


def main() -> None:
    """Read a template, then lines of [variables, max_chars]; write {text} or {error} for each."""
    environment, lines = _environment(), sys.stdin.buffer
    source = json.loads(lines.readline())
    make = cache(lambda: environment.from_string(source))
    _limit_resources()
    for line in lines:
        answer = _rendered(make, *json.loads(line))
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # to take the interpreter down takes 20 ms, for which the prompt would wait
