"""What was read ahead, in whatever pieces, gives the logits of a prompt that is read at once."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from app.ahead.piece_reader import GROUP, QUIET_SECONDS, PieceReader
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
        about = len(self.tokens) + self.random.randint(1, 30)
        while left and self.reader.read(self.tokens, silence, about):
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


@pytest.mark.slow
def test_the_logits_are_the_same_to_the_bit(model: Model) -> None:
    assert differences(model) == 0


@pytest.mark.slow
def test_parts_of_blocks_that_are_not_read_again_are_found(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def groups_alone(reader: PieceReader, held: int, end: int, blocks_end: int) -> int:
        return held - held % GROUP

    monkeypatch.setattr(PieceReader, "_start", groups_alone)
    assert differences(model) > 0


def test_a_text_that_only_grows_wastes_nothing_and_one_that_changes_does(model: Model) -> None:
    """Though what was read in groups is read again once it is a block."""
    typed = Typed(model, 1)
    with closing(typed.context) as context:
        for length in range(3, 3 * context.block, 5):
            while typed.reader.read([7] * length, 0.0, length + 7):
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
        assert typed.reader.read([7] * 80, 0.0)
        assert context.length == block
        assert typed.reader.read([7] * 300, QUIET_SECONDS)
        assert context.length == block + (300 - 15 - block) // block * block


def passes(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of passes from now on."""
    lengths: list[int] = []
    forward = context.forward

    def noting(tokens: Sequence[int], n_logits: int) -> NDArray[np.float32]:
        lengths.append(len(tokens))
        return forward(tokens, n_logits)

    monkeypatch.setattr(context, "forward", noting)
    return lengths


TOTALS = range(60, 160, 3)


def read_at_enter(model: Model, monkeypatch: pytest.MonkeyPatch, total: int) -> list[int]:
    """Passes at Enter over a prompt of which all but the last word and its end was read."""
    typed = Typed(model, total)
    with closing(typed.context) as context, monkeypatch.context() as patch:
        prompt = [typed.random.randrange(3, 300) for _ in range(total)]
        while typed.reader.read(prompt[: total - 9], 0.0, total):
            pass
        lengths = passes(context, patch)
        typed.reader.hand_over(prompt)
        last_row(context, prompt)
        return lengths


def test_of_words_that_were_read_none_is_read_again_at_enter(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a block ends, also within the last word and what the template has behind it."""
    for total in TOTALS:
        rest = (total - 9) % GROUP
        assert read_at_enter(model, monkeypatch, total) == [9 + rest]


def test_blocks_that_the_last_word_completes_are_found(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decoding.prefill._UNBLOCKED", 0)
    assert max(sum(read_at_enter(model, monkeypatch, total)) for total in TOTALS) >= 64


@pytest.mark.parametrize("total", TOTALS)
def test_of_a_prompt_that_was_read_on_to_its_end_a_group_is_read_at_enter(
    model: Model, monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    typed = Typed(model, total)
    with closing(typed.context) as context:
        prompt = [typed.random.randrange(3, 300) for _ in range(total)]
        while typed.reader.read(prompt[:-1], 0.0):
            pass
        lengths = passes(context, monkeypatch)
        typed.reader.hand_over(prompt)
        last_row(context, prompt)
        assert sum(lengths) <= GROUP + 1
        assert lengths[-1] > 1


def test_what_is_read_again_as_it_is_was_not_in_vain(model: Model) -> None:
    """As the prompt has a block where the words were read in groups."""
    typed = Typed(model, 1)
    with closing(typed.context):
        while typed.reader.read([7] * 70, 0.0, 71):
            pass
        ahead, spent = typed.reader.hand_over([7] * 90)
        assert ahead == 0
        assert spent.wasted == 0.0
        assert spent.used > 0.0
