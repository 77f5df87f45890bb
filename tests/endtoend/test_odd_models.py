"""Models that are not like the bundled one: no chat template, no rollback."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.events import FinishReason
from tests.fixtures.sessions import new_reply

pytestmark = pytest.mark.usefixtures("llamacpp")


def _answer(model: Path, draft: str) -> tuple[Session, list[int], str]:
    options = SessionOptions(model=str(model), draft=draft, ctx=128)
    session = open_session(options, Paths.of_this_user(), lambda text: None)
    prompt = session.template.prompt([Message("user", "Hello!")])
    reply = new_reply()
    for _ in session.stream(prompt, reply, lambda: False):
        pass
    session.close()
    assert reply.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    return session, reply.token_ids, prompt.note


@pytest.mark.parametrize("draft", ["lookup", "self", "lookup,self"])
def test_a_recurrent_model_answers_undrafted_and_says_why(tiny_mamba: Path, draft: str):
    _, plain, _ = _answer(tiny_mamba, "off")
    session, tokens, _ = _answer(tiny_mamba, draft)
    assert tokens == plain
    assert session.drafting.status.state == "off"
    assert "cannot forget rejected tokens" in session.drafting.status.reason


@pytest.mark.slow
def test_a_model_without_template_gets_a_plain_form_and_a_note(tiny_llama: Callable[..., Path]):
    _, tokens, note = _answer(tiny_llama(), "lookup")
    assert tokens
    assert "no chat template" in note


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_a_padded_drafter_vocabulary_is_no_obstacle(tiny_llama: Callable[..., Path]):
    _, plain, _ = _answer(tiny_llama(), "off")
    padded = tiny_llama(n_vocab=384, noise=0.1)
    session, tokens, _ = _answer(tiny_llama(), str(padded))
    assert tokens == plain
    assert session.drafting.missing == ""
    assert session.drafting.handles[0].member.estimates.judged.judged > 0.0


@pytest.mark.slow
def test_a_recurrent_drafter_is_refused_with_the_reason(
    tiny_llama: Callable[..., Path], tiny_mamba: Path
):
    session, tokens, _ = _answer(tiny_llama(), f"lookup,{tiny_mamba}")
    assert tokens
    assert session.drafting.names == ["lookup"]
    assert "running state" in session.drafting.status.reason
