"""Templates of the known families, put together from their forms: none loses what was said."""

import random
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import cast

import pytest
from jinja2 import Template

from backends.chat import template_worker
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import Render, TemplateProcess
from tests.fixtures.tokenizers import ByteTokenizer


class JinjaHere:
    """Stands for TemplateProcess: renders as its child does, without one."""

    @contextmanager
    def opened(self, template: str, *, starts_next: bool = True) -> Generator[Render]:
        """Open for a prompt."""
        del starts_next
        make = cache(lambda: _compiled(template))
        yield lambda variables, most: template_worker._rendered(make, variables, most)


@cache
def _compiled(source: str) -> Template:
    return template_worker._environment().from_string(source)


@dataclass(frozen=True)
class Family:
    """What stands around contents. system: where it goes by itself. alters: changes contents."""

    user: tuple[str, str]
    assistant: tuple[str, str]
    system: tuple[str, str] = ("", "\n\n")
    head: str = ""
    tail: str = ""
    alters: str = ""


def _chatml(role: str) -> tuple[str, str]:
    return f"<|im_start|>{role}\n", "<|im_end|>\n"


def _header(role: str) -> tuple[str, str]:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"


def _piped(role: str, end: str = "<|end|>\n") -> tuple[str, str]:
    return f"<|{role}|>\n", end


def _turn(role: str) -> tuple[str, str]:
    return f"<start_of_turn>{role}\n", "<end_of_turn>\n"


def _named(role: str, end: str = "\n") -> tuple[str, str]:
    return f"{role}: ", end


def _cohere(role: str) -> tuple[str, str]:
    return f"<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>", "<|END_OF_TURN_TOKEN|>"


def _started(role: str) -> tuple[str, str]:
    return f"<|start|>{role}<|message|>", "<|end|>"


def _granite(role: str) -> tuple[str, str]:
    return f"<|start_of_role|>{role}<|end_of_role|>", "<|end_of_text|>\n"


_THOUGHTS = " | replace('</think>', '<end>') | replace('/no_think', '') | trim"
_LAST = ".split('</think>')[-1].lstrip('\\n')"

FAMILIES = {
    "ChatML": Family(_chatml("user"), _chatml("assistant"), _chatml("system")),
    "Qwen with thinking": Family(
        _chatml("user"), _chatml("assistant"), _chatml("system"), tail="<think>\n", alters=_LAST
    ),
    "Nemotron": Family(
        _chatml("user"), _chatml("assistant"), _chatml("system"), "<SPECIAL>", alters=_THOUGHTS
    ),
    "SmolLM": Family(
        _chatml("user"), _chatml("assistant"), _chatml("system"), tail="<think>\n\n</think>\n"
    ),
    "Kimi": Family(
        ("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        ("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
        ("<|im_system|>system<|im_middle|>", "<|im_end|>"),
    ),
    "Llama 2": Family(
        ("<s>[INST] ", " [/INST]"),
        (" ", " </s>"),
        ("<<SYS>>\n", "\n<</SYS>>\n\n"),
        alters=".strip()",
    ),
    "Llama 3": Family(
        _header("user"),
        _header("assistant"),
        _header("system"),
        "{{ bos_token }}",
        alters=" | trim",
    ),
    "Mistral": Family(("[INST] ", " [/INST]"), (" ", "</s>"), head="{{ bos_token }}"),
    "Mistral with system": Family(
        ("[INST]", "[/INST]"), ("", "</s>"), ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), "<s>"
    ),
    "Gemma": Family(_turn("user"), _turn("model"), head="{{ bos_token }}", alters=" | trim"),
    "Phi 3": Family(_piped("user"), _piped("assistant"), _piped("system")),
    "Phi 4": Family(
        ("<|im_start|>user<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>system<|im_sep|>", "<|im_end|>"),
    ),
    "DeepSeek": Family(
        ("<｜User｜>", ""),  # noqa: RUF001
        ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001
        ("", ""),
        "<｜begin▁of▁sentence｜>",  # noqa: RUF001
        "<think>\n",
        _LAST,
    ),
    "GLM": Family(
        ("<|user|>\n", ""), ("<|assistant|>\n", ""), ("<|system|>\n", ""), "[gMASK]<sop>"
    ),
    "Command R": Family(
        _cohere("USER"), _cohere("CHATBOT"), _cohere("SYSTEM"), "<BOS_TOKEN>", alters=" | trim"
    ),
    "gpt-oss": Family(
        _started("user"),
        ("<|start|>assistant<|channel|>final<|message|>", "<|end|>"),
        ("<|start|>developer<|message|># Instructions\n\n", "<|end|>"),
        "<|start|>system<|message|>Reasoning: medium\n<|end|>",
    ),
    "Granite": Family(_granite("user"), _granite("assistant"), _granite("system")),
    "Zephyr": Family(
        _piped("user", "</s>\n"), _piped("assistant", "</s>\n"), _piped("system", "</s>\n")
    ),
    "Vicuna": Family(_named("USER", " "), _named("ASSISTANT", "</s>"), ("", " ")),
    "Falcon": Family(_named("User"), _named("Falcon"), ("", "\n\n")),
    "Alpaca": Family(("### Instruction:\n", "\n\n"), ("### Response:\n", "\n\n"), ("", "\n\n")),
    "OpenChat": Family(
        ("GPT4 Correct User: ", "<|end_of_turn|>"), ("GPT4 Correct Assistant: ", "<|end_of_turn|>")
    ),
    "EXAONE": Family(
        ("[|user|]", "\n"), ("[|assistant|]", "[|endofturn|]\n"), ("[|system|]", "\n")
    ),
    "Hunyuan": Family(("<|extra_0|>", ""), ("<|extra_4|>", "<|eos|>"), ("<|extra_1|>", "\n")),
    "Idefics": Family(
        ("User: ", "<end_of_utterance>\n"),
        ("Assistant: ", "<end_of_utterance>\n"),
        ("System: ", "<end_of_utterance>\n"),
        "<|im_start|>",
    ),
}

CONTENTS = {
    "a text": "m.content",
    "either": (
        "(m.content if m.content is string else (m.content | map(attribute='text') | join))"
    ),
    "the first part": "(m.content[0].text ~ '')",
    "parts of a type": (
        "(m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join)"
    ),
    "parts, texts of the system": (
        "(m.content if m.role == 'system' else"
        " (m.content | selectattr('text', 'defined') | map(attribute='text') | join))"
    ),
}
"""How a template reads a content."""

REFUSED = "{{ raise_exception('The system role is not supported') }}"
SYSTEMS = {
    "anywhere": "[system]",
    "first": (
        "{% if not loop.first %}{{ raise_exception('System message must be first') }}{% endif %}"
        "[system]"
    ),
    "silently first": "{% if loop.first %}[system]{% endif %}",
    "refused": REFUSED,
    "ignored": "",
    "in the first turn": "in the first turn",
    "in the last turn": "in the last turn",
}
"""What a template does with a system message."""

ALTERNATES = {
    "any": "",
    "by place": (
        "{% for m in messages %}{% if (m.role == 'user') != ((loop.index0 + start) % 2 == 0) and"
        " m.role != 'system' %}{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}"
    ),
    "by count": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role != 'system' %}"
        "{% if (m.role == 'user') != (ns.n % 2 == 0) %}"
        "{{ raise_exception('After the optional system message, roles must alternate') }}"
        "{% endif %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
    ),
}
"""What a template demands of the order."""


def source_of(family: Family, content: str, system: str, order: str) -> str:
    """A template of these forms."""

    def written(marks: tuple[str, str], name: str = "m") -> str:
        read = CONTENTS[content].replace("m.", f"{name}.")
        before, after = (repr(mark) for mark in marks)
        return f"{{{{ {before} ~ ({read}{family.alters}) ~ {after} }}}}"

    own = SYSTEMS[system].replace("[system]", written(family.system))
    user = written(family.user)
    if system.endswith("turn"):  # the system message stands inside a user's
        own = ""
        place = "loop.index0 == start" if system == "in the first turn" else "loop.last"
        opening, end = (repr(mark) for mark in family.user)
        inside = written(family.system, "messages[0]")
        plain = written(("", ""))
        user = (
            f"{{{{ {opening} }}}}{{% if start and {place} %}}{inside}{{% endif %}}{plain}"
            f"{{{{ {end} }}}}"
        )
    return (
        "{% set start = 1 if messages[0].role == 'system' else 0 %}"
        f"{ALTERNATES[order]}{family.head}"
        "{% for m in messages %}"
        f"{{% if m.role == 'system' %}}{own}"
        f"{{% elif m.role == 'user' %}}{user}"
        f"{{% elif m.role == 'assistant' %}}{written(family.assistant)}{{% endif %}}"
        "{% endfor %}"
        f"{{{{ {family.assistant[0] + family.tail!r} if add_generation_prompt }}}}"
    )


CONVERSATIONS = {
    "one question": ["user"],
    "usual": ["system", "user", "assistant", "user"],
    "two questions in a row": ["user", "user", "assistant", "user"],
    "a later system message": ["system", "user", "assistant", "user", "system", "user"],
    "a greeting": ["system", "assistant", "user", "user", "assistant", "assistant", "user"],
    "a stopped question": ["user", "assistant", "user", "user"],
}

ALL = list(product(FAMILIES, CONTENTS, SYSTEMS, ALTERNATES))
RARE = [name for name in CONVERSATIONS if name != "usual"]
SAMPLE = random.Random(34).sample(ALL, 200)


def check(one: tuple[str, ...], conversations: Iterable[str]) -> None:
    """Each message of each conversation stands in the prompt once, and turns in their order."""
    family, content, system, order = one
    source = source_of(FAMILIES[family], content, system, order)
    tokenizer = ByteTokenizer(source)
    template = ChatTemplate(tokenizer, cast("TemplateProcess", JinjaHere()))
    for name in conversations:
        roles = CONVERSATIONS[name]
        said = [Message(role, f"{role} says {place}: né?") for place, role in enumerate(roles)]
        made = template.prompt(said)
        text = tokenizer.spell(made.tokens)
        about = f"{name}\n{text}\n{source}"
        assert (made.note, made.stops) == ("", ()), about
        assert [text.count(turn.content) for turn in said] == [1] * len(said), about
        places = [text.index(turn.content) for turn in said if turn.role != "system"]
        assert places == sorted(places), about
        assert "'text'" not in text, about
        assert text.endswith(FAMILIES[family].assistant[0] + FAMILIES[family].tail), about


@pytest.mark.parametrize("family", FAMILIES)
def test_in_a_template_of_a_familys_forms_all_that_was_said_stands_once(family: str) -> None:
    for number, one in enumerate(SAMPLE):
        if one[0] == family:
            check(one, ["usual", RARE[number % len(RARE)]])


@pytest.mark.nightly
def test_in_every_template_of_the_families_forms_all_that_was_said_stands_once() -> None:
    for one in ALL:
        check(one, CONVERSATIONS)
