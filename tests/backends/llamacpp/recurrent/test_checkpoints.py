"""Lengths that a context with a running state comes back to, and what a stopped pass leaves."""

import ctypes
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from backends.base import Context, Model, ModelError, PassStoppedError, RollbackRefusedError

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.llamacpp.running_state import MOST, Checkpoints
from tests.fixtures.checkpoint_checks import (
    TEXT,
    THEN,
    check_after_rollback,
    check_brief,
    check_last_few,
    check_what_follows,
    check_without_memory,
    read,
    rows_after,
)

if TYPE_CHECKING:
    from backends.llamacpp.context import LlamaContext


@pytest.fixture
def context(hybrid: Model) -> Iterator[Context]:
    with closing(hybrid.open(512)) as context:
        yield context


def test_what_follows_a_checkpoint_has_the_bits_of_the_first_time(context: Context) -> None:
    check_what_follows(context)


def test_a_checkpoint_that_the_engine_refuses_leaves_the_beginning(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows_after(context, THEN)
    context.truncate(0)
    read(context, TEXT[:30])
    context.checkpoint()
    read(context, TEXT[30:50])
    monkeypatch.setattr(Checkpoints, "put_back", lambda _self, _length: False)
    with pytest.raises(RollbackRefusedError, match="from 50 to 30"):
        context.truncate(30)
    assert list(context.tokens) == []
    assert np.array_equal(rows_after(context, THEN), first)


def test_a_checkpoint_after_a_rollback_is_of_the_text_that_is_left(context: Context) -> None:
    check_after_rollback(context)


def test_a_brief_checkpoint_takes_the_place_of_the_brief_one_before(context: Context) -> None:
    check_brief(context)


def test_the_last_few_checkpoints_stay(context: Context) -> None:
    check_last_few(context, MOST)


def test_without_memory_for_a_checkpoint_only_the_beginning_is_left(
    hybrid: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model._CHECKPOINTS_SHARE", 1 << 40)
    with closing(hybrid.open(64)) as context:
        check_without_memory(context)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_stopped_pass_leaves_the_last_checkpoint(context: Context, count: int) -> None:
    """The engine seems to undo a short pass, but its state has run it."""
    read(context, TEXT[:30])
    context.checkpoint()
    first = rows_after(context, THEN)
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
    assert np.array_equal(rows_after(context, THEN), first)
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
    rows = rows_after(context, THEN)
    context.truncate(0)
    read(context, TEXT[:20])
    context.forward(TEXT[20:28], 0)
    assert np.allclose(rows_after(context, THEN), rows, atol=1e-3)


def test_a_model_without_snapshots_comes_back_to_checkpoints_too(tiny_mamba: Path) -> None:
    model = llamacpp.load(tiny_mamba)
    context = model.open(256)
    assert context.max_rollback == 0
    assert "cannot take back for the architecture mamba" in context.draft_refusal
    read(context, TEXT[:30])
    context.checkpoint()
    first = rows_after(context, THEN)
    context.truncate(30)
    assert np.array_equal(rows_after(context, THEN), first)
    model.close()
