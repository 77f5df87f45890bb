"""What was read ahead, in whatever pieces, gives the logits of a prompt that is read at once."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from app.ahead.piece_length import GROUP, QUIET_SECONDS
from app.ahead.piece_reader import PieceReader
from app.loading.target_context import TargetContext
from backends.base import Context, Model
from decoding.prefill import prefill, reuse

TRIALS = 25


@pytest.fixture(scope="module")
def model(llamacpp: ModuleType, tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    model = llamacpp.load(tiny_llama(seed=3))
    yield model
    model.close()


class Typed:
    """A prompt that grows and changes at random, read ahead in pieces of random lengths."""

    def __init__(self, model: Model, seed: int) -> None:
        self.random = random.Random(seed)
        self.context: Context = model.open(512)
        self.target = TargetContext(model, self.context)
        self.reader = PieceReader(self.target, lambda: None)
        self.tokens = self.more(120)

    def more(self, most: int) -> list[int]:
        return [self.random.randrange(3, 300) for _ in range(self.random.randint(1, most))]

    def change(self) -> None:
        place = self.random.randint(0, len(self.tokens))
        if self.random.random() < 0.7:
            self.tokens = [*self.tokens, *self.more(40)]
        elif self.random.random() < 0.5:
            self.tokens = [*self.tokens[:place], *self.more(30)]
        else:
            self.tokens = [*self.tokens[:place], *self.more(20), *self.tokens[place:]]
        self.tokens = self.tokens[:420]

    def read(self) -> None:
        """Some pieces, or all of what is there."""
        silence = self.random.choice((0.0, QUIET_SECONDS))
        left = self.random.choice((1, 3, 1000))
        while left and self.reader.read(self.tokens, silence):
            left -= 1

    def read_on(self) -> None:
        """Some of what would follow if it were sent now, which it is not."""
        sent = [*self.tokens, *self.more(12)]
        left = self.random.choice((0, 1, 1000))
        while left and self.reader.read(sent, 0.0):
            left -= 1

    def answered(self) -> NDArray[np.float32]:
        """The logits after the prompt, as a reply reads what is left of it."""
        prompt = [*self.tokens, *self.more(20)]
        ahead, _ = self.reader.hand_over(prompt)
        assert ahead <= min(self.context.length, len(prompt) - 1)
        return last_row(self.context, prompt)


def last_row(context: Context, prompt: Sequence[int]) -> NDArray[np.float32]:
    reuse(context, prompt)
    *_, (_, rows) = prefill(context, prompt)
    return rows[0].copy()


def differences(model: Model) -> int:
    """How many of the prompts gave other logits than read at once."""
    found = 0
    for seed in range(TRIALS):
        typed = Typed(model, seed)
        with closing(typed.context), closing(model.open(512)) as fresh:
            for _ in range(typed.random.randint(1, 12)):
                typed.change()
                typed.read()
                typed.read_on()
            row = typed.answered()
            found += not np.array_equal(row, last_row(fresh, list(typed.context.tokens)))
    return found


def test_the_logits_are_the_same_to_the_bit(model: Model) -> None:
    assert differences(model) == 0


def test_parts_of_blocks_that_are_not_read_again_are_found(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def groups_alone(reader: PieceReader, held: int, end: int) -> int:
        return held - held % GROUP

    monkeypatch.setattr(PieceReader, "_start", groups_alone)
    assert differences(model) > 0


def test_a_text_that_only_grows_wastes_nothing_and_one_that_changes_does(model: Model) -> None:
    """Though what was read in groups is read again once it is a block."""
    typed = Typed(model, 1)
    with closing(typed.context) as context:
        for length in range(3, 3 * context.block, 5):
            while typed.reader.read([7] * length, 0.0):
                pass
        assert context.length > 2 * context.block
        assert typed.reader.wasted == 0.0
        assert typed.reader.read([*[7] * 20, *[8] * 20], 0.0)
        assert typed.reader.wasted > 0.0


def test_another_message_begins_with_no_waste_and_keeps_what_both_share(model: Model) -> None:
    typed = Typed(model, 1)
    with closing(typed.context):
        assert typed.reader.read([7] * 40, QUIET_SECONDS)
        other = [*[7] * 20, *[8] * 20]
        assert typed.reader.change_message(other).wasted > 0.0
        assert typed.reader.wasted == 0.0
        while typed.reader.read(other, QUIET_SECONDS):
            pass
        assert typed.reader.wasted == 0.0
        assert typed.reader.hand_over(other)[0] >= 36


def test_pieces_are_whole_groups_and_blocks(model: Model) -> None:
    typed = Typed(model, 1)
    with closing(typed.context) as context:
        block = context.block
        assert block == 64
        assert typed.reader.read([7] * 30, 0.0)
        while typed.reader.read([7] * 30, 0.0):
            assert context.length % GROUP == 0
        assert context.length == 28
        assert typed.reader.read([7] * 70, 0.0)
        assert context.length == block
        assert typed.reader.read([7] * 300, QUIET_SECONDS)
        assert context.length == block + (300 - block) // block * block
