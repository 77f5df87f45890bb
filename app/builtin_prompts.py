"""Built-in prompts: two of each of six kinds."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("builtin_prompts.toml")


@dataclass(frozen=True, slots=True)
class BuiltInPrompt:
    """A prompt of a kind: chat, code, copy, summary, maths or translation."""

    kind: str
    text: str


def built_in_prompts() -> list[BuiltInPrompt]:
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["prompt"]
    return [BuiltInPrompt(entry["kind"], entry["text"]) for entry in entries]
