"""A session that learns: the next one drafts from it, and its words stay the model's own."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from app.drafting import build
from app.paths import Paths
from app.session import Session, SessionOptions
from decoding.generation import Limits
from decoding.greedy_check import greedy_reply

pytestmark = pytest.mark.usefixtures("llamacpp")

Specchat = Callable[..., CompletedProcess[str]]
AskJson = Callable[..., dict[str, Any]]
TinyLlama = Callable[..., Path]
SHORT = ("--temperature", "0", "--max-tokens", "32")


@pytest.fixture
def model(tiny_llama: TinyLlama) -> str:
    return str(tiny_llama(seed=3))


def files() -> list[Path]:
    return sorted(Paths.of_this_user().ngrams.glob("*.ngrams"))


@pytest.mark.usefixtures("drafting_pays")
def test_what_one_session_says_the_next_drafts(ask_json: AskJson, model: str) -> None:
    asked = ("Say hello.", "--model", model, *SHORT)
    plain = ask_json(*asked, "--draft", "off")
    first, second, third = (ask_json(*asked, "--draft", "ngram") for _ in range(3))
    assert first["token_ids"] == second["token_ids"] == third["token_ids"] == plain["token_ids"]
    assert third["stats"]["accepted"] > first["stats"]["accepted"]
    assert third["stats"]["tokens_per_step"] > 2.0
    assert set(third["stats"]["by_drafter"]) == {"ngram"}
    assert len(files()) == 1


@pytest.mark.usefixtures("drafting_pays")
def test_a_seed_gives_the_plain_answer_though_it_learns(ask_json: AskJson, model: str) -> None:
    asked = ("hi", "--model", model, "--seed", "4", "--temperature", "1", "--max-tokens", "24")
    plain = ask_json(*asked, "--draft", "off")
    found = [ask_json(*asked, "--draft", "lookup,ngram") for _ in range(3)]
    assert [one["token_ids"] for one in found] == [plain["token_ids"]] * 3
    assert found[-1]["stats"]["accepted"] > 0


def test_auto_has_it_beside_prompt_lookup(ask_json: AskJson, model: str) -> None:
    found = ask_json("hi", "--model", model, *SHORT, "--draft", "auto")
    assert found["draft"]["drafters"][:2] == ["lookup", "ngram"]


def test_who_does_not_want_it_has_nothing_kept(
    ask_json: AskJson, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_LEARN", "false")
    ask_json("hi", "--model", model, *SHORT, "--draft", "ngram")
    assert not Paths.of_this_user().ngrams.exists()


def test_the_settings_file_forbids_it_too(ask_json: AskJson, model: str) -> None:
    settings = Paths.of_this_user().settings
    settings.parent.mkdir(parents=True)
    settings.write_text("learn = false\n")
    ask_json("hi", "--model", model, *SHORT, "--draft", "ngram")
    assert files() == []


def test_a_wrong_value_is_named(
    specchat: Specchat, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_LEARN", "perhaps")
    ended = specchat("ask", "hi", "--model", model, *SHORT, "--draft", "ngram")
    assert ended.returncode == 2
    assert "SPECCHAT_LEARN" in ended.stderr


def test_a_damaged_file_is_told_once_and_the_answer_is_the_same(
    specchat: Specchat, model: str
) -> None:
    asked = ("ask", "hi", "--model", model, *SHORT, "--draft", "ngram")
    answer = specchat(*asked).stdout
    files()[0].write_bytes(b"scngram1 and then nothing")
    ended, after = specchat(*asked), specchat(*asked)
    assert ended.stdout == after.stdout == answer
    assert "is damaged; it was set aside" in ended.stderr
    assert "set aside" not in after.stderr


def test_where_replies_are_compared_none_teaches_the_next(model: str) -> None:
    paths = Paths.of_this_user()
    options = SessionOptions(model=model, draft="off", threads=1)
    drafted: dict[bool, list[int]] = {}
    with closing(Session.open(options, paths, lambda _: None)) as session:
        prompt = session.raw_prompt("Say hello.").tokens
        for compared in (False, True):
            place = session.place(lambda _: None)
            with closing(build(session.spec("ngram"), place)) as drafting:
                drafting.compare(compared)
                replies = [
                    list(
                        greedy_reply(
                            session.context, prompt, Limits(24, frozenset()), drafting.chain
                        )
                    )
                    for _ in range(3)
                ]
            drafted[compared] = [sum(step.accepted for step in steps) for steps in replies]
    assert drafted[False][2] > drafted[False][0]
    assert drafted[True] == [drafted[False][0]] * 3
    assert files() == []
