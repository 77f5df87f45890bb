"""Drafting while the target verifies, in a session: the same answers, whatever happens to them."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


from app.drafting import composed_drafter as branching
from app.drafting import drafter_building
from app.drafting.drafter_building import share_device
from app.engine.report import reply_report
from app.engine.session import Session
from app.engine.session_drafters import Drafting, build
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Context, Logits
from decoding.drafters import overlapping as predrafting
from decoding.estimation.cost import CostModel
from decoding.events import FinishReason
from decoding.planning.risk_budget import RiskBudget
from tests.fixtures.heard import assert_plain, hear
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.sessions import new_reply, opened_on, replied
from tests.fixtures.workers import ThoroughThread, few

Open = Callable[..., Session]


@pytest.fixture
def path(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama(seed=3)


@pytest.fixture
def drafter(tiny_llama: Callable[..., Path]) -> str:
    return str(tiny_llama(seed=3, noise=0.02))


@pytest.fixture
def opened(
    path: Path, drafter: str, drafting_pays: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens a session that drafts ahead at every round, for all outcomes."""
    # near ties of trees may turn
    monkeypatch.setattr(branching, "trees_may_gain", lambda *_: False)
    monkeypatch.setattr(drafter_building, "DrafterThread", ThoroughThread)
    monkeypatch.setattr(predrafting, "likeliest_outcomes", lambda given: few(given, 6))
    monkeypatch.setattr(predrafting._Worth, "is_next_ahead", lambda _: True)
    monkeypatch.setattr(RiskBudget, "settle", lambda *_: None)
    # Waiting for all does not pay.
    monkeypatch.setattr(predrafting.AheadCost, "observe", lambda *_: None)
    monkeypatch.setattr(CostModel, "observe", lambda *_, **__: None)
    monkeypatch.setattr(drafter_building, "share_device", lambda *_: False)
    with ExitStack() as stack:

        def open_one(draft: str = drafter) -> Session:
            return stack.enter_context(closing(opened_on(path, draft)))

        yield open_one


@pytest.mark.slow
def test_an_answer_is_drafted_ahead_and_the_model_s_own(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, session = hear(monkeypatch), opened()
    (overlapped,) = (one.member.name for one in session.drafting.handles if one.overlapping)
    reply = replied(session, "hi", 48)
    assert_plain(heard, path)
    stats = reply_report(session, reply)["stats"]
    assert 0 < stats["predraft_hits"] <= stats["predrafted_rounds"]
    assert stats["hidden_draft_seconds"] > 0.0
    assert stats["by_drafter"][overlapped]["accepted"] > 0
    assert reply.statistics.by_drafter[overlapped].steps >= stats["predrafted_rounds"]


@pytest.mark.slow
def test_random_stops_and_changes_of_the_drafter_in_mid_answer(
    opened: Open, path: Path, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, session, chosen = hear(monkeypatch), opened(), random.Random(1)
    rounds = hits = 0
    for number in range(24):
        reply = new_reply(most=32)
        prompt = session.template.raw("ab" * (1 + number % 5))
        acts_at = chosen.randrange(1, 24)
        act = chosen.choice(("stop", "leave", "redraft", "nothing"))
        stopped = Event()
        with closing(session.stream(prompt, reply, stopped.is_set)) as events:
            for step, _ in enumerate(events):
                if step != acts_at or act == "nothing":
                    continue
                if act == "leave":
                    break
                if act == "stop":
                    stopped.set()
                else:
                    session.redraft(chosen.choice((drafter, "off", f"lookup,{drafter}")), print)
        if not any(one.overlapping for one in session.drafting.handles):
            session.redraft(drafter, print)
        rounds += reply.statistics.predrafted_rounds
        hits += reply.statistics.predraft_hits
    assert rounds > 20
    assert rounds >= hits > 5
    assert_plain(heard, path)


def fail_on_threads(monkeypatch: pytest.MonkeyPatch, context: Context, after: int) -> None:
    """Let passes fail that are not run by the caller, from one of them on."""
    forward, left = context.forward, [after]

    def failing(tokens: Sequence[int], n_logits: int) -> Logits:
        if current_thread() is not main_thread():
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("the drafter's device is gone")
        return forward(tokens, n_logits)

    monkeypatch.setattr(context, "forward", failing)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 7])
def test_a_crash_of_the_drafter_s_thread_costs_the_drafter_and_not_the_answer(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    heard, session = hear(monkeypatch), opened()
    (context,) = (one.context for one in session.drafting.handles if one.context)
    fail_on_threads(monkeypatch, context, after)
    assert replied(session, "hi", 48).finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    (failed,) = (one.member for one in session.drafting.handles if one.overlapping)
    assert failed.dropped == "it failed: the drafter's device is gone"
    assert replied(session, "hi", 48).finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert [len(one.tokens) > 20 for one in heard] == [True, True]
    assert_plain(heard, path)


def worker_of(session: Session) -> Any:
    (overlapped,) = (one.overlapping for one in session.drafting.handles if one.overlapping)
    return overlapped._worker


@pytest.mark.parametrize("end", ["close", "without_models", "leave"])
def test_whatever_ends_a_reply_while_it_is_drafted_ahead_leaves_no_work_behind(
    opened: Open, end: str
) -> None:
    session = opened()
    reply, worker = new_reply(most=48), worker_of(session)
    events = session.stream(session.template.raw("hi"), reply, lambda: False)
    for _ in events:
        if reply.statistics.predrafted_rounds:
            break
    if end == "leave":
        events.close()
    else:
        getattr(session.drafting, end)()
    assert worker._round is None
    if end != "leave":  # the model is freed
        with pytest.raises(RuntimeError):
            worker.start(iter([None]))


@pytest.mark.slow
def test_nothing_is_drafted_ahead_while_other_drafters_are_built_and_measured(
    opened: Open, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()
    reply, worker = new_reply(most=48), worker_of(session)
    rounds: list[object] = []

    def built(*given: Any) -> Drafting:
        rounds.append(worker._round)
        return build(*given)

    monkeypatch.setattr("app.engine.session.build", built)
    with closing(session.stream(session.template.raw("hi"), reply, lambda: False)) as events:
        for _ in events:
            if worker._round is not None and not rounds:
                session.redraft(f"lookup,{drafter}", print)
    assert rounds == [None]


def test_it_drafts_ahead_only_on_a_device_of_its_own(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = ScriptedModel(["a"]).info
    gpu, cpu = (replace(scripted, device=device) for device in ("GPU", "CPU: any"))
    assert not share_device(gpu, cpu)
    assert share_device(cpu, cpu)
    assert share_device(gpu, gpu)
    monkeypatch.setattr(drafter_building, "share_device", share_device)
    assert not [one for one in opened().drafting.handles if one.overlapping]


def test_checks_draft_ahead_wherever_it_could_be_done(
    opened: Open, path: Path, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafter_building, "share_device", share_device)
    options = SessionOptions(str(path), draft=drafter, threads=1)
    paths = Paths.of_this_user()
    with closing(open_session(options, paths, lambda _: None, every_form=True)) as session:
        assert [one.overlapping for one in session.drafting.handles if one.overlapping]
