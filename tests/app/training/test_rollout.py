"""The test of a drafter: what it measures is known beforehand, and wrong ways to measure differ."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.training import rollout
from app.training.answers import Asked
from app.training.rollout import Contender, Result, results, rolled_out
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine, with_confidence
from decoding.drafters.ngram import Passage
from decoding.drafters.predicted_text import PredictedText
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
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
    """Knows the script; even, odd: by the number of the prompt's tokens."""

    name = "ruled"

    def __init__(self, even: Rule, odd: Rule) -> None:
        self._rules = even, odd
        self._said = ScriptedModel(WORDS).script

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        prompt = list(history).count(PROMPT)
        tokens = tuple(self._rules[prompt % 2](self._said, len(history) - prompt)[:limit])
        line = PointMassLine(tokens)
        return with_confidence(line, self.name, [0.5] * len(tokens)) if tokens else NO_DRAFT


def ruled(rule: Rule, odd: Rule | None = None) -> Contender:
    return Contender("ruled", lambda _: nullcontext(lambda: Ruled(rule, odd or rule)))


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(WORDS)


@pytest.fixture
def session(model: ScriptedModel) -> Iterator[Session]:
    with closing(opened(model)(SessionOptions(), Paths.of_this_user(), lambda _line: None)) as one:
        yield one


def found_of(session: Session, contender: Contender, file: Path, most: int = 128) -> list[Result]:
    for _ in rolled_out(session, [contender], ASKED, file, most=most):
        pass
    return list(results([contender], ASKED, file, most))


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
    for found in found_of(session, ruled(rule), tmp_path / "done", most=40):
        assert found.overall.cumulative == cumulative
        assert found.overall.conditional == conditional
        assert found.overall.tokens_per_pass == tokens
        assert found.overall.errors == (0, 0, 0)


def test_a_drafter_that_is_silent_keeps_nothing_there(session: Session, tmp_path: Path) -> None:
    rule: Rule = lambda said, at: said[at:] if at % 5 == 1 else ()  # noqa: E731
    found, warm = found_of(session, ruled(rule), tmp_path / "done", most=60)
    assert found.overall.silent == pytest.approx(0.5, abs=0.05)
    assert found.overall.cumulative == pytest.approx((0.5, 0.5, 0.5), abs=0.05)
    assert found.overall.conditional == (1, 1, 1)
    assert (found.temperature, warm.temperature) == (0.0, 0.8)


def test_nothing_is_judged_after_the_end_of_an_answer(session: Session, tmp_path: Path) -> None:
    rule: Rule = lambda said, at: [*said[at:], WRONG, WRONG]  # noqa: E731
    for found in found_of(session, ruled(rule), tmp_path / "done", most=500):
        assert found.overall.cumulative == (1, 1, 1)


def test_the_error_is_that_of_drawing_prompts(session: Session, tmp_path: Path) -> None:
    """Half of the prompts have a drafter that is always right, half one that never is."""

    half = ruled(lambda _said, _at: [WRONG] * 3, odd=lambda said, at: said[at:])
    found, _ = found_of(session, half, tmp_path / "done", most=42)
    assert {kind: one.cumulative[0] for kind, one in found.by_kind.items()} == {"a": 1, "b": 0}
    positions = {kind: one.positions for kind, one in found.by_kind.items()}
    share = positions["a"] / sum(positions.values())
    assert found.overall.cumulative[0] == pytest.approx(share)
    assert found.overall.errors
    assert 0.1 < found.overall.errors[0] < 0.25


def test_a_test_that_was_stopped_goes_on_with_the_answers_that_are_missing(
    model: ScriptedModel, session: Session, tmp_path: Path
) -> None:
    contenders, asked = [rollout.by_spec("lookup"), ruled(lambda said, at: said[at:])], list[int]()
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for _ in rolled_out(session, contenders, ASKED, whole):
        pass
    run = rolled_out(session, contenders, ASKED, parts, stop=lambda: len(asked) > 5)
    asked.extend(done for done, _ in run)
    with parts.open("a", encoding="utf-8") as file:
        file.write('\n["ruled  0 128 3 00')  # a kill
    before = model.passes
    again = list(rolled_out(session, contenders, ASKED, parts))
    assert again == [(done, 16) for done in range(5, 16)]
    assert model.passes > before
    before = model.passes
    assert not list(rolled_out(session, contenders, ASKED, parts))
    assert model.passes == before
    assert len(list(results(contenders, ASKED, whole))) == 4
    assert list(results(contenders, ASKED, parts)) == list(results(contenders, ASKED, whole))


def test_ngrams_know_what_they_were_taught(
    model: ScriptedModel, session: Session, tmp_path: Path
) -> None:
    taught = rollout.ngrams(lambda: [Passage([PROMPT, *model.script], 1)] * 4)
    for found in found_of(session, taught, tmp_path / "done"):
        assert found.overall.cumulative[0] > 0.9
    for found in found_of(session, rollout.ngrams(list), tmp_path / "untaught"):
        assert found.overall.silent == 1
        assert found.overall.tokens_per_pass == 1


@pytest.mark.slow
def test_a_model_keeps_all_it_was_told(tmp_path: Path) -> None:
    with closing(opened_on("demo", ctx=512)) as session:
        ((kind, tokens),) = tokenized(session.model)[4:5]
        limits = Limits(32, session.model.tokenizer.end_tokens)
        with session.context.use() as context:
            context.truncate(0)
            events = generate(context, tokens, SamplingSettings(0.0), limits, drafters=always(None))
            said = [token for step in events if isinstance(step, Step) for token in step.tokens]
        oracle = Contender(
            "oracle", lambda _: nullcontext(lambda: PredictedText(said, len(tokens)))
        )
        contenders, asked = [oracle, rollout.by_spec("lookup")], [prompt(kind, tokens)]
        for _ in rolled_out(session, contenders, asked, tmp_path / "done", most=32):
            pass
    told, _, known, _ = results(contenders, asked, tmp_path / "done", 32)
    assert told.overall.errors is told.overall.pass_error is None  # of one prompt
    assert told.overall.cumulative == (1, 1, 1)
    assert 1 > known.overall.cumulative[0] > 0
