"""A context in use is lent to nobody; what measures the model has one of its own, or waits."""

import pytest

from app.loading.target_context import ContextInUseError, TargetContext
from tests.fixtures.scripted import Narrow, ScriptedContext, ScriptedModel


def holding(model: ScriptedModel) -> tuple[TargetContext, ScriptedContext]:
    """A context of 100 tokens that holds three."""
    opened = model.open(100)
    opened.forward([2, 3, 4], 1)
    return TargetContext(model, opened), opened


def test_one_user_at_a_time_and_the_next_once_that_has_ended() -> None:
    context, opened = holding(ScriptedModel(["a "]))
    with context.use() as used:
        assert used is opened
        with pytest.raises(ContextInUseError), context.use():
            pass
    with pytest.raises(ZeroDivisionError), context.use():
        raise ZeroDivisionError
    with context.use() as used:
        assert used.tokens == [2, 3, 4]


@pytest.mark.parametrize("is_in_use", [True, False])
def test_what_is_held_stays_while_something_is_measured(is_in_use: bool) -> None:
    context, opened = holding(ScriptedModel(["a "]))
    user = context.use()
    if is_in_use:
        user.__enter__()
    with context.for_measuring(40) as other:
        assert other is not opened
        assert (other.n_ctx, other.length) == (40, 0)
        other.forward([5] * 7, 1)
    with context.for_measuring(1000) as other:
        assert other.n_ctx == 100
    assert opened.tokens == [2, 3, 4]


def test_an_empty_context_that_is_free_is_measured_in() -> None:
    model = ScriptedModel(["a "])
    opened = model.open(100)
    context = TargetContext(model, opened)
    with context.for_measuring(40) as own:
        assert own is opened
        with pytest.raises(ContextInUseError), context.use():
            pass


def test_without_memory_for_a_second_one_it_waits_for_the_end_of_the_reply() -> None:
    context, opened = holding(Narrow(["a "]))
    with context.use(), pytest.raises(ContextInUseError, match="memory"), context.for_measuring(40):
        pass
    assert opened.tokens == [2, 3, 4]
    with context.for_measuring(40) as own:
        assert own is opened
        assert own.length == 0


def test_it_offers_nothing_that_runs_or_cuts_the_context() -> None:
    context, _ = holding(ScriptedModel(["a "]))
    running = ("forward", "forward_tree", "grow_tree", "commit", "truncate", "save", "restore")
    assert not [name for name in running if hasattr(context, name)]
