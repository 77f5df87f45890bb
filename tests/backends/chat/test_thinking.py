"""How much a model thinks is told to its template; off closes what the template opens."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from tests.fixtures.pieces import END, Pieces

ASKS = "{% for m in messages %}{{ m.content }}{% endfor %}|"
SWITCH = (
    ASKS + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
OTHER_SWITCH = ASKS + "{{ 'thinks' if thinking is defined and thinking else 'does not' }}"
DEGREES = ASKS + "{{ reasoning_effort | default('usual') }}"
WITH_NONE = DEGREES + "{% if reasoning_effort == 'none' %}!{% endif %}"
OPENS = ASKS + "{{ '<think>\n' }}"


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    with closing(TemplateProcess()) as started:
        yield started


@pytest.mark.parametrize(
    ("source", "think", "end"),
    [
        (SWITCH, "auto", ""),
        (SWITCH, "off", "<think></think>"),
        (SWITCH, "low", ""),
        (OTHER_SWITCH, "auto", "does not"),
        (OTHER_SWITCH, "on", "thinks"),
        (OTHER_SWITCH, "off", "does not"),
        (DEGREES, "auto", "usual"),
        (DEGREES, "on", "usual"),
        (DEGREES, "medium", "medium"),
        (DEGREES, "off", "low"),
        (WITH_NONE, "off", "none!"),
        (OPENS, "on", "<think>\n"),
        (OPENS, "off", "<think>\n\n</think>\n\n"),
    ],
)
def test_a_template_is_told_as_its_family_reads_it(
    source: str, think: str, end: str, process: TemplateProcess
) -> None:
    tokenizer = Pieces([*(bytes([code]) for code in range(32, 127)), b"\n", END])
    tokenizer.chat_template = source
    template = ChatTemplate(tokenizer, process)
    prompt = template.thinking(think).prompt([Message("user", "Hi")])
    assert tokenizer.text(prompt.tokens).decode() == f"Hi|{end}"
    assert template.thinking("auto") is template
