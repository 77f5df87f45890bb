"""Contexts of heads are opened whole or not at all, and closed before what they read."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.base import DraftUnavailableError, Logits, ModelError
from backends.engines.model_loading import load_head
from backends.llamacpp import LlamaContext
from backends.llamacpp.heads import chain, head, opening
from tests.fixtures.tiny.kinds import Pair, Tiny

PROMPT = [1, 75, 300, 299]
KINDS = ("qwen35", "eagle3", "gemma4-assistant", "dflash")


def test_a_closed_head_holds_no_memory_and_others_go_on(tiny: Tiny) -> None:
    path = tiny("qwen35")
    model = llamacpp.load(path, threads=1)
    context = model.open(64)
    first, second = (load_head(path, model, context) for _ in range(2))
    dropped, kept = first.open(64), second.open(64)
    first.close()
    context.forward(PROMPT, 1)
    before = kept.forward([*PROMPT, 5], 1).copy()
    gone = weakref.ref(dropped)
    del first, dropped
    gc.collect()
    assert gone() is None
    kept.truncate(0)
    assert (kept.forward([*PROMPT, 5], 1) == before).all()
    model.close()


def test_a_head_forgets_contexts_that_were_closed(tiny: Tiny) -> None:
    path = tiny("qwen35")
    with closing(llamacpp.load(path, threads=1)) as model:
        context = model.open(64)
        head = load_head(path, model, context)
        opened = head.open_beside(context)
        gone = weakref.ref(opened)
        opened.close()
        del opened
        gc.collect()
        assert gone() is None


def test_the_layers_of_a_model_that_streams_are_left_out(tiny: Tiny, tmp_path: Path) -> None:
    path = tiny("qwen35")
    model = llamacpp.load(path, threads=1, lock_bytes=0)
    with pytest.raises(DraftUnavailableError, match="left out of a model that streams"):
        load_head(path, model, model.open(64))
    model.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gemma4-assistant"])
def test_a_head_opened_in_mid_text_changes_nothing_of_what_its_model_says(
    pair: Pair, kind: str
) -> None:
    path, head_path = pair(kind)
    with closing(llamacpp.load(path, threads=1)) as model:
        found: list[Logits] = []
        for opens in (False, True):
            context = model.open(64)
            context.forward(PROMPT, 1)
            if opens:
                head = load_head(head_path, model, context)
                head.open(64)
                head.open_beside(context).close()
            found.append(context.forward([5], 1).copy())
            context.close()
    assert np.array_equal(found[0], found[1])


def test_an_assistant_is_opened_beside_an_empty_context(pair: Pair) -> None:
    """It shares its model's cells, and the engine resets them."""
    path, head_path = pair("gemma4-assistant")
    with closing(llamacpp.load(path, threads=1)) as model:
        context = model.open(64)
        head = load_head(head_path, model, context)
        context.forward(PROMPT, 1)
        with pytest.raises(AssertionError, match="beside an empty one"):
            head.open(64)
        context.truncate(0)
        head.open(64)


STEPS = (
    (api, "llama_init_from_model", "llama_set_causal_attn", "llama_get_memory"),
    (chain, "RowBatch"),
    (head, "keep_hidden", "RowBatch"),
    (opening, "keep_hidden", "keep_layer_inputs", "HiddenStates"),
)


class Left:
    """What was opened and not closed: engine's contexts, and what passes leave for heads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.contexts: list[Any] = []
        self.states: list[object] = []
        begin, end = api.llama_init_from_model, api.llama_free
        add, remove = LlamaContext.add_states, LlamaContext.remove_states

        def init(*given: Any) -> Any:
            self.contexts.append(begin(*given))
            return self.contexts[-1]

        def free(pointer: Any) -> None:
            self.contexts.remove(pointer)
            end(pointer)

        def added(context: LlamaContext, states: Any) -> None:
            self.states.append(states)
            add(context, states)

        def removed(context: LlamaContext, states: Any) -> bool:
            self.states.remove(states)
            return remove(context, states)

        patch.setattr(api, "llama_init_from_model", init)
        patch.setattr(api, "llama_free", free)
        patch.setattr(LlamaContext, "add_states", added)
        patch.setattr(LlamaContext, "remove_states", removed)


@contextmanager
def failing(at: int) -> Iterator[None]:
    """Let the at-th step of opening fail."""
    steps = count(1)

    def failed_in_turn(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if next(steps) == at:
                raise MemoryError
            return step(*given, **named)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for module, *names in STEPS:
            for name in names:
                patch.setattr(module, name, failed_in_turn(getattr(module, name)))
        yield


@pytest.mark.parametrize("kind", ["qwen35", "eagle3", "gemma4-assistant", "dflash", "dflash2"])
def test_a_failure_at_any_step_leaves_nothing(
    pair: Pair, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, head_path = pair(kind)
    with closing(llamacpp.load(path, threads=1)) as model:
        context = model.open(64)
        assert isinstance(context, LlamaContext)
        expected = context.forward(PROMPT, 1).copy()
        context.truncate(0)
        with closing(load_head(head_path, model, context)) as loaded:
            left = Left(monkeypatch)
            step, drafting = 1, None
            while drafting is None:
                try:
                    with failing(step):
                        drafting = loaded.open(64)
                except MemoryError:
                    assert (left.contexts, left.states, context.read_layers) == ([], [], set())
                    step += 1
            assert step > 4
            assert len(left.contexts) == len(left.states) == 1
            assert (context.forward(PROMPT, 1) == expected).all()
            drafting.forward([*PROMPT, 5], 1)
        assert (left.contexts, left.states, context.read_layers) == ([], [], set())
        monkeypatch.undo()


def test_a_head_that_was_refused_loads_once_it_is_whole(pair: Pair) -> None:
    path, head_path = pair("eagle3")
    whole = head_path.read_bytes()
    with closing(llamacpp.load(path, threads=1)) as model, closing(model.open(64)) as context:
        expected = context.forward(PROMPT, 1).copy()
        head_path.write_bytes(whole[:-4096])
        for _ in range(2):
            with pytest.raises(ModelError, match="incomplete"):
                load_head(head_path, model, context)
        head_path.write_bytes(whole)
        with closing(load_head(head_path, model, context)) as loaded:
            drafting = loaded.open(64)
            context.truncate(0)
            assert (context.forward(PROMPT, 1) == expected).all()
            assert drafting.forward([*PROMPT, 5], 1).any()
