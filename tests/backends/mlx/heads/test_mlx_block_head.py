"""Heads of blocks on MLX: entries follow what the model keeps, and replies stay the model's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.base import BlockContext, Context, Logits
from tests.fixtures.tiny.head_folder import parts_of_folder
from tests.fixtures.tiny.twin_pair import Twin, opened

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]
DRAFT = [130, 201, 299, 305]
ROUNDING = 1e-3
"""Of logits of 6, in passes of other lengths."""


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
