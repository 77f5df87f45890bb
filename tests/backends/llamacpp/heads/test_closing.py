"""A head's context is closed before what it reads, in whatever order their owners close them."""

import gc
import weakref
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import DraftUnavailableError, Logits
from backends.engines.model_loading import load_head
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.pairs import Pair

PROMPT = [1, 75, 300, 299]
KINDS = ("qwen35", "eagle3", "gemma4-assistant", "dflash")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["head", "context", "model"])
def test_any_order_closes_all(pair: Pair, kind: str, first: str) -> None:
    path, head_path = pair(kind)
    model = llamacpp.load(path, threads=1)
    context = model.open(64)
    head = load_head(head_path, model, context)
    drafting, further = head.open(64), head.open_beside(context)
    context.forward(PROMPT, 1)
    drafting.forward([*PROMPT, 5], 1)
    {"head": head, "context": context, "model": model}[first].close()
    for one in (head, context, model, drafting, further):
        one.close()


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
