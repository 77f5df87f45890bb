"""What a request brings drafts for its reply alone, whatever the session drafts with."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.metrics import reply_metrics
from app.engine.reply import PredictedTokens, Reply, Request
from app.engine.report import reply_report
from app.engine.session import Session
from backends.base import Model
from backends.chat.chat_template import Prompt
from backends.chat.message import Message
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.events import Origin, State
from tests.fixtures.sessions import GREEDY, new_reply, opened_on
from tests.fixtures.sessions import replied as replied_to

pytestmark = pytest.mark.usefixtures("llamacpp", "drafting_pays")

PROMPT = "The planets in their order from the sun are called"
TOKENS = 40


@pytest.fixture
def opened(demo: Model) -> Iterator[Callable[[str], Session]]:
    """Opens a session on the bundled model with a --draft SPEC; one at a time."""
    sessions: list[Session] = []

    def open_with(draft: str) -> Session:
        sessions.append(opened_on(demo.info.path, draft, threads=None, ctx=256))
        return sessions[-1]

    yield open_with
    for session in sessions:
        session.close()


def replied(
    session: Session,
    prediction: str = "",
    then: Callable[[Reply], object] = id,
    options: ReplyOptions | None = None,
) -> Reply:
    options = options or ReplyOptions(prediction=prediction)
    return replied_to(session, PROMPT, TOKENS, then, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["lookup", "missing.gguf"])
def test_it_drafts_for_one_reply_and_is_gone(
    opened: Callable[[str], Session], draft: str, tmp_path: Path
) -> None:
    """Beside a named drafter, and where the one that is named cannot be built."""
    path = tmp_path / draft
    path.write_bytes(b"GG")
    session = opened(draft if draft == "lookup" else str(path))
    names = session.drafting.names
    plain = replied(session)
    predicted = replied(session, plain.text)
    counted = predicted.statistics.by_drafter["prediction"]
    assert predicted.token_ids == plain.token_ids
    assert predicted.predicted == PredictedTokens(
        counted.accepted, counted.drafted - counted.accepted
    )
    assert counted.accepted > TOKENS / 2
    assert "prediction" in predicted.provenance
    assert predicted.statistics.steps < plain.statistics.steps
    metrics = reply_metrics(session, predicted)
    assert (metrics.state, metrics.drafters) == (State.ON, (*names, "prediction"))
    report = reply_report(session, predicted)["draft"]
    assert report["predicted"] == {"accepted": counted.accepted, "rejected": 0}

    after = replied(session)
    assert after.predicted is None
    assert "prediction" not in after.statistics.by_drafter
    assert reply_metrics(session, after).drafters == tuple(names) == tuple(session.drafting.names)
    assert reply_report(session, after)["draft"]["predicted"] is None


@pytest.mark.slow
def test_what_was_drafted_after_a_stop_text_is_not_counted(
    opened: Callable[[str], Session],
) -> None:
    """Not by the figures, --json, the history or the context: as without drafts."""
    session = opened("lookup")
    whole = replied(session).text
    stop = whole[len(whole) // 3 :][:6]
    plain, drafted = (
        replied(session, options=ReplyOptions(stops=(stop,), prediction=prediction))
        for prediction in ("", whole)
    )
    assert drafted.text == plain.text == whole[: whole.index(stop)]
    assert drafted.stop_text == plain.stop_text == stop
    assert drafted.statistics.steps < plain.statistics.steps
    assert drafted.token_ids == plain.token_ids
    assert drafted.token_ends == plain.token_ends
    assert len(drafted.provenance) == len(drafted.token_ids)
    for reply in (plain, drafted):
        report = reply_report(session, reply)
        assert reply.statistics.completion_tokens == len(plain.token_ids)
        assert report["stats"]["completion_tokens"] == len(plain.token_ids)
        accepted = sum(one.accepted for one in reply.statistics.by_drafter.values())
        assert accepted == sum(origin not in set(Origin) for origin in reply.provenance)
    held = [*session.template.raw(PROMPT).tokens, *plain.token_ids]
    assert list(session.context.facts.tokens) == held[: session.context.facts.length]


@pytest.mark.slow
def test_where_drafting_is_off_it_stays_off(opened: Callable[[str], Session]) -> None:
    session = opened("off")
    plain = replied(session)
    predicted = replied(session, plain.text)
    assert predicted.token_ids == plain.token_ids
    assert predicted.statistics.drafted == 0
    assert predicted.predicted == PredictedTokens(0, 0)
    assert reply_metrics(session, predicted).state is State.OFF


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [("lookup", "ngram"), ("off", "lookup"), ("lookup", "off")])
def test_it_stays_while_the_drafters_change_in_mid_reply(
    opened: Callable[[str], Session], drafts: tuple[str, str]
) -> None:
    before, after = drafts
    session = opened(before)
    plain = replied(session)
    at = 0

    def change(reply: Reply) -> None:
        nonlocal at
        if not at and len(reply.token_ids) >= 2:
            session.redraft(after, lambda _: None)
            at = len(reply.token_ids)

    predicted = replied(session, plain.text, change)
    assert predicted.token_ids == plain.token_ids
    assert 0 < at < TOKENS
    later = predicted.provenance[at:]
    assert ("prediction" in later) is (after != "off")
    controller = session.drafting.controller
    names = [managed.name for managed in controller.drafters] if controller else []
    assert names == session.drafting.names


@pytest.mark.slow
def test_what_one_prediction_taught_is_known_to_the_next(opened: Callable[[str], Session]) -> None:
    session = opened("lookup")
    text = replied(session).text
    replied(session, text)
    memory = session.drafting.memory
    assert memory is not None
    assert memory.recall("prediction").counts()


SCHEMA = json.dumps({
    "type": "object",
    "properties": {"nearest_planet": {"const": "Mercury"}, "numberOfPlanets": {"const": 8}},
    "required": ["nearest_planet", "numberOfPlanets"],
    "additionalProperties": False,
})  # fmt: skip


@pytest.mark.slow
def test_how_a_model_divides_the_names_of_a_schema_is_known_to_the_next_reply(
    opened: Callable[[str], Session],
) -> None:
    pytest.importorskip("llguidance")
    options = ReplyOptions(grammar=Grammar(GrammarKind.JSON_SCHEMA, SCHEMA))
    session = opened("off")
    plain = replied(session, options=options)
    session.redraft("lookup", lambda _: None)
    first, second = (replied(session, options=options) for _ in range(2))
    assert plain.token_ids == first.token_ids == second.token_ids
    assert json.loads(plain.text) == {"nearest_planet": "Mercury", "numberOfPlanets": 8}
    wrong, after = (
        counted.drafted - counted.accepted
        for counted in (one.statistics.by_drafter["grammar"] for one in (first, second))
    )
    assert 0 == after < wrong
    assert second.statistics.steps < first.statistics.steps


@pytest.mark.slow
def test_a_useless_prediction_changes_nothing(opened: Callable[[str], Session]) -> None:
    session = opened("lookup")
    plain = replied(session).token_ids
    for useless in ("\0\1\2\x7f", "\ud800\udfff half", "Andere Wörter. " * 9, "x" * 300_000):
        assert replied(session, useless).token_ids == plain


@pytest.mark.slow
def test_a_reply_that_is_continued_is_where_its_beginning_ends(
    opened: Callable[[str], Session],
) -> None:
    session = opened("lookup")
    plain = replied(session)
    prompt, begun = session.template.raw(PROMPT), plain.token_ids[: TOKENS // 2]
    reply = new_reply(most=TOKENS // 2, options=ReplyOptions(prediction=plain.text))
    continued = Prompt([*prompt.tokens, *begun], begun=len(begun))
    for _ in session.stream(continued, reply, lambda: False):
        pass
    assert begun + reply.token_ids == plain.token_ids
    first = reply.provenance.index("prediction")
    assert first <= 2, "it need not find its place again"


WRAPPED = """\
The library keeps its oldest maps in a cellar that is held at eleven degrees.
Visitors may see them on the first Monday of each month, in groups of no more
than six, and must leave pens and bags at the desk. A copy of each map hangs in
the reading room, where it may be photographed without asking."""


def quoted(session: Session, *, documents: bool) -> Reply:
    """The answer to a question that brings a file, and perhaps reads others."""
    question = Message("user", f"[1] maps.md\n{WRAPPED}\n\nRepeat the text word for word.")
    others = [("maps.md", WRAPPED), ("bees.md", "The bees fly at noon. \udcff")]
    request = Request(Conversation("", [question]), GREEDY, 2 * TOKENS)
    if documents:
        request = replace(request, documents=lambda: others)
    reply = Reply(request)
    with closing(session.stream(session.prompt(request)[0], reply, lambda: False)) as stream:
        for _ in stream:
            pass
    return reply


@pytest.mark.slow
@pytest.mark.parametrize("documents", [False, True])
def test_a_file_with_line_breaks_is_quoted_without_them(
    opened: Callable[[str], Session], *, documents: bool
) -> None:
    plain = quoted(opened("off"), documents=documents)
    session = opened("lookup")
    reply = quoted(session, documents=documents)
    assert reply.token_ids == plain.token_ids
    assert " ".join(WRAPPED.split()[:12]) in reply.text
    counted = reply.statistics.by_drafter["documents"]
    assert counted.accepted > TOKENS / 2
    assert reply.statistics.steps < plain.statistics.steps / 2
    assert reply_metrics(session, reply).drafters == ("lookup", "documents")
    other = replied(session)
    assert "documents" not in other.statistics.by_drafter
    assert reply_metrics(session, other).drafters == ("lookup",)
