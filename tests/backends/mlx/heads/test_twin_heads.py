"""Heads with the same weights draft the same with MLX and with llama.cpp."""

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from pathlib import Path

from backends.base import BlockContext, Context, Logits
from tests.fixtures.tiny import head_pair, twin_pair
from tests.fixtures.tiny.dflash import write_dflash
from tests.fixtures.tiny.kinds import HEADS, Tiny
from tests.fixtures.tiny.twin_pair import Twin
from tests.fixtures.tiny.twins import twin

BLOCKS = ("dflash", "dflash2", "dspark")
CHAINS = ("eagle3", "eagle3-borrowing")
PROMPTS = ([1, 75, 300, 299, 310, 75], list(range(40, 90)), [5], [9, 9, 9, 200, 17, 64, 250, 3])
LAST, COUNT = 305, 3

HALF_FLOATS = 0.05
"""Of logits of 6: llama.cpp keeps keys and values as half floats, of the model and of the head."""

TIE = 2 * HALF_FLOATS


def rows_of(target: Context, drafts: Context, prompt: list[int]) -> Logits:
    """Rows of a draft of the likeliest tokens after a prompt and a last token."""
    for context in (target, drafts):
        context.truncate(0)
    target.forward(prompt, 1)
    rows: list[Logits] = []
    tokens: list[int] = []
    if isinstance(drafts, BlockContext):
        drafts.forward([*prompt, LAST], 0)
        after = drafts.draft(COUNT)
        while (row := after(tokens)) is not None:
            rows.append(row.copy())
            tokens.append(int(row.argmax()))
        return np.array(rows)
    rows.append(drafts.forward([*prompt, LAST], 1)[-1].copy())
    while len(rows) < COUNT:
        rows.append(drafts.forward([int(rows[-1].argmax())], 1)[-1].copy())
    return np.array(rows)


def compared(target: Path, head: Path, other_target: Path, other_head: Path) -> int:
    """Number of rows that were found alike: of each prompt up to a near-tie."""
    found = 0
    with (
        head_pair.opened(target, head) as theirs,
        twin_pair.opened(other_target, other_head) as ours,
    ):
        for prompt in PROMPTS:
            expected = rows_of(theirs.context, theirs.drafts, prompt)
            rows = rows_of(ours.context, ours.drafts, prompt)
            assert len(rows) == len(expected)
            for row, other in zip(rows, expected, strict=True):
                known = np.isfinite(other)
                assert np.array_equal(np.isfinite(row), known)
                assert np.abs(row[known] - other[known]).max() < HALF_FLOATS
                found += 1
                best, second = np.sort(other[known])[::-1][:2]
                if row.argmax() != other.argmax():
                    assert best - second < TIE
                    break  # the drafts go on after other tokens
    return found


@pytest.mark.parametrize("kind", [*CHAINS, *BLOCKS])
def test_drafts_are_those_of_llama_cpp(tiny: Tiny, twin_of: Twin, kind: str) -> None:
    name = HEADS[kind][1]
    found = compared(tiny(name), tiny(kind), twin_of(name), twin_of(kind))
    assert found > len(PROMPTS) * COUNT * 3 // 4


def test_the_last_tokens_row_may_be_left_out(tiny: Tiny, twin_of: Twin, tmp_path: Path) -> None:
    """DSpark heads say whether it drafts."""
    head = write_dflash(tmp_path / "head.gguf", is_dspark=True, from_last=False)
    found = compared(tiny("qwen3"), head, twin_of("qwen3"), twin(head, tmp_path / "twin"))
    assert found > len(PROMPTS) * COUNT * 3 // 4
