"""The prompts that tests and measurements share."""

import tomllib
from pathlib import Path

from backends.base import Model
from backends.chat_template import ChatTemplate, Message
from backends.template_process import TemplateProcess

_FILE = Path(__file__).parents[1] / "tests" / "prompts.toml"


def texts() -> list[tuple[str, str]]:
    """(kind, text) of every prompt."""
    return [(entry["kind"], entry["text"]) for entry in tomllib.loads(_FILE.read_text())["prompt"]]


def tokenized(model: Model) -> list[tuple[str, list[int]]]:
    """(kind, tokens) of every prompt, through the model's chat template."""
    process = TemplateProcess()
    try:
        template = ChatTemplate(model.tokenizer, process)
        return [(kind, template.prompt([Message("user", text)]).tokens) for kind, text in texts()]
    finally:
        process.close()
