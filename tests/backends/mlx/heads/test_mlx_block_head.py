"""Heads of blocks on MLX: entries follow what the model keeps, and replies stay the model's."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.base import BlockContext, Context, Logits, ModelError
from decoding.drafters.block_draft import BlockDraft
from decoding.generation import Limits
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.dflash import BLOCK
from tests.fixtures.tiny.head_folder import parts_of_folder
from tests.fixtures.tiny.twin_pair import N_CTX, Twin, TwinPair, opened, opened_kind

KINDS = ("dflash", "dflash2", "dspark")
PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]
DRAFT = [130, 201, 299, 305]
GREEDY = SamplingSettings(temperature=0.0)
ROUNDING = 1e-3
"""Of logits of 6, in passes of other lengths."""


@pytest.fixture
def pair(twin_of: Twin) -> Iterator[TwinPair]:
    with opened_kind(twin_of, "dflash", few=True) as found:
        yield found


def blocks(context: Context) -> BlockContext:
    assert isinstance(context, BlockContext)
    return context


def block_after(context: Context, text: Sequence[int], count: int = 3) -> Logits:
    """Rows of a block after a text of which the context holds a part, along the likeliest."""
    context.truncate(min(context.length, len(text) - 1))
    context.forward(text[context.length :], 0)
    after, tokens, rows = blocks(context).draft(count), list[int](), list[Logits]()
    while (row := after(tokens)) is not None:
        rows.append(row)
        tokens.append(int(row.argmax()))
    assert len(rows) == count
    return np.array(rows)


def difference(ours: Logits, theirs: Logits) -> float:
    known = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), known)
    return float(np.abs(ours[known] - theirs[known]).max())


def test_branches_of_a_tree_leave_what_was_kept(pair: TwinPair) -> None:
    pair.context.forward(PROMPT, 1)
    pair.context.forward_tree([130, 201, 130, 299], [-1, -1, 1, 2])
    pair.context.commit([1, 2])
    text = [*PROMPT, 201, 130, 75]
    found = block_after(pair.drafts, text)
    fresh = pair.head.open_beside(pair.context)
    pair.context.truncate(0)
    pair.context.forward(text[:-1], 1)
    assert difference(found, block_after(fresh, text)) < ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_guessed_tokens_are_read_with_the_block_and_leave_nothing(twin_of: Twin, kind: str) -> None:
    with opened_kind(twin_of, kind) as pair:
        pair.context.forward(PROMPT, 1)
        text = [*PROMPT, 130]
        before = block_after(pair.drafts, text)
        guessed = block_after(pair.drafts, [*text, 201], count=2)
        assert not np.array_equal(guessed, before[1:]), "the guess is seen"
        assert np.array_equal(block_after(pair.drafts, text), before)


def test_a_block_is_no_longer_than_was_trained(pair: TwinPair) -> None:
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


def test_what_a_restored_context_holds_has_no_entries(pair: TwinPair) -> None:
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
    assert len(block_after(pair.drafts, [*held, *plain[12:15]])) == 3
    drafter = BlockDraft("block", blocks(pair.drafts), n_vocab=pair.model.info.n_vocab)
    found = replied(context, PROMPT, GREEDY, Limits(24, frozenset()), drafter)
    assert said(found) == plain


def test_a_full_context_drafts_nothing(pair: TwinPair) -> None:
    drafter = BlockDraft("block", blocks(pair.drafts), n_vocab=pair.model.info.n_vocab)
    drafter.begin(PROMPT, Sampler(GREEDY))
    assert drafter.refusal([75] * N_CTX) != ""
    for _ in range(N_CTX // len(DRAFT)):
        pair.drafts.forward(DRAFT, 0)
    with pytest.raises(ModelError, match="do not fit"):
        pair.drafts.forward(DRAFT, 0)
    assert pair.drafts.length == N_CTX


@pytest.mark.parametrize("window", [4, 0])
def test_windows_hide_what_is_before_them(twin_of: Twin, tmp_path: Path, window: int) -> None:
    """Entries before a window may as well be missing: a head that opens late has none of them."""
    parts = parts_of_folder(twin_of("dflash"))
    if window:
        parts.settings["dflash_config"] |= {"use_swa": True, "swa_window_size": window}
    with opened(twin_of("qwen3"), parts.write(tmp_path)) as pair:
        pair.context.forward(PROMPT, 1)
        late = pair.head.open_beside(pair.context)
        pair.context.forward(DRAFT, 1)
        text = [*PROMPT, *DRAFT, 75]
        found = difference(block_after(late, text, 1), block_after(pair.drafts, text, 1))
    assert found < ROUNDING if window else found > 0.01


def test_a_causal_block_is_drafted_without_what_follows(twin_of: Twin, tmp_path: Path) -> None:
    parts = parts_of_folder(twin_of("dflash"))
    parts.settings["is_causal"] = True
    for head, is_causal in ((parts.write(tmp_path), True), (twin_of("dflash"), False)):
        with opened(twin_of("qwen3"), head) as pair:
            pair.context.forward(PROMPT, 1)
            text = [*PROMPT, 130]
            short, long = (block_after(pair.drafts, text, count)[:1] for count in (1, 4))
            assert (difference(short, long) < ROUNDING) is is_causal
