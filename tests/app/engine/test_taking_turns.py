"""Conversations that take turns: none is read again, in either engine, with a running state too."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request
from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache import state_keeper
from backends.chat.message import Message
from backends.files import attention as rollback_depth
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.lfm2 import write_lfm2

GREEDY = SamplingSettings(temperature=0.0)
LETTERS = "".join(chr(ord("a") + (place * place * 7 + place) % 26) for place in range(322))
"""A token each in every vocabulary here."""

LONG = [Message("user", LETTERS)]
LATER = [*LONG, Message("assistant", "I did."), Message("user", "And now?")]
SHORT = [Message("user", "Give this conversation a title of four words, please. " * 2)]
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


class Client:
    """Asks one engine."""

    def __init__(self, model: Path) -> None:
        options = SessionOptions(model=str(model), draft="off", ctx=512, threads=1)
        self._engine = Engine(options, Paths.of_this_user())
        self._engine.start()

    def ask(self, messages: list[Message]) -> Answer:
        request = Request(Conversation("", messages), GREEDY, 6)
        answer = self._engine.ask(request)
        assert answer.wait(60)
        assert answer.error is None
        return answer

    def close(self) -> None:
        assert self._engine.close(20)


def cached(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.cached_prompt_tokens


def length(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.prompt_tokens


def test_a_short_one_between_costs_the_long_one_nothing(model: Path) -> None:
    with closing(Client(model)) as client:
        first = client.ask(LONG)
        client.ask(SHORT)
        found = client.ask(LATER)
    with closing(Client(model)) as fresh:
        expected = fresh.ask(LATER)
    assert length(first) > 330
    assert cached(found) >= 0.95 * length(first)
    assert found.token_ids == expected.token_ids
    assert cached(expected) == 0


def test_without_memory_for_it_the_prompt_is_read_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: nothing else kept it."""
    monkeypatch.setenv("SPECCHAT_PROMPT_MEMORY", "0")
    with closing(Client(model)) as client:
        first = client.ask(LONG)
        client.ask(SHORT)
        assert cached(client.ask(LATER)) < 0.1 * length(first)
