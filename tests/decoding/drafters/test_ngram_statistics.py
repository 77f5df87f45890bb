"""What is learned of a text: back-off to shorter contexts, and a confidence that can be trusted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.ngram import LONGEST, ORDERS, NgramStatistics, Passage, state_of

common = settings(max_examples=60)
texts = st.lists(st.integers(0, 5), max_size=40)


def taught(*texts: list[int]) -> NgramStatistics:
    statistics = NgramStatistics()
    for text in texts:
        statistics.learn(Passage(text, 0))
    return statistics


@common
@given(texts)
def test_nothing_learned_means_nothing_to_say(text: list[int]) -> None:
    assert NgramStatistics().guess(text) is None


@common
@given(texts, texts)
def test_a_guess_followed_the_longest_end_that_was_said_before(
    said: list[int], text: list[int]
) -> None:
    guess = taught(said).guess(text)
    followers = {
        order: {
            said[i]
            for i in range(order, len(said))
            if len(text) >= order and said[i - order : i] == text[len(text) - order :]
        }
        for order in ORDERS
    }
    known = [order for order in ORDERS if followers[order]]
    if guess is None:
        assert not known
    else:
        assert guess.order == known[-1]
        assert guess.token in followers[guess.order]
        assert 0.0 < guess.confidence < 1.0


def test_a_longer_context_decides_and_a_shorter_one_helps_out() -> None:
    statistics = taught([1, 2, 3, 4] * 3, [9, 9, 3, 7])
    by_four = statistics.guess([9, 1, 2, 3])
    assert by_four is not None
    assert (by_four.token, by_four.order) == (4, 2)
    by_two = statistics.guess([9, 3])
    assert by_two is not None
    assert (by_two.token, by_two.order) == (7, 2)
    by_one = statistics.guess([8, 3])
    assert by_one is not None
    assert (by_one.token, by_one.order) == (4, 1)
    assert statistics.guess([8]) is None


def test_only_what_the_model_said_itself_is_learned() -> None:
    statistics = NgramStatistics()
    statistics.learn(Passage([1, 2, 3, 4], 3))
    assert statistics.guess([1]) is None
    guess = statistics.guess([1, 2, 3])
    assert guess is not None
    assert guess.token == 4


@common
@given(texts, texts)
def test_the_order_of_passages_of_their_own_words_does_not_matter(
    first: list[int], second: list[int]
) -> None:
    """Two programs that save one after the other: where they speak of other things, either way."""
    other = [token + 10 for token in second]
    ours, theirs = taught(first, other).table.contents, taught(other, first).table.contents
    assert ours.slots.tolist() == theirs.slots.tolist()
    assert ours.entries["word"].tolist() == theirs.entries["word"].tolist()


def test_whichever_passage_came_last_guesses_are_right_as_often() -> None:
    passages = [speech(seed, 3000) for seed in (1, 2)]
    text = speech(3, 2000)
    ours, theirs = (_right(taught(*order), text) for order in (passages, passages[::-1]))
    assert ours > 0.15
    assert ours == pytest.approx(theirs, abs=0.03)


def _right(statistics: NgramStatistics, text: list[int]) -> float:
    """The share of tokens that are guessed."""
    guesses = (statistics.guess(text[:end]) for end in range(1, len(text)))
    pairs = zip(guesses, text[1:], strict=True)
    return float(np.mean([guess is not None and guess.token == token for guess, token in pairs]))


def speech(seed: int, count: int, n_vocab: int = 300) -> list[int]:
    """Draws of one law: each token depends on the two before it, some ends are nearly certain."""
    habits = np.random.default_rng(0)
    sharpness = habits.gamma(0.7, 1.2, size=(n_vocab, 16))
    rng = np.random.default_rng(seed)
    text = [1, 2]
    for _ in range(count):
        before, last = text[-2:]
        shares = sharpness[(before * 31 + last * 17) % n_vocab] ** 3
        chosen = rng.choice(16, p=shares / shares.sum())
        text.append(int((before * 13 + last * 7 + chosen * chosen * 5) % n_vocab))
    return text


def reliability(
    statistics: NgramStatistics, text: list[int]
) -> dict[int, list[tuple[float, bool]]]:
    """Confidence and whether it was right, by tenths of confidence, on a text not learned yet."""
    found: dict[int, list[tuple[float, bool]]] = {}
    for end in range(LONGEST, len(text)):
        guess = statistics.guess(text[end - LONGEST : end])
        if guess is not None:
            judged = (guess.confidence, guess.token == text[end])
            found.setdefault(int(guess.confidence * 10), []).append(judged)
    return found


def worst_error(found: dict[int, list[tuple[float, bool]]]) -> float:
    """The largest gap between confidence and share of right guesses, of tenths seen often."""
    often = [np.array(judged) for judged in found.values() if len(judged) >= 150]
    assert len(often) >= 4, "too few kinds to tell anything"
    return max(abs(judged[:, 0].mean() - judged[:, 1].mean()) for judged in often)


def test_confidence_holds_on_text_it_has_not_seen() -> None:
    """150 guesses or more in a tenth: 0.1 is more than two standard errors; the seeds are fixed."""
    statistics = taught(speech(1, 8000))
    assert worst_error(reliability(statistics, speech(2, 4000))) < 0.1


def test_the_share_of_right_guesses_of_an_entry_would_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: counts of a context alone promise too much."""

    def share(self: NgramStatistics, kind: int) -> float:
        right, wrong = kind >> 3 & 7, kind & 7
        return min(right / (right + wrong), 0.999)

    statistics = taught(speech(1, 8000))
    monkeypatch.setattr(NgramStatistics, "_confidence", share)
    assert worst_error(reliability(statistics, speech(2, 4000))) > 0.2


@common
@given(texts, texts)
def test_what_is_copied_guesses_as_the_original(said: list[int], text: list[int]) -> None:
    statistics = taught(said)
    copy = NgramStatistics.of(statistics.table.contents, statistics.counts)
    assert copy.guess(text) == statistics.guess(text)
    assert all(state_of(int(word)) > 7 for word in copy.table.contents.entries["word"])
