"""Tokenizes the built-in prompts for tests and measurements."""

from app.builtin_prompts import built_in_prompts
from backends.base import Model
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess


def tokenized(model: Model) -> list[tuple[str, list[int]]]:
    """(kind, tokens) of every prompt, through the model's chat template."""
    process = TemplateProcess()
    try:
        template = ChatTemplate(model.tokenizer, process)
        return [
            (prompt.kind, template.prompt([Message("user", prompt.text)]).tokens)
            for prompt in built_in_prompts()
        ]
    finally:
        process.close()
