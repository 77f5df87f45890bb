"""Heads that draft token by token follow what their model keeps, as lines and as trees."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Logits, ModelError
from backends.base.parent_array import path_to
from backends.files import attention as rollback_depth
from backends.llamacpp.heads.chain import ChainContext, SeveralLayers
from backends.llamacpp.model import LlamaModel
from tests.fixtures.rounding import bound
from tests.fixtures.tiny.beside import N_CTX, anew, beside
from tests.fixtures.tiny.head_rows import difference, line, read
from tests.fixtures.tiny.head_run import PROMPT
from tests.fixtures.tiny.kinds import Tiny, target_of
from tests.fixtures.trees import grown

TREES = ("eagle3", "eagle3-borrowing", "glm4moe")
LINES = ("qwen35", "nemotron_h_moe", "step35", "mimo2")
"""The first two cannot verify trees, and of the others three layers draft in turn."""

EXPERTS = ("glm4moe", "nemotron_h_moe")
"""Heads with experts: where two are as likely, rounding chooses, and moves all logits of a row."""

LAST = 305
ROUNDING = bound(3e-3, 0.02)
"""Of logits of 6, in passes of other sizes: 0.00006 was found with AVX-512, 0.0012 with AVX2 alone,
0.0036 with `--card`. A head that only reads has the same bits as one that drafted in between (540
comparisons)."""

OF_MODEL = 0.03
"""Of logits of 6: what a model leaves in passes of other sizes and after trees, whose half floats
lie in another order in its cache. 0.0115 was the most of 540 comparisons."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, and the file of a head for it."""

    model: LlamaModel
    head: Path


@pytest.fixture(scope="module", params=[*TREES, *LINES])
def of_kind(request: pytest.FixtureRequest, tiny: Tiny) -> Iterator[Loaded]:
    kind: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollback_depth, "_SHARE", 1)  # of tiny weights, which no state fits into
        model = llamacpp.load(tiny(target_of(kind)), threads=1)
    with closing(model):
        yield Loaded(model, tiny(kind))


@pytest.mark.parametrize("seed", range(3))
def test_drafts_accepted_and_rejected_leave_what_a_new_context_reads(
    of_kind: Loaded, seed: int
) -> None:
    """Lines, trees, and steps without a draft, after a text of any length.

    Beside it is a head that only reads what was accepted.
    """
    random = np.random.default_rng(seed)
    with beside(of_kind.model, of_kind.head) as (context, head):
        opened, reading = head.open(N_CTX), head.open(N_CTX)
        history = random.integers(3, 300, int(random.integers(1, 90))).tolist()
        for start in range(0, len(history) - 1, 40):
            context.forward(history[start : min(start + 40, len(history) - 1)], 0)
        differences: list[float] = []
        for _ in range(12):
            tokens = random.integers(3, 300, int(random.integers(0, 6))).tolist()
            parents = [int(random.integers(-1, node)) for node in range(len(tokens))]
            is_tree = bool(random.integers(2)) and context.can_verify_tree
            if not is_tree:
                parents = list(range(-1, len(tokens) - 1))
            if random.integers(4):  # a step that this head did not draft for
                rows = read(opened, history)
                assert difference(rows, read(reading, history)) < ROUNDING
                if is_tree:
                    draft_tree(opened, tokens, parents)
                else:
                    rows = np.vstack([rows, *line(opened, tokens[:-1])])
                expected = anew(of_kind.model, of_kind.head, history, tokens[: len(rows) - 1])
                differences.append(difference(rows, expected))
            path = path_to(int(random.integers(-1, len(tokens))), parents)
            verify(context, history[-1], tokens, parents, path, is_tree=is_tree)
            history += [*(tokens[node] for node in path), int(random.integers(3, 300))]
            assert context.length == len(history) - 1
        wrong = [each for each in differences if each >= OF_MODEL]
        assert len(wrong) <= (of_kind.head.stem in EXPERTS), differences


def draft_tree(context: Context, tokens: Sequence[int], parents: Sequence[int]) -> None:
    if tokens and context.can_verify_tree:
        context.forward_tree(tokens, parents)
        context.commit(path_to(len(tokens) // 2, parents))


def verify(
    context: Context,
    last: int,
    tokens: Sequence[int],
    parents: Sequence[int],
    path: Sequence[int],
    *,
    is_tree: bool,
) -> None:
    """Run the last token of a text and a draft after it, of which a path is accepted."""
    held = context.length
    if is_tree and tokens:
        context.forward([last], 1)
        context.forward_tree(tokens, parents)
        context.commit(path)
    else:
        context.forward([last, *tokens], 1 + len(tokens))
        context.truncate(held + 1 + len(path))


@pytest.mark.parametrize("of_kind", TREES, indirect=True)
def test_a_branch_of_a_tree_is_as_a_line_of_its_own(of_kind: Loaded) -> None:
    """Run at once or grown, and so is what follows after one was kept."""
    parents = [-1, -1, 0, 0, 1, 2, 2, 5]
    tokens = [40, 41, 42, 43, 44, 45, 46, 47]
    with beside(of_kind.model, of_kind.head) as (context, head):
        trees, lines = head.open(N_CTX), head.open(N_CTX)
        context.forward(PROMPT, 0)
        history = [*PROMPT, LAST]
        read(trees, history)
        for ends in ((), (2, 5)):
            rows = grown(trees, tokens, parents, ends)
            for node in range(len(tokens)):
                row = read(lines, history)
                for above in path_to(node, parents):
                    row = lines.forward([tokens[above]], 1)
                assert difference(row, rows[node : node + 1]) < ROUNDING
        trees.commit([0, 2, 5])
        read(lines, history)
        for token in (40, 42, 45):
            lines.forward([token], 1)
        assert list(trees.tokens) == list(lines.tokens)
        assert difference(trees.forward([50], 1), lines.forward([50], 1)) < ROUNDING


@pytest.mark.parametrize(("seen", "is_early"), [(0, False), (6, False), (6, True)])
def test_restored_text_is_left_out(of_kind: Loaded, seen: int, is_early: bool) -> None:
    """With what the head has seen of it before: it drafts as one that was opened after it.

    is_early: both draft before their model has passed more.
    """
    text = np.random.default_rng(2).integers(3, 300, 40).tolist()
    with beside(of_kind.model, of_kind.head) as (context, head):
        opened = head.open(N_CTX)
        context.forward(text[:20], 0)
        state = context.save()
        context.truncate(0)
        if seen:
            context.forward(text[:seen], 0)
            read(opened, [*text[:seen], LAST])
        context.restore(text[:20], state)
        late = head.open(N_CTX)
        if is_early:
            assert difference(read(opened, text[:21]), read(late, text[:21])) < ROUNDING
            opened.forward([40], 1)
        context.forward(text[20:], 0)
        row = read(opened, [*text, LAST])
        assert difference(row, read(late, [*text, LAST])) < ROUNDING
    whole = anew(of_kind.model, of_kind.head, [*text, LAST])
    assert difference(row, whole) > 10 * ROUNDING, "what was restored is missing"


def test_a_head_without_known_states_still_runs(of_kind: Loaded) -> None:
    """As while its costs are measured."""
    with beside(of_kind.model, of_kind.head) as (_, head):
        opened = head.open(N_CTX)
        assert np.isfinite(opened.forward(PROMPT, 1)).any()
        opened.truncate(1)
        assert np.isfinite(opened.forward([40], 1)).any()
        opened.truncate(0)
        assert np.isfinite(opened.forward([40], 1)).any()


@pytest.mark.parametrize("of_kind", LINES, indirect=True)
def test_a_head_tells_why_it_drafts_no_trees(of_kind: Loaded) -> None:
    with beside(of_kind.model, of_kind.head) as (_, head):
        opened = head.open(N_CTX)
        assert not opened.can_verify_tree
        assert opened.max_branches == 1
        takes_turns = of_kind.model.info.architecture in ("step35", "mimo2")
        told = "take turns" if takes_turns else "cannot verify trees"
        assert told in opened.tree_refusal


class Turns:
    """Passes of layers in turn, with the layer that took each."""

    def __init__(self, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(context, ChainContext)
        assert isinstance(context._passes, SeveralLayers)
        self.taken: list[tuple[int, int]] = []
        """Layer and number of tokens."""
        self.fails_at = -1
        self._passes = context._passes
        self._pass = self._passes._pass
        monkeypatch.setattr(self._passes, "_pass", self._noted)

    def _noted(self, layer: int, *, outputs: bool) -> int:
        if layer == self.fails_at:
            raise ModelError("the head could not draft", "as this test wants")
        count = self._pass(layer, outputs=outputs)
        self.taken.append((layer, count))
        return count


@pytest.mark.parametrize("of_kind", ["step35"], indirect=True)
def test_each_layer_drafts_the_next_token_and_the_last_one_all_further(
    of_kind: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer reads what it lacks when its turn comes, or by half a pass."""
    text = np.random.default_rng(1).integers(3, 300, 70).tolist()
    with beside(of_kind.model, of_kind.head) as (context, head):
        opened = head.open(N_CTX)
        turns = Turns(opened, monkeypatch)
        context.forward(text, 0)
        read(opened, [*text, LAST])
        assert turns.taken == [(1, 64), (2, 64), (0, 64), (0, 6), (0, 1)]
        turns.taken.clear()
        for token in (40, 41, 42):
            opened.forward([token], 1)
        assert turns.taken == [(1, 8), (2, 9), (2, 1)]
        turns.taken.clear()
        context.forward([LAST, 40, 41, 42], 4)
        context.truncate(len(text) + 2)
        read(opened, [*text, LAST, 40, 50])
        assert turns.taken == [(0, 1), (0, 1)]


@pytest.mark.parametrize("of_kind", ["step35"], indirect=True)
def test_after_a_failed_pass_the_layers_read_again(
    of_kind: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drafted(history: Sequence[int]) -> Logits:
        read(opened, history)
        return opened.forward([40], 1).copy()

    with beside(of_kind.model, of_kind.head) as (context, head):
        opened = head.open(N_CTX)
        context.forward(PROMPT, 0)
        expected = drafted([*PROMPT, LAST])
        opened.truncate(0)
        turns = Turns(opened, monkeypatch)
        turns.fails_at = 1
        with pytest.raises(ModelError):
            drafted([*PROMPT, LAST])
        turns.fails_at = -1
        assert difference(drafted([*PROMPT, LAST]), expected) < ROUNDING
