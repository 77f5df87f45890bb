"""A block head's entries follow what its model keeps, whatever was accepted and rejected."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends.base import BlockContext, Context, Logits, ModelError
from decoding.drafters.block_draft import BlockDraft
from decoding.generation import Limits
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.dflash import BLOCK, write_dflash
from tests.fixtures.tiny.head_pair import N_CTX, Opened, Pair, opened
from tests.fixtures.tiny.kinds import Tiny

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]
DRAFT = [130, 201, 299, 305]
GREEDY = SamplingSettings(temperature=0.0)
ROUNDING = 1e-4
"""Entries made in passes of other lengths may be rounded otherwise; here all had the same bits."""


@pytest.fixture
def pair(talkative: Opened) -> Iterator[Pair]:
    with talkative("dflash") as found:
        yield found


def blocks(context: Context) -> BlockContext:
    assert isinstance(context, BlockContext)
    return context


def block_after(context: Context, text: Sequence[int], count: int = 3) -> Logits:
    """Rows of a block after a text of which the context holds a part."""
    context.truncate(min(context.length, len(text) - 1))
    context.forward(text[context.length :], 0)
    after = blocks(context).draft(count)
    rows = [after([0] * place) for place in range(count)]
    assert all(row is not None for row in rows)
    return np.array(rows)


def steps(pair: Pair, accepted: Sequence[int]) -> Iterator[list[int]]:
    """The text before each draft, of a reply whose drafts are accepted so far."""
    text = list(PROMPT)
    pair.context.forward(text, 1)
    for step, count in enumerate(accepted):
        text.append(75 + step)
        yield text
        pair.context.forward([text[-1], *DRAFT], len(DRAFT) + 1)
        pair.context.truncate(len(text) + count)
        text += DRAFT[:count]
    text.append(310)
    yield text


ACCEPTED = [0, 4, 2, 0, 1, 3]


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_rows_after_accepted_and_rejected_drafts_are_those_of_a_new_context(
    talkative: Opened, kind: str
) -> None:
    with talkative(kind) as pair:
        late = pair.head.open_beside(pair.context)
        text: list[int] = []
        found = None
        for text in steps(pair, ACCEPTED):
            pair.drafts.truncate(min(pair.drafts.length, len(text) - 1))
            pair.drafts.forward(text[pair.drafts.length :], 0)
            found = np.array(blocks(pair.drafts).draft(3)([]))
        late.forward(text, 0)
        expected = blocks(late).draft(3)([])
        assert found is not None
        assert expected is not None
        assert np.abs(found - expected).max() < ROUNDING


def test_a_context_asked_at_last_reads_what_the_model_has_kept(pair: Pair) -> None:
    """A new context of the model leaves the same, but for rounding."""
    *_, text = steps(pair, ACCEPTED)
    with closing(pair.model.open(N_CTX)) as fresh:
        beside = pair.head.open_beside(fresh)
        fresh.forward(text[:-1], 0)
        expected = block_after(beside, text)
        beside.close()
    assert np.abs(block_after(pair.drafts, text) - expected).max() < ROUNDING


def test_branches_of_a_tree_leave_what_was_kept(pair: Pair) -> None:
    pair.context.forward(PROMPT, 1)
    pair.context.forward_tree([130, 201, 130, 299], [-1, -1, 1, 2])
    pair.context.commit([1, 2])
    found = block_after(pair.drafts, [*PROMPT, 201, 130, 75])
    fresh = pair.head.open_beside(pair.context)
    pair.context.truncate(0)
    pair.context.forward([*PROMPT, 201, 130], 1)
    assert np.abs(found - block_after(fresh, [*PROMPT, 201, 130, 75])).max() < ROUNDING


def test_guessed_tokens_are_read_with_the_block_and_leave_nothing(pair: Pair) -> None:
    pair.context.forward(PROMPT, 1)
    text = [*PROMPT, 130]
    before = block_after(pair.drafts, text)
    guessed = block_after(pair.drafts, [*text, 201], count=2)
    assert not np.array_equal(guessed, before[1:]), "the guess is seen"
    assert np.array_equal(block_after(pair.drafts, text), before)


def test_a_block_is_no_longer_than_was_trained(pair: Pair) -> None:
    pair.context.forward(PROMPT, 1)
    pair.drafts.forward([*PROMPT, *DRAFT], 0)
    after = blocks(pair.drafts).draft(BLOCK)
    rest = BLOCK - len(DRAFT)
    assert after([0] * (rest - 1)) is not None
    assert after([0] * rest) is None
    pair.drafts.forward([75], 0)
    assert blocks(pair.drafts).draft(1)([]) is None
    with pytest.raises(ModelError, match="its model has to read"):
        pair.drafts.forward([75], 1)
    assert pair.drafts.length == len(PROMPT) + len(DRAFT) + 1


def test_what_a_restored_context_holds_has_no_entries(pair: Pair) -> None:
    """The head goes on with what is read from then on, and replies stay the model's."""
    context = pair.context
    plain = said(replied(context, PROMPT, GREEDY, Limits(24, frozenset()), None))
    held = [*PROMPT, *plain[:12]]
    context.truncate(len(held))
    state = context.save()
    block_after(pair.drafts, [*PROMPT, 130])
    pair.drafts.truncate(len(PROMPT))
    context.restore(held, state)
    context.forward(plain[12:14], 1)
    text = [*held, *plain[12:15]]
    assert len(block_after(pair.drafts, text)) == 3
    drafter = BlockDraft("block", blocks(pair.drafts), n_vocab=pair.model.info.n_vocab)
    found = replied(context, PROMPT, GREEDY, Limits(24, frozenset()), drafter)
    assert said(found) == plain


def test_logits_of_several_tokens_are_those_of_one_after_another(pair: Pair) -> None:
    beside = pair.head.open_beside(pair.context)
    pair.context.forward([*PROMPT, *DRAFT], 1)
    for context in (pair.drafts, beside):
        context.forward(PROMPT, 0)
    together = pair.drafts.forward(DRAFT, len(DRAFT))
    for row, token in zip(together, DRAFT, strict=True):
        assert np.abs(beside.forward([token], 1)[0] - row).max() < ROUNDING


def test_a_full_context_drafts_nothing(pair: Pair) -> None:
    drafter = BlockDraft("block", blocks(pair.drafts), n_vocab=pair.model.info.n_vocab)
    drafter.begin(PROMPT, Sampler(GREEDY))
    assert drafter.refusal([75] * N_CTX) != ""
    assert len(drafter.propose([75] * N_CTX, 4)) == 0
    for _ in range(N_CTX // len(DRAFT)):
        pair.drafts.forward(DRAFT, 0)
    with pytest.raises(ModelError, match="the context is full"):
        pair.drafts.forward(DRAFT, 0)
    assert pair.drafts.length == N_CTX


def test_a_closed_head_leaves_the_model_as_it_was(pair: Pair) -> None:
    pair.head.close()
    pair.context.forward(PROMPT, 1)
    assert pair.context.length == len(PROMPT)


def test_positions_of_images_do_not_change_a_text(tiny: Tiny, tmp_path: Path) -> None:
    """Sections that rotate by time alone are the usual rotation."""
    plain, sectioned = tmp_path / "plain.gguf", tmp_path / "sectioned.gguf"
    write_dflash(plain)
    write_dflash(sectioned, sections=[16, 0, 0, 0])
    found: list[Logits] = []
    for head in (plain, sectioned):
        with opened(tiny("qwen3"), head) as pair:
            pair.context.forward(PROMPT, 1)
            found.append(block_after(pair.drafts, [*PROMPT, 130]))
    assert np.abs(found[0] - found[1]).max() < ROUNDING
