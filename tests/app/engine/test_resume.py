"""A chat goes on after a restart of the app, on the bundled model: same words, no prefill."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache.saved_states import SavedStates
from tests.fixtures.sessions import answered

pytestmark = pytest.mark.usefixtures("llamacpp")

QUESTIONS = ["Name ten animals and say where each one lives. " * 4, "Which one is the largest?"]


def run(texts: list[str], *questions: str) -> Answer:
    """The app from one start to the next: the last answer to questions after these texts."""
    engine = Engine(SessionOptions(model="demo", draft="off", ctx=1024), Paths.of_this_user())
    engine.start()
    answer = None
    try:
        for question in questions:
            texts.append(question)
            answer = answered(engine, *texts)
            texts.append(answer.text)
    finally:
        assert engine.close(10.0)
    assert answer is not None
    return answer


def cached(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.cached_prompt_tokens


def saved() -> list[Path]:
    return sorted(Paths.of_this_user().saved_states.glob("*.state"))


@pytest.fixture
def uninterrupted() -> Answer:
    """The second answer where both were given by one run, which leaves nothing on disk."""
    answer = run([], *QUESTIONS)
    SavedStates(Paths.of_this_user().saved_states).clear()
    return answer


def restarted(between: Callable[[], None]) -> Answer:
    """The second answer where the app was left and started again before it."""
    texts: list[str] = []
    run(texts, QUESTIONS[0])
    assert len(saved()) == 1
    between()
    return run(texts, QUESTIONS[1])


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
