"""What was trained for a model drafts for it in sessions: found, measured, changed, refused."""

import json
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app.drafting.choose.drafter_info import CostSource, DrafterInfo, Kind
from app.engine.reply import Reply
from app.engine.session import Session
from app.engine.session_drafters import Drafting
from app.engine.session_ranking import list_for
from app.engine.status import Loaded
from app.loading.placement import drafter_context
from decoding.events import Prefill
from tests.app.conftest import AskJson, Specchat
from tests.fixtures.heard import hurry
from tests.fixtures.sessions import new_reply, opened_on, replied
from tests.fixtures.tiny.kinds import Pair

pytestmark = pytest.mark.usefixtures("llamacpp")

SLOW = pytest.mark.slow
PROMPT = "abc abc abc abc"
ASK = ("--temperature", "0", "--max-tokens", "24", "--raw")
WORDS = {
    "qwen35": "mtp",
    "nemotron_h_moe": "mtp",
    "qwen35-sidecar": "mtp",
    "eagle3": "eagle3",
    "gemma4-assistant": "assistant",
    "dflash": "dflash",
    "dspark": "dspark",
    "lfm2-dspark": "dspark",
    "glm4moe": "mtp",
    "step35": "mtp",
    "mimo2": "mtp",
}
"""Words of --draft by kind of file."""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def opened(model: Path, draft: str) -> Session:
    return opened_on(model, draft, ctx=256)


def drafted(drafting: Drafting) -> list[str]:
    """Names of the drafters that run a model."""
    return [handle.member.name for handle in drafting.handles if handle.model]


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize(
    "kind", ["eagle3", *(pytest.param(one, marks=SLOW) for one in WORDS if one != "eagle3")]
)
def test_an_answer_is_the_models_own_with_each_kind_of_head(
    ask_json: AskJson, pair: Pair, kind: str
) -> None:
    model, head = pair(kind)
    word = WORDS[kind]
    options = (PROMPT, "--model", str(model), *ASK)
    plain = ask_json(*options, "--draft", "off")
    found = ask_json(*options, "--draft", word)
    assert found["token_ids"] == plain["token_ids"]
    assert found["draft"]["drafters"][0] == word
    assert found["stats"]["by_drafter"][word]["drafted"] > 0
    named = ask_json(*options, "--draft", str(head) if head != model else f"mtp:{head}")
    assert named["token_ids"] == plain["token_ids"]
    assert named["draft"]["drafters"]


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize("kind", ["qwen35", pytest.param("eagle3", marks=SLOW)])
def test_auto_finds_what_a_model_brings_and_what_lies_beside_it(pair: Pair, kind: str) -> None:
    with closing(opened(pair(kind)[0], "auto")) as session:
        assert session.drafting.names[:3] == ["lookup", "retrieval", "ngram"]
        assert drafted(session.drafting) == [WORDS[kind]]
        assert session.drafting.missing == ""


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_beside_other_answers_a_head_does_not_draft_and_it_is_said(pair: Pair) -> None:
    with closing(opened(pair("eagle3")[0], "lookup,tree(eagle3)")) as session:
        beside = session.drafting.beside({})
        assert beside.controller is not None
        assert [one.name for one in beside.controller.drafters] == ["lookup"]
        reason = "tree(eagle3): only for an answer that is alone"
        assert beside.status.reason.startswith(reason)
        assert reason not in session.drafting.status.reason
        assert session.drafting.alone == reason
        session.sequences = 4
        assert reason in Loaded.of(session).notes


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_auto_leaves_out_a_head_that_was_wrong_in_its_trial(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As heads of random weights are, and the result is known from then on."""
    monkeypatch.setattr("app.drafting.choose.automatic.own", _no_self_drafter)
    with closing(opened(pair("eagle3")[0], "auto")) as session:
        assert "eagle3" not in session.drafting.names
        (head,) = [one for one in list_for(session).drafters if one.name == "eagle3"]
        assert head.is_compatible
        assert (head.is_trial, head.cost_source) == (True, CostSource.MEASURED)
        assert head.acceptance is not None
        assert head.acceptance < 0.2


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_the_head_changes_in_mid_answer_and_is_closed_with_the_session(pair: Pair) -> None:
    model, head = pair("eagle3")
    specs = ("eagle3", "lookup,eagle3", "off", f"eagle3:{head}", "tree(eagle3)", "paths(eagle3)",
             "vote(lookup,eagle3)", "cascade(lookup,eagle3)", "eagle3")  # fmt: skip
    with closing(opened(model, "off")) as session:
        plain, built, steps = replied(session, PROMPT, 60), list[Drafting](), count()

        def redraft(_: Reply) -> None:
            if next(steps) % 3 == 2 and specs[len(built) :]:
                session.redraft(specs[len(built)], lambda _: None)
                built.append(session.drafting)

        changed = replied(session, PROMPT, 60, redraft)
        assert {one.missing for one in built} == {"", "switched off"}
        assert len(built) == len(specs)
        assert changed.token_ids == plain.token_ids
        assert changed.statistics.drafted > 0


@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize("then", ["lookup", "off", "eagle3"])
def test_the_drafter_changes_while_a_head_reads_the_prompt(pair: Pair, then: str) -> None:
    """The head is closed with its first piece read, and must not go on in freed memory."""
    model, head = pair("eagle3")
    with closing(opened(model, f"eagle3:{head}")) as session:
        prompt, changed = session.template.raw("abc " * 40), new_reply(most=8)
        pieces = 0
        for event in session.stream(prompt, changed, lambda: False):
            if isinstance(event, Prefill) and event.done == event.total:
                pieces += 1
                if pieces == 2:  # the first is the model's own last one
                    session.redraft(then, lambda _: None)
        assert pieces >= (4 if then == "eagle3" else 2)
        session.redraft("off", lambda _: None)
        assert changed.token_ids == replied(session, "abc " * 40, 8).token_ids


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_a_model_is_changed_while_a_head_drafts(pair: Pair) -> None:
    """The context is closed with what reads it, whichever is closed first."""
    for kind in ("qwen35", "gemma4-assistant", "dflash"):
        session = opened(pair(kind)[0], WORDS[kind])
        assert drafted(session.drafting) == [WORDS[kind]]
        session.resources.close()
        session.drafting.close()


@pytest.fixture
def undrafted(specchat: Specchat) -> Callable[..., str]:
    """Asks, and returns why nothing drafted; the answer comes all the same."""

    def ask(model: Path, draft: str) -> str:
        options = ("--model", str(model), "--draft", draft, "--json")
        ended = specchat("ask", PROMPT, *options, *ASK)
        assert ended.returncode == 0, ended.stderr
        report = json.loads(ended.stdout)
        assert report["token_ids"]
        assert (report["draft"]["state"], report["draft"]["drafters"]) == ("off", [])
        assert report["draft"]["reason"] in ended.stderr
        return report["draft"]["reason"]

    return ask


@pytest.mark.slow
def test_heads_that_do_not_fit_are_refused_in_words(
    undrafted: Callable[[Path, str], str], pair: Pair
) -> None:
    llama, eagle3 = pair("eagle3")
    qwen35, sidecar = pair("qwen35-sidecar")
    assert "none beside it, and the catalogue names none" in undrafted(qwen35, "eagle3")
    assert "it brings none, and the catalogue names none" in undrafted(llama, "mtp")
    assert "eagle3.gguf is for --draft eagle3" in undrafted(llama, f"mtp:{eagle3}")
    assert "qwen35-sidecar.gguf cannot draft for llama.gguf" in undrafted(llama, str(sidecar))
    assert "is a model" in undrafted(qwen35, f"eagle3:{llama}")


def test_a_head_that_is_damaged_or_missing(
    undrafted: Callable[[Path, str], str], specchat: Specchat, pair: Pair
) -> None:
    model, head = pair("eagle3")
    head.write_bytes(head.read_bytes()[:-4096])
    assert "incomplete" in undrafted(model, f"eagle3:{head}")
    head.unlink()
    missing = specchat("ask", "hi", "--model", str(model), "--draft", f"eagle3:{head}")
    assert missing.returncode == 2
    assert "no file" in missing.stderr
    unnamed = specchat("ask", "hi", "--model", str(model), "--draft", "eagle3:")
    assert unnamed.returncode == 2


def test_a_head_for_which_memory_is_short_is_left_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def little(name: str, facts: Any, n_ctx: int, _: int | None, *, is_head: bool) -> object:
        return drafter_context(name, facts, n_ctx, 1000, is_head=is_head)

    monkeypatch.setattr("app.drafting.drafter_building.drafter_context", little)
    with closing(opened(pair("eagle3")[0], "eagle3")) as session:
        assert "memory is short" in session.drafting.missing


def _no_self_drafter(*_: object) -> DrafterInfo:
    return DrafterInfo("self", Kind.SELF, False, "left out here")


def test_what_drafts_is_told_where_nothing_is_loaded(specchat: Specchat, pair: Pair) -> None:
    model, _ = pair("eagle3")
    shown = specchat("models", "info", str(model)).stdout
    assert "eagle3 (EAGLE-3 head in eagle3.gguf)" in shown
    pairs = json.loads(specchat("models", "pair", str(model), "--json").stdout)["drafters"]
    (head,) = [one for one in pairs if one["kind"] == "trained for one model"]
    assert (head["name"], head["compatible"], head["installed"]) == ("eagle3", True, True)
    assert head["why"] == "EAGLE-3 head beside the model"
    assert head["memory_bytes"] > 0
