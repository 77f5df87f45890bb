"""jacobi: the model's words after a pass are the next guesses, and they move with the text."""

import numpy as np

from decoding.drafters.jacobi import Jacobi
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler

HISTORY = [5, 6, 7]


def begun(max_draft: int = 4) -> Jacobi:
    drafter = Jacobi(max_draft=max_draft)
    drafter.begin(HISTORY, Sampler(SamplingSettings(temperature=0.0)))
    return drafter


def hear(drafter: Jacobi, history: list[int], said: list[int]) -> tuple[int, ...]:
    """Send its draft, and let the model say this after each token of the pass."""
    draft = drafter.propose(history, 4)
    assert draft.listener is not None
    draft.listener(np.array(said))
    return draft.tokens


def test_what_the_model_said_at_a_place_is_the_guess_for_it():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    drafter.commit([*HISTORY, 10])
    assert drafter.propose([*HISTORY, 10], 4).tokens == (11, 12, 13, 14)


def test_guesses_of_what_was_said_meanwhile_are_dropped():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    assert drafter.propose([*HISTORY, 10, 11, 40], 4).tokens[:2] == (13, 14)
    assert len(drafter.propose([*HISTORY, *range(20, 40)], 4)) == 4


def test_a_guess_that_stays_is_surer_than_one_that_changes():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    text = [*HISTORY, 10]
    hear(drafter, text, [11, 12, 30, 14, 15])
    draft = drafter.propose([*text, 11], 4)
    assert draft.tokens == (12, 30, 14, 15)
    assert draft.evidence == (2, 1, 2, 1)
    assert draft.confidence[0] > draft.confidence[1]


def test_it_stops_where_one_more_would_not_pay_and_at_the_limit():
    drafter = begun()
    assert len(drafter.propose(HISTORY, 4, lambda confidence, evidence: False)) == 1
    assert len(drafter.propose(HISTORY, 2)) == 2
    assert not drafter.propose(HISTORY, 0).tokens


def test_a_reply_begins_without_the_guesses_of_the_last():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    drafter.begin(HISTORY, Sampler(SamplingSettings()))
    assert drafter.propose(HISTORY, 1).evidence == (0,)
