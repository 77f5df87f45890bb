"""How far replies are from a law, and how far chance alone takes plain ones."""

from collections import Counter

import numpy as np
import pytest

from decoding.checks.distribution_check import ReplyDistribution, distance, plain_distances

LAW: ReplyDistribution = {(0,): 0.5, (1,): 0.3, (2,): 0.2}


def test_from_none_to_all() -> None:
    assert distance(LAW, Counter({(0,): 5, (1,): 3, (2,): 2})) == pytest.approx(0.0)
    assert distance(LAW, Counter({(0,): 10})) == pytest.approx(0.5)
    assert distance(LAW, Counter({(7,): 10})) == pytest.approx(1.0)


def test_plain_replies_are_as_far_off_as_is_told() -> None:
    """One sample of a correct engine is beyond the last of these once in 20,000 times."""
    found = plain_distances(LAW, 1000)
    assert (np.diff(found) >= 0.0).all()
    # Each share is off by a normal law's mean absolute value: sqrt(2 p (1 - p) / (pi n)).
    shares = np.array(list(LAW.values()))
    expected = np.sqrt(2 * shares * (1 - shares) / (np.pi * 1000)).sum() / 2
    assert found.mean() == pytest.approx(expected, rel=0.02)
    drawn = np.random.default_rng(1).multinomial(1000, shares)
    counts = Counter({outcome: int(count) for outcome, count in zip(LAW, drawn, strict=True)})
    assert distance(LAW, counts) <= found[-1]
