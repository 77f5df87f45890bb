"""What is expected of a token: priors at first, then what was seen, shifted by the reply's mood."""

import numpy as np
import pytest

from decoding.estimation.acceptance import Acceptance, Count


def of(found: Acceptance, kind: str, prior: float) -> float:
    """What is expected of a token of a kind in this reply."""
    return found.in_this_reply(found.mean(kind, prior))


def learn(found: Acceptance, kind: str, prior: float, accepted: bool) -> None:
    """Judge one token of a kind, which tells how the reply goes as well."""
    found.update_bias(of(found, kind, prior), accepted)
    found.add(kind, accepted)


def taught(share: float, count: int, kind: str = "a", prior: float = 0.5) -> Acceptance:
    """Learned from count tokens of a kind, of which share were accepted, evenly spread."""
    found = Acceptance()
    for i in range(count):
        learn(found, kind, prior, int((i + 1) * share) > int(i * share))
    return found


@pytest.mark.parametrize("prior", [0.1, 0.65, 0.97])
def test_before_any_token_the_prior_is_expected(prior: float) -> None:
    assert of(Acceptance(), "a", prior) == pytest.approx(prior)


def test_one_token_moves_the_expectation_a_little() -> None:
    once = taught(0.0, 1, prior=0.8)
    once.begin()
    assert 0.6 < of(once, "a", 0.8) < 0.8


@pytest.mark.parametrize("share", [0.1, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("prior", [0.2, 0.9])
def test_what_was_seen_is_learned_and_the_prior_fades(share: float, prior: float) -> None:
    found = taught(share, 800, prior=prior)
    found.begin()
    assert of(found, "a", prior) == pytest.approx(share, abs=0.03)


def test_what_was_seen_long_ago_is_forgotten() -> None:
    found = Acceptance()
    for accepted in [True] * 1000 + [False] * 250:
        learn(found, "a", 0.5, accepted)
    found.begin()
    assert of(found, "a", 0.5) < 0.1
    accepted, judged = found.counts()["a"]
    assert accepted < judged < 200.0


def test_kinds_are_learned_apart() -> None:
    found = Acceptance()
    for _ in range(200):
        learn(found, "good", 0.5, True)
        learn(found, "bad", 0.5, False)
    found.begin()
    assert of(found, "good", 0.5) > 0.9
    assert of(found, "bad", 0.5) < 0.1
    assert of(found, "new", 0.5) == pytest.approx(0.5)


def test_an_expectation_is_never_certain() -> None:
    for share in (0.0, 1.0):
        found = taught(share, 2000)
        assert 0.0 < of(found, "a", 0.5) < 1.0
    assert 0.0 < of(Acceptance(), "a", 0.0) < of(Acceptance(), "a", 1.0) < 1.0


def test_counts_are_carried_to_the_next_start_for_little() -> None:
    counts = taught(0.9, 500).counts()
    found = Acceptance(counts)
    assert found.counts()["a"][1] == pytest.approx(40.0)
    assert of(found, "a", 0.5) == pytest.approx(0.9, abs=0.15)
    for _ in range(60):
        learn(found, "a", 0.5, False)
    found.begin()
    assert of(found, "a", 0.5) < 0.3


def test_few_counts_are_carried_as_they_are() -> None:
    found = Acceptance({"a": (3.0, 4.0), "none": (0.0, 0.0)})
    assert found.counts()["a"] == (3.0, 4.0)
    assert of(found, "none", 0.4) == pytest.approx(0.4)


def test_the_mood_of_a_reply_shifts_every_kind() -> None:
    found = Acceptance()
    for _ in range(12):
        learn(found, "a", 0.7, False)
    assert of(found, "b", 0.7) < 0.6
    found.begin()
    assert of(found, "b", 0.7) == pytest.approx(0.7)
    for _ in range(12):
        learn(found, "c", 0.7, True)
    assert of(found, "b", 0.7) > 0.74


def test_the_mood_does_not_turn_on_what_was_expected() -> None:
    generator = np.random.default_rng(0)
    found = Acceptance()
    shifts: list[float] = []
    for _ in range(4000):
        learn(found, "a", 0.8, bool(generator.random() < 0.8))
        shifts.append(of(found, "never seen", 0.5) - 0.5)
    assert abs(np.mean(shifts)) < 0.02
    assert np.std(shifts) < 0.1


def test_the_mood_wears_off_while_nothing_is_judged() -> None:
    found = Acceptance()
    for _ in range(12):
        learn(found, "a", 0.7, False)
    low = of(found, "b", 0.7)
    for _ in range(200):
        found.decay_bias()
    assert low < 0.6 < of(found, "b", 0.7) == pytest.approx(0.7, abs=0.01)


def test_a_token_may_be_counted_without_telling_the_mood() -> None:
    found = Acceptance()
    for _ in range(12):
        found.add("a", False)
    assert of(found, "b", 0.7) == pytest.approx(0.7)
    assert of(found, "a", 0.7) < 0.5


def test_a_mean_lies_between_the_prior_and_what_was_seen() -> None:
    count = Count()
    for _ in range(5):
        count.add(True)
    assert 0.3 < count.mean(0.3) < count.mean(0.6) < 1.0
