"""What retrieval proposes of what was said before, and how sure it is."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.checks.distribution_check import exact_distribution, p_value
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, HostLine
from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.drafters.retrieval.segment import TextIndex
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings, uniform
from decoding.sampling.sampler import Sampler
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, Verdict
from tests.fixtures.chance import SHORT, replies
from tests.fixtures.corpora import DAY, VOCABULARY, corpus_of, document, finished
from tests.fixtures.replied import said

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

SAMPLER = Sampler(SamplingSettings())


def draft(corpus: Corpus, history: Sequence[int], limit: int = 100) -> Draft:
    drafter = Retrieval(corpus)
    drafter.begin(history, SAMPLER)
    return drafter.propose(history, limit)


def test_it_proposes_what_followed_in_an_earlier_chat(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, [*range(40)])])
    assert draft(corpus, [5, 6, 7], limit=4).tokens == (8, 9, 10, 11)
    assert draft(corpus, [5, 6, 7]).tokens == tuple(range(8, 23))
    assert draft(corpus, [35, 36, 37]).tokens == (38, 39)


def test_too_short_a_match_no_room_and_no_chats_propose_nothing(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, [*range(40)])])
    assert draft(corpus, [3, 6, 7]) == NO_DRAFT
    assert draft(corpus, [5, 6, 7], limit=0) == NO_DRAFT
    assert draft(Corpus(tmp_path / "none", VOCABULARY), [5, 6, 7]) == NO_DRAFT


def test_a_longer_match_goes_before_more_and_later_ones(tmp_path: Path) -> None:
    often = [document(n, [8, 1, 2, 3, 5], said=n * DAY) for n in range(2, 6)]
    corpus = corpus_of(tmp_path, [document(1, [9, 1, 2, 3, 4])], often)
    assert draft(corpus, [9, 1, 2, 3]).tokens == (4,)
    assert draft(corpus, [7, 1, 2, 3]).tokens == (5,)


def test_what_followed_more_often_is_proposed_and_confidence_says_how_often(tmp_path: Path) -> None:
    said = [[1, 2, 3, 4, 6, 6], [1, 2, 3, 4, 7, 7], [1, 2, 3, 4, 7, 7], [1, 2, 3, 5, 5]]
    corpus = corpus_of(tmp_path, [document(n, tokens) for n, tokens in enumerate(said)])
    found = draft(corpus, [1, 2, 3])
    assert found.tokens == (4, 7, 7)
    shares = [0.35 * 3 / 4, 0.5 * 2 / 3, 0.5]
    assert found.confidence == pytest.approx(shares)


def test_of_two_continuations_the_later_one_is_proposed(tmp_path: Path) -> None:
    earlier = [document(n, [1, 2, 3, 4], said=0.0) for n in range(3)]
    corpus = corpus_of(tmp_path, [*earlier, document(9, [1, 2, 3, 5], said=40 * DAY)])
    assert draft(corpus, [1, 2, 3]).tokens == (4,)
    finished(corpus.add([document(10, [1, 2, 3, 5], said=41 * DAY)]))
    assert draft(corpus, [1, 2, 3]).tokens == (5,)


def test_kinds_of_evidence_tell_length_and_agreement_apart(tmp_path: Path) -> None:
    once = corpus_of(tmp_path / "once", [document(1, [*range(40)])])
    twice = corpus_of(tmp_path / "twice", [document(1, [*range(40)]), document(2, [*range(40)])])
    split = corpus_of(tmp_path / "split", [document(1, [1, 2, 3, 4]), document(2, [1, 2, 3, 5])])
    kinds = {draft(corpus, [1, 2, 3], limit=1).evidence for corpus in (once, twice, split)}
    assert len(kinds) == 3
    longer = draft(once, [*range(1, 10)], limit=1)
    assert longer.evidence not in kinds
    assert longer.confidence > draft(once, [1, 2, 3], limit=1).confidence


def test_it_sees_what_another_program_indexed_when_a_reply_begins(tmp_path: Path) -> None:
    drafter = Retrieval(Corpus(tmp_path, VOCABULARY))
    corpus_of(tmp_path, [document(1, [1, 2, 3, 4])])
    assert drafter.propose([1, 2, 3], 5).tokens == ()
    drafter.begin([1, 2, 3], SAMPLER)
    assert drafter.propose([1, 2, 3], 5).tokens == (4,)


# With retrieval the tokens and the law stay the target's own, whatever the index holds.
#
# Sampled replies are compared with the exact law by a chi-square test, which rejects a right
# program for one choice of seeds in 10,000; the seeds are fixed. A wrong rule is rejected.

MakeTable = Callable[..., NDArray[np.float32]]
Open = Callable[..., "FakeContext"]

N_VOCAB = 6
FALSE_ALARM = 1e-4
REPLIES = 1000
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.2, top_k=4, top_p=0.97, min_p=0.02, repeat_penalty=1.2)
PROMPT = [1, 2, 3, 4, 5]


def chats(folder: Path, seed: int) -> Retrieval:
    """Retrieval of random text, in which every few tokens occur."""
    texts = [document(n, tokens.tolist()) for n, tokens in enumerate(texts_of(seed))]
    return Retrieval(corpus_of(folder, texts[:10], texts[10:]), min_match=1)


def files(folder: Path, seed: int) -> Retrieval:
    """The same from memory."""
    del folder
    return Retrieval(TextIndex(texts_of(seed)), name="documents", max_draft=MOST_DRAFTED)


def texts_of(seed: int) -> list[NDArray[np.uint32]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, N_VOCAB, 200, np.uint32) for _ in range(20)]


Make = Callable[[Path, int], Retrieval]
SOURCES = pytest.mark.parametrize("drafter", [chats, files])


@SOURCES
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_replies_are_those_of_plain_decoding(
    table: MakeTable,
    fake_context: Open,
    tmp_path: Path,
    settings: SamplingSettings,
    drafter: Make,
) -> None:
    drafted = accepted = 0
    for seed in range(10):
        target, seeded = table(seed, N_VOCAB), replace(settings, seed=seed)
        plain = steps(fake_context(target), seeded, None)
        found = steps(fake_context(target), seeded, drafter(tmp_path / str(seed), seed))
        assert said(found) == said(plain)
        drafted += sum(step.drafted for step in found)
        accepted += sum(step.accepted for step in found)
    assert drafted > accepted > 0


def steps(
    context: "FakeContext", settings: SamplingSettings, drafter: Retrieval | None
) -> list[Step]:
    limits = Limits(50, frozenset())
    events = generate(context, PROMPT, settings, limits, drafters=always(drafter))
    return [event for event in events if isinstance(event, Step)]


def chance(table: MakeTable, fake_context: Open, folder: Path, drafter: Make) -> float:
    """How likely a correct loop is to give replies as far from the law as these."""
    context = fake_context(table(7, N_VOCAB))
    drawn: Counter[tuple[int, ...]] = Counter()
    drafted = 0
    for outcome, tokens in replies(context, PROMPT, SAMPLED, drafter(folder, 0), REPLIES):
        drawn[outcome] += 1
        drafted += tokens
    assert drafted >= REPLIES
    return p_value(exact_distribution(context, PROMPT, SAMPLED, SHORT), drawn)


@SOURCES
@pytest.mark.slow
def test_sampled_replies_follow_the_target(
    table: MakeTable, fake_context: Open, tmp_path: Path, drafter: Make
) -> None:
    assert chance(table, fake_context, tmp_path, drafter) > FALSE_ALARM


@SOURCES
def test_control_the_test_sees_a_wrong_rule(
    table: MakeTable,
    fake_context: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drafter: Make,
) -> None:
    """Taking every drafted token that the target could say is lossy."""

    def lenient(target: TargetRows, draft: HostLine, generator: np.random.Generator) -> Verdict:
        count = 0
        while count < len(draft.tokens) and target[count].of(draft.tokens[count]) > 0.0:
            count += 1
        return Verdict(count, target[count].draw(uniform(generator)))

    monkeypatch.setattr(target_pass, "verify", lenient)
    assert chance(table, fake_context, tmp_path, drafter) < FALSE_ALARM
