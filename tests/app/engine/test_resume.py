"""A chat goes on after a restart of the app, on the bundled model: same words, no prefill."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request
from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache.saved_states import SavedStates
from backends.chat.message import Message
from decoding.sampling.distribution import SamplingSettings

pytestmark = pytest.mark.usefixtures("llamacpp")

QUESTIONS = ["Name ten animals and say where each one lives. " * 4, "Which one is the largest?"]


class Run:
    """The app from one start to the next."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        options = SessionOptions(model="demo", draft="off", ctx=1024)
        self.engine = Engine(options, Paths.of_this_user())
        self.engine.start()

    def ask(self, question: str) -> Answer:
        self.messages.append(Message("user", question))
        conversation = Conversation("", list(self.messages))
        answer = self.engine.ask(Request(conversation, SamplingSettings(temperature=0.0), 8))
        assert answer.wait(60)
        assert answer.error is None
        self.messages.append(Message("assistant", answer.text))
        return answer

    def close(self) -> None:
        assert self.engine.close(10.0)


def cached(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.cached_prompt_tokens


def saved() -> list[Path]:
    return sorted(Paths.of_this_user().saved_states.glob("*.state"))


@pytest.fixture
def uninterrupted() -> Answer:
    """The second answer where both were given by one run, which leaves nothing on disk."""
    with closing(Run([])) as run:
        answers = [run.ask(question) for question in QUESTIONS]
    SavedStates(Paths.of_this_user().saved_states).clear()
    return answers[-1]


def restarted(between: Callable[[], None]) -> Answer:
    """The second answer where the app was left and started again before it."""
    messages: list[Message] = []
    with closing(Run(messages)) as run:
        run.ask(QUESTIONS[0])
    assert len(saved()) == 1
    between()
    with closing(Run(messages)) as run:
        return run.ask(QUESTIONS[1])


@pytest.mark.slow
def test_a_restart_changes_no_token_and_computes_nothing_again(uninterrupted: Answer) -> None:
    answer = restarted(lambda: None)
    assert answer.token_ids == uninterrupted.token_ids
    assert cached(answer) == cached(uninterrupted) > 60
    assert len(saved()) == 1


@pytest.mark.slow
def test_a_damaged_state_is_computed_again() -> None:
    def damage() -> None:
        (path,) = saved()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    answer = restarted(damage)
    assert cached(answer) == 0
    assert answer.token_ids
