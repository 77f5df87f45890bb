"""Files in requests, sent by OpenAI's and Anthropic's own clients."""

# ruff: noqa: RUF001

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.app.serve.conftest import Spoken, question

FILES = Path(__file__).parents[2] / "fixtures" / "other_programs"
LATIN = "Müller schuldet 5 €.".encode("cp1252")
HTML = b"<p>Seen</p><script>unseen</script>"

Ask = Callable[[Spoken, list[Any]], object]


def chat(spoken: Spoken, content: list[Any]) -> object:
    with openai.OpenAI(
        base_url=f"{spoken.server.address}/v1", api_key="none", max_retries=0
    ) as one:
        messages: list[Any] = [{"role": "user", "content": content}]
        return one.chat.completions.create(model="any", messages=messages)


def responses(spoken: Spoken, content: list[Any]) -> object:
    with openai.OpenAI(
        base_url=f"{spoken.server.address}/v1", api_key="none", max_retries=0
    ) as one:
        asked: list[Any] = [{"role": "user", "content": content}]
        return one.responses.create(model="any", input=asked)


def messages(spoken: Spoken, content: list[Any]) -> object:
    with anthropic.Anthropic(base_url=spoken.server.address, api_key="none", max_retries=0) as one:
        asked: list[Any] = [{"role": "user", "content": content}]
        one.messages.count_tokens(model="any", messages=asked)
        return one.messages.create(model="any", max_tokens=50, messages=asked)


def file_part(ask: Ask, data: bytes, name: str, media_type: str) -> Any:
    encoded = b64encode(data).decode()
    if ask is messages:
        source = {"type": "base64", "media_type": media_type, "data": encoded}
        return {"type": "document", "source": source, "title": name}
    file = {"filename": name, "file_data": f"data:{media_type};base64,{encoded}"}
    return {"type": "file", "file": file} if ask is chat else {"type": "input_file", **file}


def text_part(ask: Ask, text: str) -> Any:
    return {"type": "input_text" if ask is responses else "text", "text": text}


@pytest.mark.parametrize("ask", [chat, responses, messages])
def test_files_are_read_where_they_stand(spoken: Spoken, ask: Ask) -> None:
    spoken.say("Yes.")
    asked = question()
    pdf = (FILES / "frogs.pdf").read_bytes()
    parts = [
        text_part(ask, "Here:"),
        file_part(ask, pdf, "отчёт.pdf", "application/pdf"),
        file_part(ask, LATIN, "debts.txt", "text/plain"),
        file_part(ask, HTML, "page", "text/html"),
        text_part(ask, asked),
    ]
    ask(spoken, parts)
    begins, _, rest = spoken.prompt.partition("Here:\n\nотчёт.pdf:\n```\nFrogs\n")
    assert begins.endswith("<|im_start|>user\n")
    assert "\n```\n\ndebts.txt:\n```\nMüller schuldet 5 €.\n```\n\n" in rest
    assert f"page.html:\n```\nSeen\n```\n\n{asked}<|im_end|>" in rest


def test_a_document_of_text(spoken: Spoken) -> None:
    spoken.say("Yes.")
    source = {"type": "text", "media_type": "text/plain", "data": "Grüße, world"}
    messages(spoken, [{"type": "document", "source": source}, text_part(messages, question())])
    assert "document:\n```\nGrüße, world\n```" in spoken.prompt


REFUSED = [
    (chat, {"type": "file", "file": {"file_id": "file-1"}}, "none is fetched"),
    (chat, {"type": "file", "file": {"file_data": "data:a;base64,?"}}, "is not base64"),
    (responses, {"type": "input_file", "file_url": "https://example.org/a.pdf"}, "none is fetched"),
    (
        messages,
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        "send the file itself, in base64",
    ),
]


@pytest.mark.parametrize(("ask", "part", "told"), REFUSED)
def test_a_file_that_did_not_come_along_is_refused(
    spoken: Spoken, ask: Ask, part: Any, told: str
) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=told):
        ask(spoken, [part])


@pytest.mark.parametrize("ask", [chat, responses, messages])
def test_a_file_that_cannot_be_read_says_why(spoken: Spoken, ask: Ask) -> None:
    part = file_part(ask, (FILES / "scan.pdf").read_bytes(), "bill.pdf", "application/pdf")
    with pytest.raises(
        (openai.BadRequestError, anthropic.BadRequestError), match=r"bill\.pdf has no text: a scan"
    ):
        ask(spoken, [part])
