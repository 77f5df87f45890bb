"""Running states of llama.cpp: what may be taken back, copies of them, and stopped passes.

What holds for MLX too is in tests/backends/contract/test_running_states.py.
"""

import ctypes
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from backends.base import (
    Context,
    Model,
    ModelError,
    OutOfMemoryError,
    PassStoppedError,
    RollbackRefusedError,
)

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.llamacpp import running_state
from backends.llamacpp.running_state import RunningState
from tests.fixtures.tiny.taken_back import DRAFT, PROMPT, TEXT, expected, read, rows_after

if TYPE_CHECKING:
    from backends.llamacpp.context import LlamaContext


@pytest.fixture
def context(hybrid: Model) -> Iterator[Context]:
    with closing(hybrid.open(512)) as context:
        yield context


def test_there_is_a_copy_for_each_token_that_may_be_taken_back(
    hybrid: Model, context: Context
) -> None:
    assert context.max_rollback == len(DRAFT)
    with closing(hybrid.open(512, drafts=False)) as plain:
        assert (1 + context.max_rollback) * plain.state_bytes == context.state_bytes


def test_only_tokens_of_the_last_pass_are_taken_back_and_once(context: Context) -> None:
    context.forward(PROMPT, 0)
    for tokens, kept in (([1], 9), ([1, 2], 9), ([1, 2, 3], 10), ([*DRAFT, 1, 2, 3], 9)):
        held = context.length
        context.forward(tokens, 0)
        too_far = max(kept, held) if len(tokens) < 8 else context.length - 8
        with pytest.raises(RollbackRefusedError, match="running state"):
            context.truncate(too_far)
        assert context.rollback_to(too_far) == 0
        assert context.length == held + len(tokens)
    context.truncate(context.length - 2)
    assert context.rollback_to(context.length - 1) == 0
    with pytest.raises(RollbackRefusedError):
        context.truncate(context.length - 1)


def test_counting_one_token_too_many_is_noticed(
    hybrid: Model, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes back as much after any pass, and goes on from a state of another one."""
    monkeypatch.setattr(running_state, "kept_snapshots", lambda n_tokens, depth: depth)
    context.forward(PROMPT, 0)
    context.forward([50], 1)
    context.truncate(len(PROMPT))
    stale = rows_after(context)
    assert np.abs(stale - expected(hybrid, PROMPT)).max() > 0.1


def least_memory(model: Model, monkeypatch: pytest.MonkeyPatch) -> int:
    """Free bytes with which a context of 64 tokens just opens."""
    too_few, enough = 0, 1 << 30
    while enough - too_few > 1:
        free = (too_few + enough) // 2
        with monkeypatch.context() as patch:
            patch.setattr("backends.llamacpp.model.available_memory", partial(int, free))
            try:
                model.open(64).close()
            except OutOfMemoryError:
                too_few = free
            else:
                enough = free
    return enough


@pytest.mark.processor("llama.cpp tells what a card has no room for")
@pytest.mark.parametrize("copies", [0, 2])
def test_where_memory_is_short_there_are_fewer_copies_or_none(
    hybrid: Model, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    with closing(hybrid.open(64)) as context:
        state_bytes = context.state_bytes // (1 + context.max_rollback)
    free = least_memory(hybrid, monkeypatch) + copies * state_bytes
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: free)
    with closing(hybrid.open(64)) as context:
        assert context.max_rollback == copies
        assert context.state_bytes == (1 + copies) * state_bytes
        assert ("no memory for copies" in context.draft_refusal) == (copies == 0)
        context.forward(PROMPT, 1)


def test_a_checkpoint_that_the_engine_refuses_leaves_the_beginning(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows_after(context)
    context.truncate(0)
    read(context, TEXT[:30])
    context.checkpoint()
    read(context, TEXT[30:50])
    monkeypatch.setattr(RunningState, "_put_back", lambda _self, _state: False)
    with pytest.raises(RollbackRefusedError, match="from 50 to 30"):
        context.truncate(30)
    assert list(context.tokens) == []
    assert np.array_equal(rows_after(context), first)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_stopped_pass_leaves_the_last_checkpoint(context: Context, count: int) -> None:
    """The engine seems to undo a short pass, but its state has run it."""
    read(context, TEXT[:30])
    context.checkpoint()
    first = rows_after(context)
    context.truncate(30)
    is_stopping = True

    @api.ggml_abort_callback
    def stop(_data: object) -> bool:
        return is_stopping

    pointer = cast("LlamaContext", context).pointer
    assert pointer is not None
    api.llama_set_abort_callback(pointer, stop, ctypes.c_void_p(0))
    with pytest.raises(PassStoppedError):
        context.forward(TEXT[30 : 30 + count], 0)
    is_stopping = False
    assert list(context.tokens) == TEXT[:30]
    assert np.array_equal(rows_after(context), first)
    is_stopping = True
    with pytest.raises(PassStoppedError):
        context.forward(TEXT[:count], 0)
    assert list(context.tokens) == TEXT[:30]


def test_a_refused_token_changes_nothing(context: Context) -> None:
    read(context, TEXT[:30])
    context.truncate(28)
    with pytest.raises(ModelError):
        context.forward([1_000_000], 0)
    assert list(context.tokens) == TEXT[:28]
    rows = rows_after(context)
    context.truncate(0)
    read(context, TEXT[:30])
    context.truncate(28)
    assert np.array_equal(rows_after(context), rows)


def test_a_model_without_snapshots_comes_back_to_checkpoints_too(tiny_mamba: Path) -> None:
    model = llamacpp.load(tiny_mamba)
    context = model.open(256)
    assert context.max_rollback == 0
    assert "cannot take back for the architecture mamba" in context.draft_refusal
    read(context, TEXT[:30])
    context.checkpoint()
    first = rows_after(context)
    context.truncate(30)
    assert np.array_equal(rows_after(context), first)
    model.close()
