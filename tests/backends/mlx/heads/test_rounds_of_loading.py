"""Closed heads leave no memory behind, nor do their models."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from decoding.drafters.block_draft import drafter_of_head
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.assisted_pair import Assisted, MlxPair
from tests.fixtures.tiny.assisted_pair import opened as opened_assistant
from tests.fixtures.tiny.twin_pair import Twin, TwinPair, opened_kind

ROUNDS = 50
PROMPT, LAST = [1, 75, 300, 299, 310, 75, 98, 112, 130, 7, 42], 305
LEFT = 1000
"""Bytes that the engine's own numbers may take, far less than any weights."""

Opened = Callable[[], AbstractContextManager[MlxPair | TwinPair]]


@contextmanager
def without_collection() -> Iterator[None]:
    """Nothing may wait for a collection of cycles: weights may fill most of the memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def drafted_once(opened: Opened) -> None:
    """Load a model and a head, draft, reject a part, and close both."""
    with opened() as pair:
        n_vocab = pair.model.info.n_vocab
        drafter = drafter_of_head("head", pair.drafts, n_vocab=n_vocab)
        drafter.begin(PROMPT, Sampler(SamplingSettings(temperature=0.0)))
        pair.context.forward(PROMPT, 1)
        draft = drafter.propose([*PROMPT, LAST], 3)
        assert len(draft) > 0
        pair.context.forward([LAST, *draft.tokens], 1 + len(draft))
        pair.context.truncate(len(PROMPT) + 1)
        drafter.propose([*PROMPT, LAST, 7], 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["assistant", "eagle3", "dflash", "dflash2", "dspark"])
def test_closed_heads_leave_nothing(kind: str, assisted: Assisted, twin_of: Twin) -> None:
    opened = (
        partial(opened_assistant, assisted())
        if kind == "assistant"
        else partial(opened_kind, twin_of, kind)
    )
    sizes: list[int] = []
    with without_collection():
        for _ in range(ROUNDS):
            drafted_once(opened)
            sizes.append(mx.get_active_memory())
    assert np.ptp(sizes[1:]) < LEFT
