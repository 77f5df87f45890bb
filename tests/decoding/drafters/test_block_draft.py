"""A drafter of blocks: what it reads, what it asks for, and where its lines end."""

from collections.abc import Sequence

import numpy as np
import pytest

from backends.base import Block, Logits
from decoding.draft import PointMassLine, SampledLine
from decoding.drafters.draft_model import BlockDraft, DraftModel, drafter_of_head
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.blocks import ScriptedBlocks
from tests.fixtures.scripted import ScriptedModel

N_VOCAB = 20
LONGEST = 6
PROMPT = list(range(12))


def counting(text: Sequence[int], count: int) -> Block:
    """Rows that say the next numbers after the text's last one, nearly surely."""
    last = text[-1]

    def after(drafted: Sequence[int]) -> Logits | None:
        if len(drafted) == count:
            return None
        row = np.zeros(N_VOCAB, np.float32)
        row[(last + 1 + len(drafted)) % N_VOCAB] = 20.0
        return row

    return after


def blocks(n_ctx: int = 64) -> ScriptedBlocks:
    return ScriptedBlocks(counting, LONGEST, n_ctx)


def drafter_on(scripted: ScriptedBlocks, *ends: int, seed: int = 0) -> BlockDraft:
    drafter = BlockDraft("block", scripted.context, n_vocab=N_VOCAB, end_tokens=frozenset(ends))
    drafter.begin(PROMPT, Sampler(SamplingSettings(temperature=1.0, seed=seed)))
    return drafter


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (4, 4), (63, LONGEST)])
def test_one_pass_drafts_as_much_as_is_asked_for(limit: int, count: int) -> None:
    scripted = blocks()
    draft = drafter_on(scripted).propose(PROMPT, limit)
    assert draft.tokens == tuple(range(12, 12 + count))
    assert scripted.blocks == [count]
    assert isinstance(draft.form, SampledLine)
    assert all(share > 0.99 for share in draft.confidence)


def test_the_token_at_which_it_ends_is_handed_on() -> None:
    draft = drafter_on(blocks()).propose(PROMPT, 5, lambda *_: False)
    assert draft.tokens == (12,)
    assert drafter_on(blocks(), 14).propose(PROMPT, 5).tokens == (12, 13, 14)


def test_it_reads_what_was_emitted_since() -> None:
    scripted = blocks()
    drafter = drafter_on(scripted)
    assert list(drafter.read(PROMPT)) == [8, 12]
    assert drafter.backlog([*PROMPT, 12]) == 1
    drafter.propose([*PROMPT, 12], 3)
    longer = [*PROMPT, 12, 13, 17]
    drafter.commit(longer)
    assert drafter.backlog(longer) == 2
    assert drafter.propose(longer, 2).tokens == (18, 19)
    assert scripted.tokens == longer


def test_guesses_are_forgotten() -> None:
    scripted = blocks()
    drafter = drafter_on(scripted)
    drafter.commit([*PROMPT, 12])
    assert drafter.propose([*PROMPT, 12, 4, 5], 1).tokens == (6,)
    assert drafter.propose([*PROMPT, 12], 1).tokens == (13,)
    assert scripted.tokens == [*PROMPT, 12]


def test_at_the_end_of_its_context_it_drafts_less_and_then_nothing() -> None:
    drafter = drafter_on(blocks(n_ctx=len(PROMPT) + 2))
    assert len(drafter.propose(PROMPT, 5)) == 2
    assert drafter.refusal([*PROMPT, 12, 13]) != ""
    draft = drafter.propose([*PROMPT, 12, 13], 5)
    assert isinstance(draft.form, PointMassLine)
    assert len(draft) == 0


def test_each_token_is_drawn_from_its_own_row() -> None:
    """Over many drafts, the tokens of a place come as often as its row says."""
    row = np.full(N_VOCAB, -np.inf, np.float32)
    row[:2] = np.log([0.7, 0.3])
    rows = [row, row[::-1].copy()]
    scripted = ScriptedBlocks(
        lambda text, count: lambda drafted: rows[len(drafted)] if len(drafted) < 2 else None, 2
    )
    drafter = drafter_on(scripted)
    found = np.array([drafter.propose(PROMPT, 2).tokens for _ in range(2000)])
    assert set(found[:, 0]) == {0, 1}
    assert set(found[:, 1]) == {N_VOCAB - 1, N_VOCAB - 2}
    assert abs((found[:, 0] == 0).mean() - 0.7) < 0.05
    both = ((found[:, 0] == 0) & (found[:, 1] == N_VOCAB - 1)).mean()
    assert abs(both - 0.49) < 0.05, "places are independent"


def test_a_context_that_drafts_no_blocks_is_drawn_from_token_by_token() -> None:
    context = ScriptedModel(["a"]).open(64)
    assert isinstance(drafter_of_head("head", context, n_vocab=3), DraftModel)
