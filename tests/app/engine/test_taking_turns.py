"""Conversations that take turns, or go on after a restart: none is read again, in either engine."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache import state_keeper
from app.prompt_cache.saved_states import SavedStates
from backends.files import attention as rollback_depth
from tests.fixtures.sessions import answered
from tests.fixtures.tiny.models import write_lfm2

LETTERS = "".join(chr(ord("a") + (place * place * 7 + place) % 26) for place in range(322))
"""A token each in every vocabulary here."""

LATER = (LETTERS, "I did.", "And now?")
SHORT = "Give this conversation a title of four words, please. " * 2
Ask = Callable[..., Answer]
KINDS = ("llamacpp", "llamacpp hybrid", "mlx", "mlx hybrid")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small model of random weights of each kind."""
    if request.param.startswith("mlx"):
        pytest.importorskip("mlx.core", reason="MLX is not installed")
        small: Callable[..., Path] = request.getfixturevalue("small_mlx")
        return small("hybrid" if request.param.endswith("hybrid") else "plain")
    request.getfixturevalue("llamacpp")
    if request.param.endswith("hybrid"):
        return write_lfm2(tmp_path / "lfm2.gguf")
    tiny: Callable[..., Path] = request.getfixturevalue("tiny_llama")
    return tiny(seed=4)


@pytest.fixture
def never_on_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is kept is in memory alone; a running state can be marked beside so small a model."""
    monkeypatch.setattr(rollback_depth, "_SHARE", 1)
    monkeypatch.setattr(state_keeper, "_CHANGE_SECONDS", 0.0)
    monkeypatch.setattr(state_keeper, "_CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(state_keeper, "_IDLE_SECONDS", 1e9)
    yield
    assert not list(Paths.of_this_user().saved_states.glob("*.state"))


@contextmanager
def client(model: Path) -> Generator[Ask]:
    """Asks one engine."""
    options = SessionOptions(model=str(model), draft="off", ctx=512, threads=1)
    engine = Engine(options, Paths.of_this_user())
    engine.start()
    try:
        yield lambda *texts: answered(engine, *texts, most=6)
    finally:
        assert engine.close(20)


def cached(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.cached_prompt_tokens


def length(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.prompt_tokens


@pytest.mark.usefixtures("never_on_disk")
def test_a_short_one_between_costs_the_long_one_nothing(model: Path) -> None:
    with client(model) as ask:
        first = ask(LETTERS)
        ask(SHORT)
        found = ask(*LATER)
    with client(model) as ask:
        expected = ask(*LATER)
    assert length(first) > 330
    assert cached(found) >= 0.95 * length(first)
    assert found.token_ids == expected.token_ids
    assert cached(expected) == 0


@pytest.mark.usefixtures("never_on_disk")
def test_without_memory_for_it_the_prompt_is_read_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: nothing else kept it."""
    monkeypatch.setenv("SPECCHAT_PROMPT_MEMORY", "0")
    with client(model) as ask:
        first = ask(LETTERS)
        ask(SHORT)
        assert cached(ask(*LATER)) < 0.1 * length(first)


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
@pytest.mark.usefixtures("llamacpp")
def test_a_restart_changes_no_token_and_computes_nothing_again(uninterrupted: Answer) -> None:
    answer = restarted(lambda: None)
    assert answer.token_ids == uninterrupted.token_ids
    assert cached(answer) == cached(uninterrupted) > 60
    assert len(saved()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_damaged_state_is_computed_again() -> None:
    def damage() -> None:
        (path,) = saved()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    answer = restarted(damage)
    assert cached(answer) == 0
    assert answer.token_ids
