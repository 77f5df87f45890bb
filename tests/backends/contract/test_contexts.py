"""What holds for a context of every engine: pieces, cuts, saved states, and their room."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pytest

from backends.base import Context, Logits, ModelError, Rollback
from backends.engines.model_loading import vocabulary
from tests.backends.contract.conftest import Loaded

Pair = tuple[Context, Context]


@pytest.fixture
def pair(lines: Loaded) -> Iterator[Pair]:
    with closing(lines.open(128)) as context, closing(lines.open(128)) as other:
        yield context, other


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 250, length).tolist()


def read(context: Context, tokens: Sequence[int], piece: int = 16) -> Logits:
    """Every row of logits after tokens, some at a time."""
    pieces = [tokens[start : start + piece] for start in range(0, len(tokens), piece)]
    return np.concatenate([context.forward(one, len(one)).copy() for one in pieces])


def test_pieces_of_any_size_give_the_same_logits(lines: Loaded, pair: Pair) -> None:
    tokens = text(lines.window)
    rows = read(pair[0], tokens, 1)
    assert rows.std() > 0.3
    for piece in (7, min(48, lines.window)):
        pair[1].truncate(0)
        assert lines.near(read(pair[1], tokens, piece), rows)


def test_a_restored_cache_goes_on_where_it_was_saved(lines: Loaded, pair: Pair) -> None:
    tokens, more = text(lines.window), text(9, seed=1)
    context, other = pair
    read(context, tokens)
    state = context.save()
    expected = read(context, more)
    read(other, text(20, seed=2))
    other.restore(tokens, state)
    assert list(other.tokens) == tokens
    assert np.array_equal(read(other, more), expected)


def test_what_is_rolled_back_leaves_nothing_behind(lines: Loaded, pair: Pair) -> None:
    """Past a window too, where a rotating cache would have lost what comes back into sight."""
    tokens, more = text(lines.window), text(5, seed=1)
    context, _ = pair
    assert lines.model.info.rollback is Rollback.ANY
    read(context, tokens)
    expected = read(context, more)
    for rejected in (1, 15, 35):
        context.truncate(len(tokens))
        read(context, text(rejected, seed=rejected), 35)
        context.truncate(len(tokens))
        assert list(context.tokens) == tokens
        assert np.array_equal(read(context, more), expected)


@pytest.mark.parametrize("length", [-1, 41, 1000])
def test_a_cut_past_the_end_is_an_error_and_changes_nothing(pair: Pair, length: int) -> None:
    tokens, more = text(40), text(5, seed=1)
    context, other = pair
    for one in pair:
        read(one, tokens)
    expected = read(other, more)
    with pytest.raises(ModelError, match="cannot be cut"):
        context.truncate(length)
    assert list(context.tokens) == tokens
    assert np.array_equal(read(context, more), expected)


def test_contexts_of_one_model_do_not_disturb_each_other(pair: Pair) -> None:
    context, other = pair
    expected = read(context, text(8))[-1].copy()
    read(other, text(5, seed=1))
    context.truncate(0)
    assert np.array_equal(read(context, text(8))[-1], expected)
    other.close()
    context.truncate(0)
    assert np.array_equal(read(context, text(8))[-1], expected)


def test_more_tokens_than_the_context_holds_are_refused_and_change_nothing(lines: Loaded) -> None:
    with closing(lines.open(16)) as context:
        context.forward(text(8), 1)
        with pytest.raises(ModelError, match="do not fit"):
            context.forward(text(9), 1)
        assert list(context.tokens) == text(8)
        context.forward(text(8, seed=1), 1)


def test_a_vocabulary_read_without_weights_is_the_models(lines: Loaded) -> None:
    ours = lines.model.tokenizer
    with vocabulary(lines.model.info.path) as found:
        theirs = found.tokenizer
        assert found.rollback is Rollback.ANY
        assert (theirs.bos, theirs.eos, theirs.end_tokens) == (ours.bos, ours.eos, ours.end_tokens)
        entries = [list(map(one.entry, range(ours.n_vocab))) for one in (theirs, ours)]
        assert entries[0] == entries[1]
        said = [one.encode("Héllo 🙂, the weather", special=False) for one in (theirs, ours)]
        assert said[0] == said[1]


def test_a_vocabulary_tells_of_a_running_state(stateful: Loaded) -> None:
    with vocabulary(stateful.model.info.path) as found:
        assert found.rollback is Rollback.BOUNDED
