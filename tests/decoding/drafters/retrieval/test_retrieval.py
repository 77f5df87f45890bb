"""What retrieval proposes of what was said before, and how sure it is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from decoding.draft import NO_DRAFT, Draft
from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.corpora import DAY, VOCABULARY, corpus_of, document, finished

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


def test_what_followed_more_often_is_proposed_and_confidence_says_how_often(
    tmp_path: Path,
) -> None:
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
