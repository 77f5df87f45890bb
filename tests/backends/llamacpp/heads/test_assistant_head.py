"""An assistant of Gemma 4 reads nothing but its model's cache, as far as that goes."""

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends.base import CacheType, ModelError
from decoding.drafters.draft_model import DraftModel
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.head_pair import N_CTX, Opened, Pair, opened
from tests.fixtures.tiny.kinds import Tiny

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]
DRAFT = [130, 201, 299, 305]


@pytest.fixture
def pair(talkative: Opened) -> Iterator[Pair]:
    with talkative("gemma4-assistant") as found:
        yield found


@pytest.mark.parametrize("accepted", range(len(DRAFT) + 1))
def test_after_any_draft_it_is_as_if_it_had_drafted_nothing(pair: Pair, accepted: int) -> None:
    """Its state comes from the model's last pass, and it has no entries of its own: bit by bit."""
    late = pair.head.open_beside(pair.context)
    pair.context.forward(PROMPT, 1)
    drafts, text = pair.drafts, [*PROMPT, 75]
    drafts.forward(text, 1)
    for token in DRAFT:
        drafts.forward([token], 1)
    pair.context.forward([75, *DRAFT], len(DRAFT) + 1)
    pair.context.truncate(len(text) + accepted)
    text += [*DRAFT[:accepted], 310]
    kept = drafts.rollback_to(len(text) - 1)
    assert kept == len(text) - 1, "the model has passed what was accepted"
    drafts.truncate(kept)
    found = drafts.forward(text[kept:], 1).copy()
    assert np.array_equal(late.forward(text, 1), found)


def test_guesses_are_read_with_its_own_states(pair: Pair) -> None:
    one_by_one, together = pair.drafts, pair.head.open_beside(pair.context)
    pair.context.forward(PROMPT, 1)
    one_by_one.forward([*PROMPT, 75], 1)
    found = [one_by_one.forward([token], 1)[0].copy() for token in DRAFT]
    assert np.array_equal(together.forward([*PROMPT, 75, *DRAFT], len(DRAFT)), found)
    assert one_by_one.rollback_to(N_CTX) == len(PROMPT), "guesses are read again"


def test_it_has_no_backlog_after_its_model_has_read(pair: Pair) -> None:
    drafter = DraftModel("assistant", pair.drafts, n_vocab=pair.model.info.n_vocab)
    drafter.begin(PROMPT, Sampler(SamplingSettings(temperature=0.0)))
    pair.context.forward(PROMPT, 1)
    assert list(drafter.read(PROMPT)) == [len(PROMPT)]
    assert drafter.backlog([*PROMPT, 75]) == 1
    assert pair.drafts.kv_bytes_per_token == 0


def test_what_its_model_has_read_past_is_refused(pair: Pair) -> None:
    pair.context.forward([*PROMPT, *DRAFT], 1)
    with pytest.raises(ModelError, match="its model has read further"):
        pair.drafts.forward(PROMPT, 1)
    assert pair.drafts.length == 0


def test_before_its_model_has_read_anything_it_takes_as_long(pair: Pair) -> None:
    """As while costs are measured: what it drafts is of no use, and no engine ends over it."""
    rows = pair.drafts.forward(PROMPT, len(PROMPT))
    assert rows.shape == (len(PROMPT), pair.model.info.n_vocab)
    pair.drafts.truncate(1)
    pair.drafts.forward(DRAFT, 1)


@pytest.mark.parametrize("cache_type", CacheType)
def test_it_reads_a_cache_of_every_type(tiny: Tiny, cache_type: CacheType) -> None:
    with opened(tiny("gemma4"), tiny("gemma4-assistant"), cache_type) as pair:
        pair.context.forward(PROMPT, 1)
        assert np.isfinite(pair.drafts.forward([*PROMPT, 75], 1)).all()


def test_branches_of_a_tree_do_not_disturb_it(pair: Pair) -> None:
    pair.context.forward(PROMPT, 1)
    pair.context.forward_tree([130, 201, 130, 299], [-1, -1, 1, 2])
    pair.context.commit([1, 2])
    found = pair.drafts.forward([*PROMPT, 201, 130, 75], 1).copy()
    pair.context.truncate(len(PROMPT))
    pair.context.forward([201, 130], 1)
    pair.drafts.truncate(0)
    assert np.abs(pair.drafts.forward([*PROMPT, 201, 130, 75], 1) - found).max() < 1e-4
