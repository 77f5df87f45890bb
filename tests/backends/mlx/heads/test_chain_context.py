"""Contexts of chains on MLX: what they draft is what a whole pass over the text gives."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Context, DeviceSampling, Logits, ModelError, Warping
from backends.mlx.context import MlxContext
from backends.mlx.heads.chain import MlxChainContext
from backends.mlx.heads.head import load_head, text_of
from backends.mlx.heads.taps import add_final_states
from backends.mlx.model import MlxModel
from tests.backends.mlx.heads.whole_text import rows_after
from tests.fixtures.mlx_models import N_VOCAB
from tests.fixtures.mlx_prediction import SmallPrediction
from tests.fixtures.tiny.head_rows import read

N_CTX = 256
TEXT = list(range(40, 70))
GUESSED = (105, 210, 220, 130)
ROUNDING = 1e-3
"""Of logits of 10, in passes of other lengths: 0.0000 was found."""

GREEDY = Warping(0.0, 0, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain's layers, and a model's context that it reads."""

    module: Any
    context: MlxContext

    def open(self, *, skips_first: bool = False) -> MlxChainContext:
        return MlxChainContext(
            self.module,
            self.context,
            add_final_states(self.context),
            n_vocab=N_VOCAB,
            kv_bytes_per_token=1,
            skips_first=skips_first,
        )


@pytest.fixture(scope="module")
def model(small_prediction: SmallPrediction) -> Iterator[MlxModel]:
    with closing(mlx.load(small_prediction()[0])) as model:
        yield model


@contextmanager
def beside(model: MlxModel) -> Iterator[Chain]:
    """A chain of a new context."""
    with (
        closing(model.open(N_CTX)) as context,
        closing(load_head(model.info.path, model, context)) as head,
    ):
        opened = head.open(N_CTX)
        assert isinstance(opened, MlxChainContext)
        yield Chain(opened._module, context)


@pytest.fixture
def chain(model: MlxModel) -> Iterator[Chain]:
    with beside(model) as chain:
        yield chain


def on_device(context: Context) -> DeviceSampling:
    assert context.device_sampling is not None
    return context.device_sampling


def expected(
    chain: Chain, history: Sequence[int], guessed: Sequence[int] = (), *, skips_first: bool = False
) -> Logits:
    """The same by the definition, from states of a pass over the whole history."""
    states = _states(chain, history)
    return rows_after(chain.module, history, states, guessed, skips_first=skips_first)


def _states(chain: Chain, history: Sequence[int]) -> Any:
    body = text_of(chain.context.model).model
    return np.array(body(mx.array([list(history)[:-1]]))[0])


@pytest.mark.parametrize("skips_first", [False, True])
@pytest.mark.parametrize("length", [2, 3, 6, len(TEXT)])
def test_drafts_are_those_of_whole_passes(chain: Chain, length: int, skips_first: bool) -> None:
    history = [*TEXT[:length], GUESSED[0]]
    chain.context.forward(history[:-1], 0)
    opened = chain.open(skips_first=skips_first)
    assert opened.length == 0
    chain.context.truncate(0)
    chain.context.forward(history[:-1], 0)
    rows = [read(opened, history)]
    rows += [opened.forward([token], 1).copy() for token in GUESSED[1:]]
    by_definition = expected(chain, history, GUESSED[1:], skips_first=skips_first)
    assert np.abs(np.vstack(rows) - by_definition).max() < ROUNDING
    assert np.abs(by_definition).max() > 1.0


def test_all_rows_of_a_pass_are_right(chain: Chain) -> None:
    opened = chain.open()
    chain.context.forward(TEXT[:20], 0)
    rows = opened.forward([*TEXT[:20], 7, 8], 22)
    for place in range(1, 20):
        assert np.abs(rows[place] - expected(chain, TEXT[: place + 1])).max() < ROUNDING
    last = expected(chain, [*TEXT[:20], 7], [8])
    assert np.abs(rows[20:] - last).max() < ROUNDING


@pytest.mark.parametrize("backlog", [1, 3, 12])
def test_a_line_drafted_on_the_device_is_that_of_the_host(chain: Chain, backlog: int) -> None:
    hosts, devices = chain.open(), chain.open()
    chain.context.forward(TEXT, 0)
    history = [*TEXT, GUESSED[0]]
    tokens, rows = [], read(hosts, history)
    for _ in range(5):
        tokens.append(int(rows[-1].argmax()))
        rows = hosts.forward(tokens[-1:], 1)
    devices.forward(history[: len(history) - backlog], 0)
    drawn = on_device(devices).draft(history[-backlog:], GREEDY, np.full(2, 0.5), N_VOCAB)
    further = on_device(devices).draft(drawn.tokens[-1:], GREEDY, np.full(3, 0.5), N_VOCAB)
    assert [*drawn.tokens, *further.tokens] == tokens
    assert list(devices.tokens) == [*history, *tokens[:-1]]
    chain.context.forward(history[-1:], 0)
    assert devices.rollback_to(devices.length) == len(history)


@pytest.mark.parametrize("seed", range(3))
def test_drafts_accepted_and_rejected_leave_what_a_new_context_reads(
    model: MlxModel, chain: Chain, seed: int
) -> None:
    """Lines, on the device or not, and steps without a draft, after a text of any length."""
    random = np.random.default_rng(seed)
    opened = chain.open()
    history = random.integers(3, N_VOCAB, int(random.integers(2, 60))).tolist()
    chain.context.forward(history[:-1], 0)
    for _ in range(12):
        drafted = random.integers(3, N_VOCAB, int(random.integers(0, 6))).tolist()
        if random.integers(4):
            assert np.abs(read(opened, history) - expected(chain, history)).max() < ROUNDING
            if random.integers(2):
                opened.truncate(opened.rollback_to(len(history) - 1))
                on_device(opened).draft(
                    history[opened.length :], GREEDY, np.full(1 + len(drafted), 0.5), N_VOCAB
                )
            else:
                for token in drafted:
                    opened.forward([token], 1)
        kept = int(random.integers(len(drafted) + 1))
        chain.context.forward([history[-1], *drafted], 1 + len(drafted))
        chain.context.truncate(len(history) + kept)
        history += [*drafted[:kept], int(random.integers(3, N_VOCAB))]
        if not random.integers(5):  # another answer to the same question
            length = chain.context.rollback_to(int(random.integers(1, len(history))))
            chain.context.truncate(length)
            history = [*history[:length], int(random.integers(3, N_VOCAB))]
            if length == 0:
                history.append(int(random.integers(3, N_VOCAB)))
                chain.context.forward(history[:-1], 0)


def test_a_state_of_a_rejected_token_that_is_kept_is_caught(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparisons above tell states of the model from those of the head."""
    opened = chain.open()
    chain.context.forward(TEXT, 0)
    read(opened, [*TEXT, 7])
    opened.forward([8], 1)
    monkeypatch.setattr(opened, "rollback_to", lambda length: length)
    chain.context.forward([7, 8], 0)
    history = [*TEXT, 7, 8, 9]
    assert np.abs(read(opened, history) - expected(chain, history)).max() > 10 * ROUNDING


def test_a_length_past_the_models_own_states_is_not_reached(chain: Chain) -> None:
    opened = chain.open()
    chain.context.forward(TEXT, 0)
    read(opened, [*TEXT, 7])
    opened.forward([8], 1)
    assert opened.rollback_to(opened.length) == len(TEXT)
    chain.context.forward([7], 0)
    assert opened.rollback_to(opened.length) == len(TEXT) + 1
    chain.context.truncate(0)
    chain.context.forward(TEXT[:3], 0)
    assert opened.rollback_to(opened.length) == 3


@pytest.mark.parametrize("skips_first", [False, True])
def test_positions_without_a_state_are_left_out(chain: Chain, skips_first: bool) -> None:
    """As those of a text that was read before the head opened."""
    chain.context.forward(TEXT[:20], 0)
    opened = chain.open(skips_first=skips_first)
    chain.context.forward(TEXT[20:], 0)
    row = read(opened, [*TEXT, 7])
    states = _states(chain, [*TEXT, 7])[20:]
    of_rest = rows_after(chain.module, [*TEXT[20:], 7], states, (), skips_first=skips_first)
    assert np.abs(row - of_rest).max() < ROUNDING
    for cut in (25, 20, 7):
        opened.truncate(cut)
        again = read(opened, [*TEXT, 7])
        assert np.abs(again - row).max() < ROUNDING


@pytest.mark.parametrize(
    ("skips_first", "is_early"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.parametrize("seen", [0, 6])
def test_restored_text_is_left_out(
    chain: Chain, seen: int, skips_first: bool, is_early: bool
) -> None:
    """With what the head has seen of it before: entries cannot have a gap.

    is_early: the head drafts before its model has passed more.
    """
    opened = chain.open(skips_first=skips_first)
    chain.context.forward(TEXT[:20], 0)
    state = chain.context.save()
    chain.context.truncate(0)
    if seen:
        chain.context.forward(TEXT[:seen], 0)
        read(opened, [*TEXT[:seen], 9])
    chain.context.restore(TEXT[:20], state)
    if is_early:
        read(opened, TEXT[:21])
        opened.forward([200], 1)
    chain.context.forward(TEXT[20:], 0)
    row = read(opened, [*TEXT, 7])
    states = _states(chain, [*TEXT, 7])[20:]
    of_rest = rows_after(chain.module, [*TEXT[20:], 7], states, (), skips_first=skips_first)
    assert np.abs(row - of_rest).max() < ROUNDING
    assert np.abs(row - expected(chain, [*TEXT, 7], skips_first=skips_first)).max() > ROUNDING


@pytest.mark.parametrize("skips_first", [False, True])
def test_another_text_from_before_the_first_state(chain: Chain, skips_first: bool) -> None:
    chain.context.forward(TEXT[:20], 0)
    opened = chain.open(skips_first=skips_first)
    chain.context.forward(TEXT[20:], 0)
    read(opened, [*TEXT, 7])
    chain.context.truncate(0)
    chain.context.forward(TEXT[:6], 0)
    for rejected in (50, 60):
        row = read(opened, [*TEXT[:6], 9])
        by_definition = expected(chain, [*TEXT[:6], 9], skips_first=skips_first)
        assert np.abs(row - by_definition).max() < ROUNDING
        opened.forward([rejected], 1)


def test_its_limits_are_those_of_a_head(chain: Chain) -> None:
    opened = chain.open()
    assert not opened.can_verify_tree
    assert "lines only" in opened.tree_refusal
    with pytest.raises(ModelError, match="cannot be saved"):
        opened.save()
    for _ in range(4):
        opened.forward([5] * 60, 0)
    with pytest.raises(ModelError, match="do not fit"):
        opened.forward([5] * 60, 0)
    assert opened.length == 240


def test_a_failed_pass_empties_it(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = chain.open()
    chain.context.forward(TEXT, 0)
    read(opened, [*TEXT, 7])

    def fail(*arrays: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patch:
        patch.setattr(mx, "eval", fail)
        with pytest.raises(ModelError, match="could not draft"):
            opened.forward([5], 1)
    assert opened.length == 0
    assert np.abs(read(opened, [*TEXT, 7]) - expected(chain, [*TEXT, 7])).max() < ROUNDING


def test_a_step_waits_for_the_device_once_for_its_draft_and_once_for_its_verification(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, sampling = chain.open(), on_device(chain.context)
    chain.context.forward(TEXT, 0)
    opened.forward(TEXT, 0)
    waits: list[int] = []
    compute = mx.eval

    def counted(*arrays: Any) -> None:
        waits.append(len(arrays))
        compute(*arrays)

    monkeypatch.setattr(mx, "eval", counted)
    drawn = on_device(opened).draft([7], GREEDY, np.full(4, 0.5), N_VOCAB)
    assert len(waits) == 1
    sampling.verify([7], drawn.tokens, drawn.rows, GREEDY, np.full(5, 0.5))
    assert len(waits) == 2


def test_what_was_rejected_has_no_part_in_what_follows(chain: Chain) -> None:
    rows: list[Logits] = []
    for rejected in (8, 200):
        opened = chain.open()
        chain.context.truncate(0)
        chain.context.forward(TEXT, 0)
        read(opened, [*TEXT, 7])
        opened.forward([50], 1)
        opened.forward([rejected], 1)
        opened.truncate(len(TEXT) + 2)
        rows.append(opened.forward([9], 1).copy())
        opened.close()
    assert (rows[0] == rows[1]).all()
