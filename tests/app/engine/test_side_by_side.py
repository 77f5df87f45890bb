"""Requests are answered side by side, each exactly, and a person's before those of programs."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from app.engine import session_opening
from app.engine.answer import Answer, Stage
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.session import Session
from app.engine.side_by_side import Sequences
from app.loading.placement import MemoryPlan
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Context, Model
from decoding.checks.distribution_check import divergences
from decoding.draft import MOST_DRAFTED
from decoding.events import FinishReason
from decoding.prefill import common_prefix
from decoding.sampling.settings import SamplingSettings
from models.metadata.memory_bill import ModelFacts
from tests.fixtures.sessions import GREEDY, conversation
from tests.fixtures.settled import settle
from tests.fixtures.simulator import costs_of

pytestmark = pytest.mark.usefixtures("llamacpp", "drafting_pays")

ROUNDING = 1.5
"""Of the bundled model's logits where rows lie elsewhere in the cache, as in
tests/backends/llamacpp/test_sequences.py."""

TINY_ROUNDING = 0.08
"""The same of the tiny model."""

QUESTIONS = (
    "Write a short poem about the sea.",
    "Say this again: one two three four five six seven eight one two three four five six seven",
    "List ten colours.",
    "Why is the sky blue?",
)


def asked(engine: Engine, text: str, most: int = 24, program: str = "agent", *more: str) -> Answer:
    return engine.ask(Request(conversation(text, *more), GREEDY, most, program=program))


Begin = Callable[..., Engine]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts an engine on a model that answers so many requests at once."""
    with ExitStack() as stack:

        def start(model: Path, count: int | None, ctx: int = 512, draft: str = "auto") -> Engine:
            options = SessionOptions(str(model), draft, threads=1, ctx=ctx, parallel=count)
            engine = Engine(options, Paths.of_this_user())
            engine.start()
            stack.callback(engine.close, 30.0)
            settle(engine)
            return engine

        yield start


def ended(*answers: Answer) -> None:
    for answer in answers:
        assert answer.wait(120)
        assert answer.error is None


@pytest.mark.slow
@pytest.mark.parametrize(("count", "program"), [(4, "agent"), (None, "")])
def test_each_token_is_what_the_model_says_after_its_own_text(
    begin: Begin, demo: Model, count: int | None, program: str
) -> None:
    engine = begin(demo.info.path, count)
    answers = [asked(engine, text, program=program) for text in QUESTIONS]
    ended(*answers)
    assert all(answer.reply.is_shared for answer in answers)
    assert all(answer.metrics and answer.metrics.speedup is None for answer in answers)
    assert {one.metrics.comparison.words for one in answers if one.metrics} == {"beside others"}
    assert any(answer.metrics and answer.metrics.accepted for answer in answers)
    prompts = [engine.prepare(Answer(answer.request)) for answer in answers]
    assert all(prompt.result(30) for prompt in prompts)
    check(engine, answers, demo, ROUNDING)


def check(engine: Engine, answers: Sequence[Answer], model: Model, rounding: float) -> None:
    """Whether each token is what the model says after the text before it."""
    active = engine._active
    assert active is not None
    with closing(model.open(512)) as context:
        for answer in answers:
            prompt, _ = active.session.prompt(answer.request)
            for other in divergences(context, prompt.tokens, answer.token_ids):
                assert other.margin <= rounding


@pytest.fixture
def tiny(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama()


@pytest.fixture
def small(tiny_llama: Callable[..., Path]) -> str:
    """A drafter model for the tiny one, which agrees with it now and then."""
    return str(tiny_llama(noise=0.1))


@pytest.mark.slow
def test_a_drafter_model_drafts_for_all_of_them(
    begin: Begin, tiny: Path, small: str, llamacpp: ModuleType
) -> None:
    engine = begin(tiny, 4, draft=small)
    answers = [asked(engine, text) for text in QUESTIONS * 2]
    ended(*answers)
    for answer in answers:
        assert answer.reply.is_shared
        assert answer.metrics is not None
        assert answer.metrics.accepted > 0
        assert small in answer.reply.provenance
    with closing(llamacpp.load(tiny)) as model:
        check(engine, answers, model, TINY_ROUNDING)
    active, together = engine._active, engine._together
    assert active is not None
    assert together is not None
    (sequences,) = together._of_drafters.values()
    texts = [
        [*active.session.prompt(answer.request)[0].tokens, *answer.token_ids] for answer in answers
    ]
    for one in sequences.idle:  # each is that of one reply, but for what it drafted last
        agreed = max(common_prefix(one.tokens, text) for text in texts)
        assert one.length - agreed <= MOST_DRAFTED
    assert len(sequences.idle) >= 3


@pytest.mark.slow
def test_a_drafter_model_that_is_exchanged_ends_no_answer(
    begin: Begin, tiny: Path, small: str, llamacpp: ModuleType
) -> None:
    engine = begin(tiny, 4, draft=small)
    answers = [asked(engine, text, 60) for text in QUESTIONS]
    for answer, draft in zip(answers[1:], ("lookup", small, "off"), strict=True):
        answer.listen(
            lambda answer=answer, draft=draft: (
                engine.set_draft(draft) if len(answer.token_ids) == 9 else None
            )
        )
    ended(*answers)
    with closing(llamacpp.load(tiny)) as model:
        check(engine, answers, model, TINY_ROUNDING)


@pytest.mark.slow
def test_as_many_are_written_at_once_as_together_are_faster(begin: Begin, tiny: Path) -> None:
    """Also where nothing drafts."""
    engine = begin(tiny, 4, draft="off")
    active = engine._active
    assert active is not None
    session = active.session
    assert session.drafting.costs is not None
    costs = costs_of([0.0, 1.0, 2.7, 3.0, 3.4])
    session.drafting = replace(session.drafting, plain_costs=costs)
    two = [asked(engine, text, 40) for text in QUESTIONS[:2]]
    ended(*two)
    assert not any(answer.reply.is_shared for answer in two)
    four = [asked(engine, text, 200) for text in QUESTIONS]
    ended(*four)
    assert all(answer.reply.is_shared for answer in four)


@pytest.mark.slow
def test_a_person_is_answered_before_programs_that_came_later(begin: Begin, tiny: Path) -> None:
    engine = begin(tiny, 2)
    order: list[str] = []

    def told(name: str, answer: Answer) -> Answer:
        answer.listen(
            lambda: (
                order.append(name)
                if name not in order and answer.stage is not Stage.QUEUED
                else None
            )
        )
        return answer

    first = [told(f"p{place}", asked(engine, "a b c", 40)) for place in range(2)]
    person = told("person", asked(engine, "d e", 10, ""))
    later = told("later", asked(engine, "f g", 10))
    ended(*first, person, later)
    assert order.index("person") < order.index("later")


@pytest.mark.slow
def test_without_room_for_programs_they_wait_for_a_person(begin: Begin, tiny: Path) -> None:
    engine = begin(tiny, None)
    person = asked(engine, "a b c", 60, "")
    program = asked(engine, "d e", 10)
    more = asked(engine, "f g", 10, "")
    ended(person, program, more)
    assert not program.reply.is_shared
    active = engine._active
    assert active is not None
    assert active.session.context.beside(lambda one: one.length) > 0
    assert engine._together is not None
    assert engine._together.sequences.idle == []  # no cell waits for what does not come


@pytest.mark.slow
def test_one_prompt_is_read_once_for_several_answers(begin: Begin, tiny: Path) -> None:
    engine = begin(tiny, None)
    text = "a b c d e f g " * 12
    answers = [asked(engine, text, 10, "") for _ in range(3)]
    ended(*answers)
    read = [
        one.metrics.prompt_tokens - one.metrics.cached_prompt_tokens
        for one in answers
        if one.metrics
    ]
    assert read[0] > 64
    assert max(read[1:]) < 8


@pytest.mark.slow
def test_where_cells_are_short_requests_wait_and_none_fails(
    begin: Begin, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(planned: MemoryPlan, facts: ModelFacts, wanted: int) -> tuple[MemoryPlan, int]:
        return planned, 1

    monkeypatch.setattr(session_opening, "with_sequences", one)
    engine = begin(tiny, 4, ctx=128)
    answers = [asked(engine, f"{place} a b c d e f g", 90) for place in range(5)]
    ended(*answers)
    assert {answer.finish_reason for answer in answers} <= {
        FinishReason.LENGTH,
        FinishReason.STOP,
    }


@pytest.mark.parametrize("is_own", [True, False])
def test_cells_that_another_keeps_are_not_counted_as_free(
    tiny: Path, llamacpp: ModuleType, is_own: bool
) -> None:
    """A reply that goes on from half a text finds the cells that were reserved for it."""
    first = [5] * 100
    with closing(llamacpp.load(tiny)) as model:
        sequences = Sequences(model.open(128, sequences=3))

        @contextmanager
        def said(text: Sequence[int], is_own: bool = False) -> Iterator[None]:
            one = sequences.own if is_own else sequences.take(text, len(text))
            assert one is not None
            assert not is_own or sequences.reserve(len(text), text)
            one.truncate(common_prefix(one.tokens, text))
            while one.length < len(text):
                one.forward(text[one.length :][:64], 0)
            yield
            sequences.give_back(one)

        with said(first, is_own), said([*first, *[7] * 10]), said([9] * 128), said([13] * 100):
            assert sequences.own.free_cells == 46
        with said([*first[:60], *[11] * 65], is_own):
            assert sequences.own.free_cells >= 0


def test_a_text_that_a_reply_gives_up_is_shared_but_not_counted_as_its_own(
    tiny: Path, llamacpp: ModuleType
) -> None:
    """Another goes on with it, after the reply was promised its cells, and before it began."""
    old, new = [5] * 100, [11] * 128
    with closing(llamacpp.load(tiny)) as model:
        own = model.open(128, sequences=2)
        sequences = Sequences(own)
        own.forward(old[:64], 0)
        own.forward(old[64:], 0)
        idle = sequences.take([9] * 60, 60)
        assert idle is not None
        idle.forward([9] * 60, 0)
        sequences.give_back(idle)
        assert sequences.reserve(128, new)
        other = sequences.take([*old, 7], 110)
        assert other is not None
        assert other.tokens == old
        other.forward([7] * 10, 0)
        own.truncate(0)
        own.forward(new[:64], 0)
        own.forward(new[64:], 0)


def test_a_drafters_own_sequence_finds_room_for_a_whole_context(
    tiny: Path, llamacpp: ModuleType
) -> None:
    """Whatever it held, and who has cells of that: a drafter without room is dropped."""
    with closing(llamacpp.load(tiny)) as model:
        own = model.open(128, sequences=2)
        sequences = Sequences(own, keeps_own=True)
        for _ in range(3):
            own.truncate(0)
            for text in ([5] * 128, [*[5] * 100, *[7] * 10], [9] * 100):
                one = sequences.take(text, len(text)) if own.length else own
                for start in range(one.length if one else len(text), len(text), 64):
                    assert one is not None
                    one.forward(text[start:][:64], 0)
                if one not in (None, own):
                    sequences.give_back(one)
            assert len(sequences.idle) == 1


@pytest.mark.slow
@pytest.mark.parametrize("compared", [None, "lookahead", "off"])
def test_an_answer_and_its_last_drafts_find_cells_beside_idle_sequences(
    begin: Begin, tiny: Path, compared: str | None
) -> None:
    """A tree has more nodes than tokens of it can be said."""
    engine, most = begin(tiny, 2, 128, "lookahead"), 12
    ended(asked(engine, "a", 1))

    def fill(session: Session) -> int:
        """Leave the cells that the text of an answer takes, or none."""
        assert engine._together is not None
        sequences, filled = engine._together.sequences, list[Context]()
        request = Request(conversation("a b a b"), GREEDY, most)
        need = len(session.prompt(request)[0].tokens) + most
        left = 0 if compared else need - sequences.own.length
        while (count := min(sequences.own.free_cells - left, 60)) > 0:
            text = [3 + len(filled)] * count
            one = sequences.take(text, count)
            assert one is not None
            one.forward(text[one.length :], 0)
            filled.append(one)
        for one in filled:
            sequences.give_back(one)
        return len(sequences.idle)

    assert engine.between(fill).result(60) > 1
    request = Request(conversation("a b a b"), GREEDY, most, draft=compared)
    ended(answer := engine.ask(request))
    assert answer.metrics is not None
    assert (answer.metrics.drafted > 0) == (compared != "off")


@pytest.mark.slow
def test_what_a_sequence_holds_is_not_read_again(begin: Begin, tiny: Path) -> None:
    engine = begin(tiny, 2)
    own, other = asked(engine, "a b", 60), asked(engine, "the other text goes on", 20)
    ended(own, other)
    busy = asked(engine, "a b", 60, "agent", own.text, "and then?")
    again = asked(engine, "the other text goes on", 5, "agent", other.text, "more")
    ended(busy, again)
    assert again.metrics is not None
    assert again.metrics.cached_prompt_tokens > again.metrics.prompt_tokens // 3


def mixed(engine: Engine, seed: int, count: int, small: str) -> None:
    """Requests of all sorts, some stopped at random moments, as many as are allowed at a time."""
    chance = random.Random(seed)
    waiting: list[Answer] = []
    for number in range(count):
        words = " ".join(chance.choice("abcdefg") for _ in range(chance.randint(1, 60)))
        sampling = SamplingSettings(temperature=chance.choice((0.0, 1.0)), seed=number)
        program = chance.choice(("agent", "agent", "agent", ""))
        asked = Request(conversation(words), sampling, chance.randint(1, 40), program=program)
        answer = engine.ask(asked)
        if chance.random() < 0.1:
            engine.set_draft(chance.choice(("off", "lookup", "auto", small)))
        if chance.random() < 0.03:
            engine.load(str(engine.options.model))
        if chance.random() < 0.03:
            engine.set_context(chance.choice((192, 256)))
        if chance.random() < 0.3:
            steps = chance.randint(0, 10)
            answer.listen(
                lambda answer=answer, steps=steps: (
                    answer.stop()
                    if len(answer.reply.token_ids) >= steps and not answer.is_done
                    else None
                )
            )
        waiting.append(answer)
        if len(waiting) > chance.randint(1, 8):
            ended(waiting.pop(chance.randrange(len(waiting))))
    ended(*waiting)
    for answer in waiting:
        assert answer.is_stopped or len(answer.token_ids) > 0
    assert not engine.is_answering
    assert engine.status.error is None
    if (together := engine._together) is not None:
        sequences = together.sequences
        assert sequences.is_own_free
        held = sequences.own.free_cells + sequences.own.length
        assert held + sum(one.length for one in sequences.idle) >= 4 * sequences.own.n_ctx
        for drafting in together._of_drafters.values():
            assert list(drafting._reserved) == [drafting.own]


@pytest.mark.slow
def test_requests_of_all_sorts_come_and_go(begin: Begin, tiny: Path, small: str) -> None:
    engine = begin(tiny, 4, ctx=256, draft=small)
    mixed(engine, 1, 40, small)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_so_do_ten_thousand(begin: Begin, tiny: Path, small: str, seed: int) -> None:
    engine = begin(tiny, 8, ctx=256)
    mixed(engine, seed, 1000, small)
