"""A reply that is stopped inside a pass ends as cancelled, and keeps all that came before."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from backends.base import Context, Model
from decoding.events import Event, Finish, FinishReason, Prefill, Step
from decoding.generation import Limits, generate
from decoding.sampling.settings import SamplingSettings

GREEDY = SamplingSettings(temperature=0.0)
PROMPT = list(range(300, 312))


class Stop:
    """Stops when asked for the last time of so many."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


@pytest.fixture(scope="module")
def streamed(llamacpp: ModuleType, demo_file: Path) -> Iterator[Model]:
    """A model whose engine asks after every operation whether to stop."""
    model = llamacpp.load(demo_file, lock_bytes=0)
    yield model
    model.close()


def reply(context: Context, questions: int = 1 << 60) -> list[Event]:
    limits = Limits(6, frozenset())
    return list(generate(context, PROMPT, GREEDY, limits, is_cancelled=Stop(questions)))


def tokens(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


@pytest.mark.slow
def test_what_came_before_stays_and_the_reply_can_be_taken_up(streamed: Model):
    context = streamed.open(64)
    whole = tokens(reply(context))
    context.truncate(0)
    stopped = reply(context, questions=3000)
    assert stopped[-1] == Finish(FinishReason.CANCELLED)
    assert 0 < len(tokens(stopped)) < len(whole)
    assert whole[: len(tokens(stopped))] == tokens(stopped)
    assert context.tokens == [*PROMPT, *tokens(stopped)[:-1]]
    assert tokens(reply(context)) == whole
    context.close()


def test_a_prompt_is_stopped_inside_its_chunk(streamed: Model):
    context = streamed.open(64)
    events = reply(context, questions=100)
    assert events == [Finish(FinishReason.CANCELLED)]
    assert not any(isinstance(event, Prefill) for event in events)
    assert context.length == 0
    context.close()
