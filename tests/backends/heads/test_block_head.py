"""Contexts of heads of blocks, whatever runs their layers: which positions have entries."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from backends.base import Block, ModelError, PassStoppedError, SpecchatError
from backends.heads.head import BlockHead, independent
from backends.heads.hidden_states import HiddenStates, Rows

WIDTH, N_VOCAB = 2, 5


@dataclass
class Layers:
    """Layers that keep the positions of their entries. error: of the pass with number fails_at."""

    entries: list[int] = field(default_factory=list[int])
    passes: int = 0
    fails_at: int = -1
    error: SpecchatError = field(default_factory=PassStoppedError)

    def inject(self, start: int, rows: Rows) -> None:
        self._pass()
        self.entries += range(start, start + len(rows))

    def remove(self, length: int) -> None:
        self.entries = [position for position in self.entries if position < length]

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        self._pass()
        assert not self.entries or self.entries[-1] == start - 1
        return independent(np.zeros((count, N_VOCAB), np.float32))

    def _pass(self) -> None:
        self.passes += 1
        if self.passes == self.fails_at:
            raise self.error

    def close(self) -> None: ...


def beside(layers: Layers, passed: int) -> BlockHead:
    """A context of these layers whose model has passed so many tokens."""
    states = HiddenStates(lambda count: np.ones((count, WIDTH), np.float32), WIDTH, 64)
    states.passed(0, passed)
    return BlockHead(
        layers,
        states,
        longest=4,
        n_vocab=N_VOCAB,
        n_ctx=16,
        n_chunk=8,
        kv_bytes_per_token=1,
        on_close=lambda: None,
    )


@pytest.mark.parametrize("error", [ModelError("it failed"), PassStoppedError()])
@pytest.mark.parametrize("n_logits", [0, 1, 3])
def test_a_failed_pass_leaves_the_context_as_it_was(n_logits: int, error: SpecchatError) -> None:
    """Whichever of the passes of a call fails."""
    whole = Layers()
    context = beside(whole, 9)
    context.forward([1, 2, 3], 0)
    before = whole.passes
    rows = context.forward([4, 5, 6, 7], n_logits)
    assert rows.shape == (n_logits, N_VOCAB)
    for fails_at in range(before + 1, whole.passes + 1):
        layers = Layers(fails_at=fails_at, error=error)
        context = beside(layers, 9)
        context.forward([1, 2, 3], 0)
        with pytest.raises(type(error)):
            context.forward([4, 5, 6, 7], n_logits)
        assert context.tokens == [1, 2, 3]
        assert set(layers.entries) <= set(range(3)), "of tokens that it holds"
        assert context.forward([4], 1).shape == (1, N_VOCAB)
