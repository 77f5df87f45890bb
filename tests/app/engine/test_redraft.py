"""Drafters that take over from others know what those learned, from this very reply too."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.session import Session
from app.engine.session_drafters import Drafting
from backends.base import UsageError
from decoding.drafters.ngram import Ngram
from tests.fixtures.sessions import new_reply, opened_on, replied

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def session(tiny_llama: Callable[..., Path]) -> Iterator[Session]:
    with closing(opened_on(tiny_llama(seed=3), "lookup,ngram")) as one:
        yield one


def learned(drafting: Drafting, name: str) -> dict[str, tuple[float, float]]:
    """What is known of a drafter's tokens: accepted and judged, by kind."""
    (member,) = (handle.member for handle in drafting.handles if handle.member.name == name)
    return dict(member.estimates.acceptance.counts())


def sum_judged(counts: dict[str, tuple[float, float]]) -> float:
    return sum(judged for _, judged in counts.values())


def ngram(drafting: Drafting) -> Ngram:
    found = [
        one.member.drafter for one in drafting.handles if isinstance(one.member.drafter, Ngram)
    ]
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_reply_taught_is_known_to_the_drafters_that_take_over(
    session: Session, is_over: bool
) -> None:
    replied(session, "hi", 40)
    prompt = session.template.raw("hi")
    reply, before = new_reply(most=60), session.drafting
    with closing(session.stream(prompt, reply, lambda: False)) as stream:
        for _ in stream:
            if len(reply.token_ids) >= 28 and not is_over:
                break
        known, text = learned(before, "ngram"), prompt.tokens + reply.token_ids
        assert known
        session.redraft("ngram,lookup", lambda _: None)
        assert learned(session.drafting, "ngram") == known
        assert ngram(session.drafting).propose(text[:-2], 1).tokens == (text[-2],)
        for _ in stream:
            pass
    session.redraft("ngram", lambda _: None)
    assert sum_judged(learned(session.drafting, "ngram")) >= sum_judged(known)


@pytest.mark.parametrize(
    "wrong", ["self:skip=2", "lookup,self:experts=1", "vote(lookup,self:skip=0-1)"]
)
def test_a_spec_that_does_not_fit_the_model_changes_nothing(session: Session, wrong: str) -> None:
    before = session.drafting
    with pytest.raises(UsageError):
        session.redraft(wrong, lambda _: None)
    assert session.drafting is before
    assert len(replied(session, "hi", 8).token_ids) == 8
