"""A client that goes away while its prompt is built, at every moment of it."""

import asyncio
from concurrent.futures import Future
from typing import Any, cast

import pytest

pytest.importorskip("uvicorn")

from app.chat.conversation import Conversation
from app.engine.answer import Answer
from app.engine.reply import Request
from app.serve.served_engine import ServedEngine, template_note
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings
from tests.app.serve.conftest import Serve
from tests.fixtures.channels import CHANNELS
from tests.fixtures.scripted import ScriptedModel

HI = Request(Conversation("", [Message("user", "hi")]), SamplingSettings(temperature=0.0), 10)


def test_a_check_that_is_cancelled_never_goes_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(ScriptedModel(["a"])).served
    cancelled = 0
    while asyncio.run(_cancelled_after(cancelled, served, monkeypatch)):
        cancelled += 1
    assert cancelled > 2  # the loop takes some turns to pass a result on


async def _cancelled_after(
    turns: int, served: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Cancel a check some turns of the loop after its prompt is built; false if it has ended."""
    built: Future[int] = Future()
    monkeypatch.setattr(served.engine, "prepare", lambda _answer: built)
    check = asyncio.create_task(served.check(served.models.first, [Answer(HI)]))
    await asyncio.sleep(0)
    built.set_result(1)
    for _ in range(turns):
        await asyncio.sleep(0)
    if check.done():
        return False
    check.cancel()
    await asyncio.wait({check})
    assert check.cancelled()
    return True


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "ships no chat template"),
        ("{% for %}", "failed (TemplateSyntaxError"),
        ("{{ raise_exception('no') }}", "refuses this conversation: no"),
        ("Hi there", "leaves it out"),
        (CHANNELS, ""),
    ],
)
def test_what_is_wrong_with_a_template_is_known_before_anyone_asks(
    serve: Serve, template: str | None, words: str
) -> None:
    model = ScriptedModel(["a"])
    cast("Any", model.tokenizer).chat_template = template
    note = template_note(serve(model).served.engine)
    assert (words in note) if words else note == ""
