"""Conversations that take turns: none is read again, in either engine, with a running state too."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache import state_keeper
from backends.files import attention as rollback_depth
from tests.fixtures.sessions import answered
from tests.fixtures.tiny.lfm2 import write_lfm2

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


@pytest.fixture(autouse=True)
def _never_on_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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


def test_without_memory_for_it_the_prompt_is_read_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: nothing else kept it."""
    monkeypatch.setenv("SPECCHAT_PROMPT_MEMORY", "0")
    with client(model) as ask:
        first = ask(LETTERS)
        ask(SHORT)
        assert cached(ask(*LATER)) < 0.1 * length(first)
