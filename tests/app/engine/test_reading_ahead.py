"""The engine reads ahead while no job waits: what is read, what is not, and what stops it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

from app.ahead import reading_ahead
from app.ahead.expected import Expected
from app.ahead.piece_reader import GROUP, AheadTime
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.paths import Paths
from app.prompt_cache import state_keeper
from app.prompt_cache.state_keeper import StateKeeper
from backends.base import Logits, ModelError, OutOfMemoryError
from tests.app.engine.conftest import WORDS, Start
from tests.fixtures.scripted import ScriptedContext, ScriptedModel
from tests.fixtures.sessions import GREEDY, answered, conversation
from tests.fixtures.settled import long_ago, settle

LONG = "many words " * 40


def typed(*texts: str, system: str = "") -> Expected:
    return Expected(conversation(*texts, system=system), long_ago(), True)


def certain(*texts: str, system: str = "") -> Expected:
    return Expected(conversation(*texts, system=system), long_ago(), False)


def read(engine: Engine) -> int:
    """Tokens that are ready, each of which is a character here."""
    ahead = engine.status.ahead
    assert ahead is not None
    assert ahead.paused == ""
    return ahead.read


def ahead_tokens(answer: Answer) -> int:
    assert answer.metrics is not None
    return answer.metrics.ahead_tokens


def is_about(found: int, expected: str) -> bool:
    """Whether all is read but for less than a group.

    Characters are all the same token here, so that a little of what might follow is certain too.
    """
    return abs(found - len(expected)) < GROUP


def until(holds: Callable[[], object]) -> None:
    while not holds():
        Event().wait(0.001)


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all passes."""
    forward, found = ScriptedContext.forward, list[int]()

    def counting(context: ScriptedContext, tokens: Sequence[int], n_logits: int) -> Logits:
        found.append(len(tokens))
        return forward(context, tokens, n_logits)

    monkeypatch.setattr(ScriptedContext, "forward", counting)
    return found


def test_what_is_certain_is_read_before_anything_is_typed(start: Start) -> None:
    engine = start()
    engine.expect(certain(system=LONG))
    settle(engine)
    assert is_about(read(engine), f"System: {LONG}\n\nUser: ")
    answer = answered(engine, "hi", system=LONG)
    assert is_about(ahead_tokens(answer), f"System: {LONG}\n\nUser: ")
    assert answer.metrics is not None
    assert answer.metrics.cached_prompt_tokens >= ahead_tokens(answer)
    assert ahead_tokens(answered(engine, "hi", system=LONG)) == 0  # read for the one before


def test_finished_words_are_read_and_the_last_one_is_not(start: Start) -> None:
    engine = start()
    engine.expect(typed(f"{LONG} and a"))
    settle(engine)
    assert is_about(read(engine), f"User: {LONG} and")
    assert engine.status.ahead is not None
    assert engine.status.ahead.total == len(f"User: {LONG} and a\n\nAssistant:")


def test_words_that_have_not_rested_are_not_read_before_they_have(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ahead.reading_ahead.REST_SECONDS", 2 * 100.0)
    monkeypatch.setattr("app.ahead.expected.ELSEWHERE_SECONDS", 3 * 100.0)
    engine = start()
    engine.expect(certain(system=LONG))
    settle(engine)
    before = read(engine)
    assert engine._active is not None
    reading = engine._active.reading
    engine.expect(typed(LONG, system=LONG))
    until(lambda: reading.due_in(0.0))  # it has not seen all of it yet
    assert read(engine) == before
    assert 0.0 < (reading.due_in(0.0) or 0.0) < 100.0


def test_a_text_that_pauses_is_read_on_as_if_it_were_sent_and_its_answer_reads_next_to_nothing(
    start: Start, lengths: list[int]
) -> None:
    engine = start()
    text = f"{LONG} and what then"
    engine.expect(typed(text))
    settle(engine)
    lengths.clear()
    answered(engine, text)
    assert lengths[0] <= GROUP + 1
    assert lengths[1] == 1  # the second token of the answer


def test_what_was_read_as_if_it_were_sent_is_taken_back_when_a_key_comes(start: Start) -> None:
    engine = start()
    engine.expect(typed(f"{LONG} and what then"))
    settle(engine)
    text = f"{LONG} and whatever then follows"
    engine.expect(typed(text))
    settle(engine)
    active = engine._active
    assert active is not None
    tokens = active.session.prompt(Request(conversation(text), GREEDY, 8))[0].tokens
    assert active.session.context.facts.tokens == tokens[: active.session.context.facts.length]
    assert len(tokens) - active.session.context.facts.length <= GROUP
    assert answered(engine, text).text == "".join(WORDS[:8])


def test_before_it_pauses_a_text_is_not_read_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ahead.expected.ELSEWHERE_SECONDS", 2 * 100.0)
    engine = start()
    engine.expect(typed(f"{LONG} and what then"))
    active = None
    while active is None or not 0.0 < (active.reading.due_in(0.0) or 0.0) < 100.0:
        Event().wait(0.001)
        active = engine._active
    assert is_about(active.session.context.facts.length, f"User: {LONG} and what")
    engine.expect(typed(f"{LONG} and what then?"))  # which ends a sentence
    settle(engine)
    assert is_about(
        active.session.context.facts.length, f"User: {LONG} and what then?\n\nAssistant"
    )


def test_a_message_that_is_certain_is_read_to_its_end(start: Start) -> None:
    engine = start()
    engine.expect(certain(LONG))
    settle(engine)
    assert is_about(read(engine), f"User: {LONG}\n\nAssistant")


def test_a_job_waits_for_one_piece_at_most(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    forward = ScriptedContext.forward

    def counting(context: ScriptedContext, tokens: Sequence[int], n_logits: int) -> Logits:
        events.append("piece")
        if len(events) == 3:
            engine._jobs.put(lambda: events.append("job"))
        return forward(context, tokens, n_logits)

    monkeypatch.setattr(ScriptedContext, "forward", counting)
    monkeypatch.setattr("app.ahead.piece_reader.PieceLength.choose", lambda *_, **__: GROUP)
    engine = start()
    engine.expect(typed(LONG * 3))
    settle(engine)
    assert events[:5] == ["piece", "piece", "piece", "job", "piece"]
    assert events.count("piece") > 300


def test_an_answer_begins_with_the_piece_that_is_read_and_counts_from_its_request(
    start: Start,
) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    engine = start(model)
    engine.expect(typed(LONG))
    until(lambda: model.passes)  # it reads the first piece
    answer = engine.ask(Request(conversation(LONG), GREEDY, 8))
    asked_at = answer.reply.statistics.started_at
    gate.set()
    assert answer.wait(30)
    assert answer.text == "".join(WORDS[:8])
    assert ahead_tokens(answer) == GROUP
    assert answer.reply.statistics.started_at == asked_at


def test_what_an_answer_left_is_not_taken_back_by_what_was_expected_before(start: Start) -> None:
    model = ScriptedModel(WORDS)
    engine = start(model)
    engine.expect(typed(LONG))
    settle(engine)
    answered(engine, LONG)
    settle(engine)
    assert engine.status.ahead is None
    active = engine._active
    assert active is not None
    left = list(active.session.context.facts.tokens)
    engine.expect(typed("many words "))  # nothing of it is missing
    settle(engine)
    assert list(active.session.context.facts.tokens) == left


def test_after_an_answer_the_opening_of_the_next_turn_is_read_and_the_state_still_saved(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_keeper, "_IDLE_SECONDS", 0.2)
    saved = Event()
    save = StateKeeper.run

    def tell(keeper: StateKeeper, is_wanted: Callable[[], bool]) -> None:
        save(keeper, is_wanted)
        saved.set()

    monkeypatch.setattr(StateKeeper, "run", tell)
    engine = start()
    answer = answered(engine, LONG)
    engine.expect(certain(LONG, f"{answer.text}{LONG}"))
    settle(engine)
    assert is_about(read(engine), f"User: {LONG}\n\nAssistant: {answer.text}{LONG}\n\nUser: ")
    assert saved.wait(30)
    assert len(list(Paths.of_this_user().saved_states.glob("*.state"))) == 1


def test_a_reopened_conversation_is_restored_before_it_is_read(
    start: Start, lengths: list[int]
) -> None:
    model = ScriptedModel(WORDS)
    first = start(model)
    answer = answered(first, LONG)
    assert first.close(10.0)
    lengths.clear()
    engine = start(model)
    engine.expect(certain(LONG, answer.text))
    settle(engine)
    assert sum(lengths) < len(LONG) / 4
    assert is_about(read(engine), f"User: {LONG}\n\nAssistant: {answer.text}\n\nUser: ")


def test_nothing_is_read_while_it_is_not_allowed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_ahead, "_LOOK_AGAIN_SECONDS", 0.001)
    model, reasons = ScriptedModel(WORDS), ["on battery"]
    engine = start(model, may_read=lambda: reasons[-1])
    engine.expect(typed(LONG))
    until(lambda: engine.status.ahead and engine.status.ahead.paused == "on battery")
    assert model.passes == 0
    reasons.append("")
    settle(engine)
    assert is_about(read(engine), f"User: {LONG.rstrip()}")


def test_what_is_typed_does_not_go_to_another_machine_before_enter(start: Start) -> None:
    model = ScriptedModel(WORDS)
    model.info = replace(model.info, host="elsewhere")
    engine = start(model)
    engine.expect(typed(LONG))
    until(
        lambda: engine.status.ahead and engine.status.ahead.paused == "what is not sent stays here"
    )
    assert model.passes == 0


def test_once_enough_is_wasted_nothing_typed_is_read_until_it_is_sent(start: Start) -> None:
    engine = start(most_waste=lambda: 0.0)
    engine.expect(typed(LONG, system=LONG))
    settle(engine)
    ahead = engine.status.ahead
    assert ahead is not None
    assert is_about(ahead.read, f"System: {LONG}\n\nUser: ")
    assert "in vain" in ahead.paused
    assert engine._active is not None
    assert engine._active.session.context.facts.length == ahead.read
    assert is_about(ahead_tokens(answered(engine, LONG, system=LONG)), f"System: {LONG}\n\nUser: ")


def failing(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> list[int]:
    """Lets passes that read ahead fail; returns the lengths of those that did."""
    forward, failed = ScriptedContext.forward, list[int]()

    def fails(context: ScriptedContext, tokens: Sequence[int], n_logits: int) -> Logits:
        if n_logits == 0:
            failed.append(len(tokens))
            raise fault
        return forward(context, tokens, n_logits)

    monkeypatch.setattr(ScriptedContext, "forward", fails)
    return failed


@pytest.mark.parametrize("fault", [ModelError("it broke"), MemoryError(), ValueError("odd")])
def test_failures_in_a_row_end_reading_ahead_and_the_reply_comes_as_it_would_have(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    failed = failing(monkeypatch, fault)
    engine = start()
    for number in range(3):
        engine.expect(typed(f"{LONG} {number}"))
        settle(engine)
        assert engine.status.ahead is not None
        assert "it failed" in engine.status.ahead.paused
        assert len(failed) == number + 1
    answer = answered(engine, LONG)
    assert answer.text == "".join(WORDS[:8])
    engine.expect(certain(LONG, answer.text))
    settle(engine)
    assert len(failed) == 3
    assert engine.status.error is None


def test_after_a_failure_what_is_expected_next_is_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    for _ in range(4):  # never several in a row
        with monkeypatch.context() as patch:
            failed = failing(patch, ModelError("it broke"))
            engine.expect(typed(f"{LONG} and"))
            settle(engine)
        assert len(failed) == 1
        engine.expect(typed(f"{LONG} or else "))
        settle(engine)
        assert is_about(read(engine), f"User: {LONG} or else")
        answered(engine, "something else")


@pytest.mark.parametrize("change", ["model", "close"])
def test_answers_that_wait_are_stopped_with_the_present_one(start: Start, change: str) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    engine = start(model)
    answers = [engine.ask(Request(conversation(LONG), GREEDY, 8)) for _ in range(3)]
    until(lambda: model.passes)
    if change == "model":
        engine.load("another")
    else:
        engine.close(0.0)
    gate.set()
    assert all(answer.wait(30) for answer in answers)
    assert [answer.text for answer in answers] == ["", "", ""]
    assert model.passes == 1


def test_the_end_of_an_answer_waits_for_no_account(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, kept = Event(), list[AheadTime]()

    def keep(spent: AheadTime, _: Paths) -> NoReturn:
        gate.wait(60)
        kept.append(spent)
        raise RuntimeError("no disk")

    monkeypatch.setattr(AheadTime, "keep", keep)
    engine = start()
    first = answered(engine, LONG)
    assert kept == []
    gate.set()
    assert answered(engine, LONG, first.text, "and").text == first.text
    assert kept
    assert engine.status.error is None


def test_a_session_is_freed_though_reading_ahead_fails_to_close(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[str] = []

    def fail(_: object) -> NoReturn:
        raise RuntimeError("no disk")

    engine = start()
    settle(engine)
    active = engine._active
    assert active is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(active.reading), "close", fail)
        patch.setattr(StateKeeper, "close", lambda _: freed.append("keeper"))
        patch.setattr(type(active.session), "close", lambda _: freed.append("session"))
        with pytest.raises(RuntimeError):
            active.close()
    assert freed == ["keeper", "session"]


def test_memory_that_runs_short_while_a_state_is_restored_is_no_error(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object) -> NoReturn:
        raise OutOfMemoryError("memory is short", "others took it")

    engine = start()
    settle(engine)
    with monkeypatch.context() as patch:
        patch.setattr(StateKeeper, "prepare", short)
        engine.expect(certain(LONG))
        settle(engine)
    assert engine.status.ahead is not None
    assert "memory is short" in engine.status.ahead.paused
    assert answered(engine, LONG).text == "".join(WORDS[:8])


@pytest.mark.parametrize("change", ["context", "model", "close"])
def test_what_is_read_gives_way_to_a_change(start: Start, change: str) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    engine = start(model)
    engine.expect(typed(LONG))
    until(lambda: model.passes)
    if change == "close":
        assert not engine.close(0.0)
        gate.set()
        assert engine.close(10.0)
        assert model.passes == 1
        return
    if change == "context":
        engine.set_context(4096)
    else:
        engine.load("another")
    gate.set()
    settle(engine)
    assert is_about(read(engine), f"User: {LONG.rstrip()}")  # by the new one
    assert answered(engine, LONG).text == "".join(WORDS[:8])


def test_nothing_is_read_past_the_context(start: Start) -> None:
    engine = start(ScriptedModel(WORDS, n_ctx=256))
    engine.expect(certain("x" * 256))
    settle(engine)
    assert engine.status.ahead is not None
    assert engine.status.ahead.read == 0
    engine.expect(certain("x" * 200))
    settle(engine)
    assert is_about(read(engine), "User: " + "x" * 200 + "\n\nAssistant")


@pytest.mark.usefixtures("llamacpp")
def test_time_that_was_used_and_wasted_is_kept(
    start: Start, tiny_llama: Callable[..., Path]
) -> None:
    engine = start(tiny_llama(seed=3))
    try:
        engine.expect(typed("one two three four five six "))
        settle(engine)
        answered(engine, "one two three four five six seven")
        engine.count("").result(30)  # its account is kept after it
        kept = AheadTime.kept(engine.paths)
        assert kept.used > 0.0
        engine.expect(typed("other words altogether, not one of which is sent "))
        settle(engine)
        engine.expect(typed("again "))
        settle(engine)
        answered(engine, "again others")
        engine.count("").result(30)  # its account is kept after it
        after = AheadTime.kept(engine.paths)
        assert after.wasted > kept.wasted
        engine.expect(typed("one two three four five six "))
        settle(engine)
    finally:
        assert engine.close(30.0)
    assert AheadTime.kept(engine.paths).wasted > after.wasted  # as it was never sent


def test_what_is_expected_already_disturbs_nobody_until_an_answer_makes_it_void(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, disturbed = start(ScriptedModel(WORDS)), list[object]()
    monkeypatch.setattr(engine._jobs, "disturb", lambda: disturbed.append(None))
    one = typed("why")
    for _ in range(3):
        engine.expect(one)
    assert len(disturbed) == 1
    answered(engine, "hello")
    engine.expect(one)
    assert len(disturbed) == 2
