"""Replies of the bundled model to the prompts of the bench, recorded in a file for replay.

One JSON object a line: once at temperature 0 and with five seeds at 0.8.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from app.bench.suite import SUITES, tasks
from backends import llamacpp
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampling.settings import SamplingSettings
from models.stores.available_models import demo_path

_SEEDS = 6
_TOKENS = 192


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the model. number: of its prompt among those of a kind."""

    kind: str
    number: int
    seed: int
    temperature: float
    prompt: list[int]
    reply: list[int]

    @property
    def text(self) -> list[int]:
        """Prompt and reply."""
        return self.prompt + self.reply


def recorded(path: Path) -> list[Reply]:
    """The replies of a file, made if it is missing."""
    if not path.exists():
        _record(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Reply(**json.loads(line)) for line in lines]


def _record(path: Path) -> None:
    """Let the bundled model answer."""
    demo = demo_path()
    assert demo is not None
    model = llamacpp.load(demo)
    context, process = model.open(2048), TemplateProcess()
    template = ChatTemplate(model.tokenizer, process)
    with path.open("w", encoding="utf-8") as file:
        for seed in range(_SEEDS):
            settings = SamplingSettings(0.8 if seed else 0.0, seed=seed)
            for task in tasks(SUITES["full"]):
                prompt = list(template.prompt([Message("user", task.text)]).tokens)
                limits = Limits(_TOKENS, model.tokenizer.end_tokens)
                events = generate(context, prompt, settings, limits)
                said = [one for event in events if isinstance(event, Step) for one in event.tokens]
                reply = Reply(task.kind, task.number, seed, settings.temperature, prompt, said)
                file.write(json.dumps(asdict(reply)) + "\n")
    process.close()
    model.close()
