"""EAGLE-3 heads of tiny files beside their model."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.base import Logits, ModelError
from backends.files.gguf_header import read_header
from backends.llamacpp.heads.chain import ChainContext
from backends.llamacpp.heads.head import load_head
from backends.llamacpp.model import LlamaModel
from tests.fixtures.rounding import bound
from tests.fixtures.tiny.beside import N_CTX, anew, beside, open_context
from tests.fixtures.tiny.engine_pass import EnginePass, loaded
from tests.fixtures.tiny.head_rows import difference, read
from tests.fixtures.tiny.head_run import PROMPT
from tests.fixtures.tiny.heads import EAGLE3_TAPS, write_eagle3
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import write_dense

KINDS = ("eagle3", "eagle3-borrowing")
GUESSED = (305, 210, 220, 230)
ROUNDING = bound(3e-3, 0.02)
"""Of logits of 6, in passes of other sizes: 0.00006 was found with AVX-512, 0.0012 with AVX2 alone,
0.0036 of other heads with `--card`."""


@pytest.fixture(scope="module")
def model(tiny: Tiny) -> Iterator[LlamaModel]:
    with closing(llamacpp.load(tiny("llama"), threads=1)) as model:
        yield model


def recipe(target: Path, path: Path) -> list[Logits]:
    """Logits after each guessed token by the engine's own calls, at the positions of the paper."""
    with (
        loaded(target) as model,
        EnginePass.of(model) as of_target,
        loaded(path) as head,
        EnginePass.of(head, of_target) as of_head,
    ):
        of_head.keep_hidden(only_outputs=True)
        for layer in EAGLE3_TAPS:
            of_target.keep_layer_inputs(layer)
        of_target.decode(0, PROMPT, outputs=1)
        taps = np.hstack([of_target.layer_inputs(layer, len(PROMPT)) for layer in EAGLE3_TAPS])
        of_head.decode(0, None, taps, encode=True)
        fused = of_head.hidden(len(PROMPT))
        of_head.decode(0, PROMPT[1:], fused[:-1], outputs=0)
        before, rows = fused[-1:], list[Logits]()
        for step, token in enumerate(GUESSED):
            of_head.decode(len(PROMPT) - 1 + step, [token], before)
            before = of_head.hidden(1)
            rows.append(of_head.logits()[np.newaxis])
        return rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_has_the_logits_of_the_engines_own_calls(
    tiny: Tiny, model: LlamaModel, kind: str
) -> None:
    with beside(model, tiny(kind)) as (context, head):
        opened = head.open(N_CTX)
        context.forward(PROMPT, 1)
        ours = [read(opened, [*PROMPT, GUESSED[0]])]
        ours += [opened.forward([token], 1).copy() for token in GUESSED[1:]]
    for mine, theirs in zip(ours, recipe(tiny("llama"), tiny(kind)), strict=True):
        assert difference(mine, theirs) < ROUNDING


def test_a_tree_beyond_the_limits_is_refused(tiny: Tiny, model: LlamaModel) -> None:
    with beside(model, tiny("eagle3")) as (context, head):
        opened = head.open(N_CTX)
        context.forward(PROMPT, 0)
        assert opened.can_verify_tree
        read(opened, [*PROMPT, GUESSED[0]])
        held = list(opened.tokens)
        most = opened.max_branches
        with pytest.raises(ModelError, match="branches"):
            opened.forward_tree([40] * (most + 1), [-1] * (most + 1))
        opened.forward_tree([40], [-1])
        with pytest.raises(ModelError, match="branches"):
            opened.grow_tree([40] * (most + 1), [-1] * (most + 1))
        assert list(opened.tokens) == held


def test_taps_change_no_bit_of_the_model_and_are_forgotten(tiny: Tiny, model: LlamaModel) -> None:
    with closing(open_context(model)) as plain:
        expected = [plain.forward(PROMPT, 6).copy(), plain.forward([40], 1).copy()]
    with beside(model, tiny("eagle3")) as (context, head):
        head.open(N_CTX)
        assert context.read_layers == set(EAGLE3_TAPS)
        found = [context.forward(PROMPT, 6).copy(), context.forward([40], 1).copy()]
        head.close()
        assert not context.read_layers
        context.truncate(len(PROMPT))
        found.append(context.forward([40], 1).copy())
    for ours, theirs in zip(found, [*expected, expected[-1]], strict=True):
        assert np.array_equal(ours, theirs)


def test_closing_a_head_leaves_the_layers_of_another(
    tiny: Tiny, tmp_path: Path, model: LlamaModel
) -> None:
    other = write_eagle3(tmp_path / "other.gguf", taps=(1, 3, 4))
    with beside(model, tiny("eagle3")) as (context, head):
        opened = head.open(N_CTX)
        second = load_head(other, model, context)
        second.open(N_CTX)
        assert context.read_layers == {1, *EAGLE3_TAPS}
        second.close()
        assert context.read_layers == set(EAGLE3_TAPS)
        context.forward(PROMPT, 0)
        history = [*PROMPT, GUESSED[0]]
        assert difference(read(opened, history), anew(model, tiny("eagle3"), history)) < ROUNDING


def test_a_head_that_opens_during_an_answer_reads_nothing_of_what_passed(
    tiny: Tiny, model: LlamaModel
) -> None:
    text = list(range(100, 140))
    with beside(model, tiny("eagle3")) as (context, head):
        context.forward(text, 0)
        opened = head.open(N_CTX)
        assert isinstance(opened, ChainContext)
        assert opened.pointer is not None
        memory = cast("api.llama_memory_t", api.llama_get_memory(opened.pointer))
        opened.forward([*text, 75], 1)
        assert api.llama_memory_seq_pos_min(memory, 0) == len(text)


def test_layers_without_states_are_refused(tiny: Tiny, model: LlamaModel, tmp_path: Path) -> None:
    layers = read_header(tiny("llama")).integer("block_count")
    path = write_eagle3(tmp_path / "past.gguf", taps=(2, 3, layers))
    with closing(open_context(model)) as context, pytest.raises(ModelError, match="reads layer 6"):
        load_head(path, model, context)
    other = write_dense(tmp_path / "other.gguf", layers=4)
    with (
        closing(llamacpp.load(other, threads=1)) as small,
        closing(open_context(small)) as context,
        pytest.raises(ModelError, match="reads layer 4"),
    ):
        load_head(tiny("eagle3"), small, context)
