"""What was read ahead, in whatever pieces, gives the logits of a prompt that is read at once."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from app.ahead.piece_reader import (
    GROUP,
    QUIET_SECONDS,
    AheadTime,
    PieceLength,
    PieceReader,
    ReadPieces,
)
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Context, Model
from decoding.estimation.cost import CostModel, Measured
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
        ahead = self.reader.hand_over(prompt)
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
        for length in range(3, 3 * context.exact_batch, 5):
            while typed.reader.read([7] * length, 0.0, length + 7):
                pass
        assert context.length > 2 * context.exact_batch
        assert typed.reader.pieces.wasted == 0.0
        assert typed.reader.read([*[7] * 20, *[8] * 20], 0.0)
        assert typed.reader.pieces.wasted > 0.0


def test_another_message_begins_with_no_waste_and_keeps_what_both_share(model: Model) -> None:
    typed = Typed(model, 1)
    with closing(typed.context):
        assert typed.reader.read([7] * 40, QUIET_SECONDS)
        other = [*[7] * 20, *[8] * 20]
        typed.reader.change_message(other)
        assert typed.reader.pieces.take_closed().wasted > 0.0
        assert typed.reader.pieces.wasted == 0.0
        while typed.reader.read(other, QUIET_SECONDS):
            pass
        assert typed.reader.pieces.wasted == 0.0
        assert typed.reader.hand_over(other) >= 36


def test_pieces_are_whole_groups_and_blocks(model: Model) -> None:
    typed = Typed(model, 1)
    with closing(typed.context) as context:
        block = context.exact_batch
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
        assert typed.reader.hand_over([7] * 90) == 0
        spent = typed.reader.pieces.take_closed()
        assert spent.wasted == 0.0
        assert spent.used > 0.0


MOST = 256


def by_costs(plain: float, per_token: float) -> PieceLength:
    """With a straight curve of costs, up to 16 tokens."""
    costs = CostModel(Measured({1: plain, 16: plain + 15 * per_token}))
    return PieceLength(lambda: costs)


QUICK, SLOW_ONES, SLOW_FIRST = (0.01, 0.0025), (0.2, 0.1), (0.2, 0.002)
"""Costs of a pass and of each further token: 16 tokens take 0.0475, 1.7 and 0.23 s."""


@pytest.mark.parametrize(
    ("costs", "silence", "stops_passes", "expected"),
    [
        (QUICK, 0.0, False, 16),  # a delay that is not felt
        (QUICK, 0.0, True, 64),
        (SLOW_ONES, 0.0, False, GROUP),
        (SLOW_FIRST, 0.0, False, 16),  # takes little more than a plain step
        (SLOW_ONES, QUIET_SECONDS, True, MOST),
        (SLOW_ONES, QUIET_SECONDS - 0.1, True, GROUP),
        (SLOW_ONES, QUIET_SECONDS, False, GROUP),
    ],
)
def test_a_piece_takes_as_long_as_may_be_waited_for(
    costs: tuple[float, float], silence: float, *, stops_passes: bool, expected: int
) -> None:
    assert by_costs(*costs).choose(MOST, silence, stops_passes=stops_passes) == expected


def test_without_measured_costs_pieces_grow_as_they_prove_short() -> None:
    lengths = PieceLength(lambda: None)
    chosen: list[int] = []
    for _ in range(6):
        count = lengths.choose(64, 0.0, stops_passes=False)
        chosen.append(count)
        lengths.observe(count, 0.001 * count)
    assert chosen == [4, 32, 32, 32, 32, 32]


def test_measured_pieces_count_more_than_the_curve() -> None:
    lengths = by_costs(0.01, 0.0025)
    for _ in range(20):  # the machine is busy, or the context deep
        lengths.observe(16, 0.2)
        lengths.observe(8, 0.1)
    assert lengths.choose(MOST, 0.0, stops_passes=False) == 4
    for _ in range(20):
        lengths.observe(16, 0.01)
        lengths.observe(8, 0.01)
    assert lengths.choose(MOST, 0.0, stops_passes=False) == 64


def test_a_context_of_few_tokens_is_read_in_pieces_of_its_passes() -> None:
    assert PieceLength(lambda: None).choose(2, 0.0, stops_passes=False) == 2


def test_what_is_asked_is_used_and_the_rest_wasted() -> None:
    pieces = ReadPieces()
    pieces.add(10, 20, 1.0)
    pieces.add(20, 40, 4.0)
    pieces.add(10, 40, 3.0, is_drafters=True)
    assert pieces.settle(30) == 20
    assert pieces.take_closed() == AheadTime(1.0 + 2.0 + 2.0, 2.0 + 1.0)
    assert (pieces.settle(40), pieces.take_closed()) == (0, AheadTime())


def test_what_is_taken_back_is_wasted_at_once_and_not_twice() -> None:
    pieces = ReadPieces()
    pieces.add(0, 8, 2.0)
    pieces.cut(6)
    assert pieces.wasted == 0.5
    pieces.cut(6)
    pieces.add(6, 8, 7.0)
    pieces.lost(0.25)
    assert pieces.wasted == 0.75
    assert (pieces.settle(8), pieces.take_closed()) == (8, AheadTime(8.5, 0.75))
    assert pieces.wasted == 0.0


def test_of_the_account_what_is_read_again_was_not_in_vain() -> None:
    pieces = ReadPieces()
    pieces.add(0, 8, 2.0)
    pieces.read_again(4)
    pieces.add(4, 12, 3.0)
    assert pieces.wasted == 0.0
    assert (pieces.settle(12), pieces.take_closed()) == (12, AheadTime(5.0, 0.0))
    assert (pieces.settle(12), pieces.take_closed()) == (0, AheadTime())


def test_totals_of_all_sessions_are_kept() -> None:
    paths = Paths.of_this_user()
    assert AheadTime.kept(paths) == AheadTime()
    AheadTime().keep(paths)
    assert not paths.read_ahead.exists()
    AheadTime(1.5, 0.5).keep(paths)
    AheadTime(1.0, 0.25).keep(paths)
    assert AheadTime.kept(paths) == AheadTime(2.5, 0.75)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"schema": 1, "used_seconds": -1, "wasted_seconds": NaN}',
        '{"schema": 1, "used_seconds": "1", "wasted_seconds": null}', '{"schema": 9}',
        f'{{"schema": 1, "used_seconds": 1{400 * "0"}, "wasted_seconds": -1{400 * "0"}}}',
    ],
)  # fmt: skip
def test_damaged_totals_begin_anew(text: str) -> None:
    paths = Paths.of_this_user()
    Path(paths.read_ahead.parent).mkdir(parents=True)
    paths.read_ahead.write_text(text)
    assert AheadTime.kept(paths) == AheadTime()
    AheadTime(1.0, 2.0).keep(paths)
    assert AheadTime.kept(paths) == AheadTime(1.0, 2.0)
