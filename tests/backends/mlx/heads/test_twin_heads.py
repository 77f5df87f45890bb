"""Heads with the same weights draft the same with MLX and with llama.cpp."""

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from pathlib import Path

from backends.base import Context, Logits
from backends.files import attention as rollback_depth
from decoding.generation import Limits
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny import head_pair, mlx_pairs
from tests.fixtures.tiny.head_rows import drafter_of, likeliest
from tests.fixtures.tiny.heads import write_dflash
from tests.fixtures.tiny.kinds import HEADS, Tiny
from tests.fixtures.tiny.mlx_pairs import Assisted, Twin
from tests.fixtures.tiny.models import write_qwen35
from tests.fixtures.tiny.twins import twin, write_qwen35_twin

BLOCKS = ("dflash", "dflash2", "dspark")
CHAINS = ("eagle3", "eagle3-borrowing")
PROMPTS = ([1, 75, 300, 299, 310, 75], list(range(40, 90)), [5], [9, 9, 9, 200, 17, 64, 250, 3])
LAST, COUNT = 305, 3
GREEDY = SamplingSettings(temperature=0.0)

HALF_FLOATS = 0.05
"""Of logits of 6: llama.cpp keeps keys and values as half floats, of the model and of the head."""

CLOSER = 0.02
"""Of logits of 4: 0.0063 was the most of 40 texts of next-token layers."""


def rows_of(target: Context, drafts: Context, prompt: list[int]) -> Logits:
    """Rows of a draft of the likeliest tokens after a prompt and a last token."""
    for context in (target, drafts):
        context.truncate(0)
    target.forward(prompt, 1)
    return likeliest(drafts, [*prompt, LAST], COUNT)


def compared(
    theirs_of: tuple[Path, Path], ours_of: tuple[Path, Path], off: float = HALF_FLOATS
) -> int:
    """Number of rows that were found alike: of each prompt up to a near-tie."""
    found = 0
    with head_pair.opened(*theirs_of) as theirs, mlx_pairs.opened(*ours_of) as ours:
        for prompt in PROMPTS:
            expected = rows_of(theirs.context, theirs.drafts, prompt)
            rows = rows_of(ours.context, ours.drafts, prompt)
            assert len(rows) == len(expected)
            for row, other in zip(rows, expected, strict=True):
                known = np.isfinite(other)
                assert np.array_equal(np.isfinite(row), known)
                assert np.abs(row[known] - other[known]).max() < off
                found += 1
                best, second = np.sort(other[known])[::-1][:2]
                if row.argmax() != other.argmax():
                    assert best - second < 2 * off
                    break  # the drafts go on after other tokens
    return found


@pytest.mark.parametrize("kind", [*CHAINS, *BLOCKS])
def test_drafts_are_those_of_llama_cpp(tiny: Tiny, twin_of: Twin, kind: str) -> None:
    name = HEADS[kind][1]
    found = compared((tiny(name), tiny(kind)), (twin_of(name), twin_of(kind)))
    assert found > len(PROMPTS) * COUNT * 3 // 4


def test_the_last_tokens_row_may_be_left_out(tiny: Tiny, twin_of: Twin, tmp_path: Path) -> None:
    """DSpark heads say whether it drafts."""
    head = write_dflash(tmp_path / "head.gguf", is_dspark=True, from_last=False)
    ours = twin_of("qwen3"), twin(head, tmp_path / "twin")
    found = compared((tiny("qwen3"), head), ours)
    assert found > len(PROMPTS) * COUNT * 3 // 4


def test_assistants_draft_alike(tiny: Tiny, assisted: Assisted) -> None:
    """Also after texts longer than the window."""
    theirs, ours = (tiny("gemma4"), tiny("gemma4-assistant")), assisted()
    found = compared(theirs, (ours.model, ours.assistant), CLOSER)
    assert found > len(PROMPTS) * COUNT * 3 // 4


def test_next_token_layers_draft_alike_and_replies_are_the_same_but_for_near_ties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback_depth, "_SHARE", 1)  # of tiny weights, which no state fits into
    file = write_qwen35(tmp_path / "tiny.gguf")
    folder = write_qwen35_twin(file, tmp_path / "twin")
    assert compared((file, file), (folder, folder), CLOSER) > len(PROMPTS) * COUNT * 3 // 4
    random, limits, same = np.random.default_rng(0), Limits(24, frozenset()), 0
    with head_pair.opened(file, file) as theirs, mlx_pairs.opened(folder, folder) as ours:
        for prompt in (random.integers(3, 350, 40).tolist() for _ in range(6)):
            replies: list[list[int]] = []
            for pair in (theirs, ours):
                drafter = drafter_of(pair.drafts, pair.model.info.n_vocab)
                steps = replied(pair.context, prompt, GREEDY, limits, drafter)
                assert sum(step.drafted for step in steps) > 24
                replies.append(said(steps))
            turned = next(
                (at for at, two in enumerate(zip(*replies, strict=True)) if len({*two}) > 1), None
            )
            same += turned is None
            if turned is not None:
                ours.context.truncate(0)
                row = np.sort(ours.context.forward([*prompt, *replies[1][:turned]], 1)[-1])
                assert row[-1] - row[-2] < CLOSER
    assert same > 0
