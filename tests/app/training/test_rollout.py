"""The test of a drafter: what it measures is known beforehand, and wrong ways to measure differ."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.training import rollout
from app.training.answers import Asked
from app.training.rollout import Answer, Contender, Result, rolled_out
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine, with_confidence
from decoding.drafters.ngram import Passage
from scripts.prompts import tokenized
from tests.fixtures.scripted import PROMPT, ScriptedModel, opened
from tests.fixtures.sessions import opened_on

WORDS = tuple(f"w{number} " for number in range(60))
WRONG = 2
"""The first word, which the script says once."""

Rule = Callable[[Sequence[int], int], Sequence[int]]
"""What is drafted, of the answer and the number of tokens that it has so far."""


def prompt(kind: str, tokens: Sequence[int]) -> Asked:
    return Asked("", kind, tuple(tokens), 0.0, 0)


ASKED = [prompt(kind, [PROMPT] * length) for length, kind in enumerate(("a", "b", "a", "b"), 3)]


class Ruled(Drafter):
    name = "ruled"

    def __init__(self, rule: Rule, said: Sequence[int], begins: int) -> None:
        self._rule, self._said, self._begins = rule, said, begins

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = tuple(self._rule(self._said, len(history) - self._begins)[:limit])
        line = PointMassLine(tokens)
        return with_confidence(line, self.name, [0.5] * len(tokens)) if tokens else NO_DRAFT


def ruled(rule: Rule, key: str = "") -> Contender:
    @contextmanager
    def ready(_session: Session) -> Generator[rollout.Maker]:
        def make(prompt: Sequence[int], answer: Answer) -> Drafter:
            said = [token for step in answer(None) for token in step.tokens]
            return Ruled(rule, said, len(prompt))

        yield make

    return Contender("ruled", key, ready)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(WORDS)


@pytest.fixture
def session(model: ScriptedModel) -> Iterator[Session]:
    with closing(opened(model)(SessionOptions(), Paths.of_this_user(), lambda _line: None)) as one:
        yield one


def results(
    session: Session, contender: Contender, file: Path, *, most: int = 128
) -> tuple[Result, ...]:
    return results_of(rolled_out(session, [contender], ASKED, file, most=most))


def results_of(run: Generator[object, None, tuple[Result, ...]]) -> tuple[Result, ...]:
    while True:
        try:
            next(run)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    ("rule", "cumulative", "conditional", "tokens"),
    [
        (lambda said, at: said[at:], (1, 1, 1), (1, 1, 1), 4.0),
        (lambda said, at: said[at + 1 :], (0, 0, 0), (0, 0, 0), 1.0),
        (lambda said, at: [WRONG, *said[at + 1 :]], (0, 0, 0), (0, 0, 0), 1.0),
        (lambda said, at: [*said[at : at + 2], WRONG], (1, 1, 0), (1, 1, 0), 3.0),
        (lambda said, at: [*said[at : at + 1]], (1, 0, 0), (1, 0, 0), 2.0),
    ],
    ids=["told", "off by one", "right but for the first", "two right", "short"],
)
def test_what_is_kept_is_what_was_right_with_all_before_it(
    session: Session,
    tmp_path: Path,
    rule: Rule,
    cumulative: tuple[float, ...],
    conditional: tuple[float, ...],
    tokens: float,
) -> None:
    """Right but for the first: told the text before, as in training, it would be right twice."""
    for found in results(session, ruled(rule), tmp_path / "done", most=40):
        assert found.overall.cumulative == cumulative
        assert found.overall.conditional == conditional
        assert found.overall.tokens_per_pass == tokens
        assert found.overall.errors == (0, 0, 0)


def test_a_drafter_that_is_silent_keeps_nothing_there(session: Session, tmp_path: Path) -> None:
    rule: Rule = lambda said, at: said[at:] if at % 5 == 1 else ()  # noqa: E731
    found, warm = results(session, ruled(rule), tmp_path / "done", most=60)
    assert found.overall.silent == pytest.approx(0.5, abs=0.05)
    assert found.overall.cumulative == pytest.approx((0.5, 0.5, 0.5), abs=0.05)
    assert found.overall.conditional == (1, 1, 1)
    assert (found.temperature, warm.temperature) == (0.0, 0.8)


def test_nothing_is_judged_after_the_end_of_an_answer(session: Session, tmp_path: Path) -> None:
    rule: Rule = lambda said, at: [*said[at:], WRONG, WRONG]  # noqa: E731
    for found in results(session, ruled(rule), tmp_path / "done", most=500):
        assert found.overall.cumulative == (1, 1, 1)


def test_the_error_is_that_of_drawing_prompts(session: Session, tmp_path: Path) -> None:
    """Half of the prompts have a drafter that is always right, half one that never is."""

    @contextmanager
    def ready(_session: Session) -> Generator[rollout.Maker]:
        told: Rule = lambda said, at: said[at:]  # noqa: E731

        def make(prompt: Sequence[int], answer: Answer) -> Drafter:
            said = [token for step in answer(None) for token in step.tokens]
            rule = told if len(prompt) % 2 else lambda said, at: [WRONG] * 3
            return Ruled(rule, said, len(prompt))

        yield make

    found, _ = results(session, Contender("half", "", ready), tmp_path / "done", most=42)
    assert {kind: one.cumulative[0] for kind, one in found.by_kind.items()} == {"a": 1, "b": 0}
    positions = {kind: one.positions for kind, one in found.by_kind.items()}
    share = positions["a"] / sum(positions.values())
    assert found.overall.cumulative[0] == pytest.approx(share)
    assert 0.1 < found.overall.errors[0] < 0.25


def test_a_test_that_was_stopped_goes_on_with_the_answers_that_are_missing(
    model: ScriptedModel, session: Session, tmp_path: Path
) -> None:
    contenders = [rollout.lookup(), ruled(lambda said, at: said[at:])]
    whole = results_of(rolled_out(session, contenders, ASKED, tmp_path / "whole"))
    asked: list[int] = []
    run = rolled_out(session, contenders, ASKED, tmp_path / "parts", stop=lambda: len(asked) > 5)
    asked.extend(progress.done for progress in run)
    with (tmp_path / "parts").open("a", encoding="utf-8") as file:
        file.write('\n["ruled  0 128 3 00')  # a kill
    before = model.passes
    again = rolled_out(session, contenders, ASKED, tmp_path / "parts")
    dones = [progress.done for progress in again]
    assert dones == list(range(5, 16))
    assert model.passes > before
    before = model.passes
    assert results_of(rolled_out(session, contenders, ASKED, tmp_path / "parts")) == whole
    assert model.passes == before


def test_results_of_another_file_are_not_taken(session: Session, tmp_path: Path) -> None:
    right, wrong = (
        ruled(lambda said, at: said[at:], "one"),
        ruled(lambda _said, _at: [WRONG], "two"),
    )
    assert results(session, right, tmp_path / "done")[0].overall.cumulative[0] == 1
    assert results(session, wrong, tmp_path / "done")[0].overall.cumulative[0] == 0


def test_ngrams_know_what_they_were_taught(
    model: ScriptedModel, session: Session, tmp_path: Path
) -> None:
    taught = rollout.ngrams("", lambda: [Passage([PROMPT, *model.script], 1)] * 4)
    for found in results(session, taught, tmp_path / "done"):
        assert found.overall.cumulative[0] > 0.9
    for found in results(session, rollout.ngrams("none", list), tmp_path / "done"):
        assert found.overall.silent == 1
        assert found.overall.tokens_per_pass == 1


def test_a_table_has_a_row_for_each_kind(session: Session, tmp_path: Path) -> None:
    found = results(session, rollout.lookup(), tmp_path / "done")
    rows = list(rollout.table(found))
    assert len(rows) == 2 + 2 * 3
    assert rows[2].startswith("| lookup | 0 | ")
    assert rows[3].startswith("| lookup, a | 0 | ")


@pytest.mark.slow
def test_a_model_keeps_all_it_was_told_and_a_word_names_the_drafter(tmp_path: Path) -> None:
    with closing(opened_on("demo", ctx=512)) as session:
        asked = [prompt(kind, tokens) for kind, tokens in tokenized(session.model)[4:5]]
        by_word = rollout.by_spec("lookup", "", "by word")
        contenders = [rollout.oracle(), rollout.lookup(), by_word]
        run = rolled_out(session, contenders, asked, tmp_path / "done", most=32)
        found = {(one.name, one.temperature): one.overall for one in results_of(run)}
    for heat in (0.0, 0.8):
        assert found["oracle", heat].cumulative == (1, 1, 1)
        assert found["lookup", heat] == found["by word", heat]
    assert 1 > found["lookup", 0.0].cumulative[0] > 0
