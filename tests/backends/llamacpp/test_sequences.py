"""Sequences that share the cells of a context: each goes on as if it were alone."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.base import (
    Context,
    Logits,
    Model,
    ModelError,
    PassStoppedError,
    SharedContext,
)
from backends.base.images import image_of
from backends.base.parent_array import path_to
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.sequences import Cells, LlamaFork, LlamaSequence
from backends.llamacpp.tree_sequences import TreePass
from tests.fixtures.tiny.head_pair import Opened
from tests.fixtures.tiny.head_rows import difference, likeliest
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.projector import picture, write_projector

N_CTX = 256
ROUNDING = 0.08
"""Of logits of the tiny model, which deviate by 1.7, where rows lie elsewhere in the cache: sums
over it have half floats. 0.043 was the most of 130,000 rows, 0.02 that of a thousand."""
DEMO_ROUNDING = 1.5
"""The same of the bundled model, whose inputs are rounded to 8 bits in each layer: 1.1, as where a
branch of a tree was kept. Logits span 27. Where rows lie in order, there is no difference."""
MOST_KEPT = 60
PROBE = 77


@contextmanager
def stopped(context: LlamaContext) -> Iterator[None]:
    """Let the engine itself break off every pass."""
    pointer = context.pointer
    assert pointer is not None
    always, nothing = api.ggml_abort_callback(lambda _: True), ctypes.c_void_p(0)
    api.llama_set_abort_callback(pointer, always, nothing)
    yield
    api.llama_set_abort_callback(pointer, api.ggml_abort_callback(), nothing)


def opened(model: Model, n_ctx: int = N_CTX) -> LlamaContext:
    context = model.open(n_ctx)
    assert isinstance(context, LlamaContext)
    assert isinstance(context, SharedContext)
    return context


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 250, length).tolist()


_decode = api.llama_decode


class World:
    """A context with others beside it, what each must hold, and a context that reads it anew."""

    def __init__(self, model: Model, seed: int) -> None:
        self.n_ctx = N_CTX - 56 * (seed % 2)
        self.main, self.fresh = opened(model, self.n_ctx), model.open(N_CTX)
        self.random = np.random.default_rng(seed)
        self.texts: dict[Context, list[int]] = {self.main: []}
        self.places: dict[Context, list[int]] = {self.main: []}
        """A number of its own for each cell."""
        self.unused = count()
        self.states: list[tuple[list[int], np.ndarray]] = []
        self.known: dict[tuple[int, ...], Logits] = {}
        self.most = 0.0

    def below(self, end: int) -> int:
        return int(self.random.integers(end))

    def any_one(self) -> Context:
        return list(self.texts)[self.below(len(self.texts))]

    def some(self, most: int) -> list[int]:
        """New tokens, as many as there is room for beside a probe of each sequence."""
        most = min(most, self.main.free_cells - len(self.texts))
        return self.random.integers(3, 250, 1 + self.below(most)).tolist() if most > 0 else []

    def appended(self, context: Context, tokens: Sequence[int]) -> None:
        self.texts[context] += tokens
        self.places[context] += [next(self.unused) for _ in tokens]

    def expected(self, tokens: Sequence[int]) -> Logits:
        """The row after these tokens, of a context that holds nothing else."""
        key = tuple(tokens)
        if key not in self.known:
            self.fresh.truncate(0)
            last = (len(tokens) - 1) // 16 * 16
            for start in range(0, last, 16):
                self.fresh.forward(tokens[start : start + 16], 0)
            self.known[key] = self.fresh.forward(tokens[last:], 1)[0].copy()
        return self.known[key]

    def compare(self, row: Logits, tokens: Sequence[int]) -> None:
        self.most = max(self.most, float(np.abs(row - self.expected(tokens)).max()))
        assert self.most < ROUNDING

    def check(self) -> None:
        """Tokens, free cells, and what would follow, of every sequence."""
        for context, expected in self.texts.items():
            assert list(context.tokens) == expected
        held = {place for places in self.places.values() for place in places}
        assert self.main.free_cells == self.n_ctx - len(held)
        rows = self.main.forward_together([(one, [PROBE]) for one in self.texts])
        for (context, tokens), row in zip(self.texts.items(), rows, strict=True):
            self.compare(row[0], [*tokens, PROBE])
            context.truncate(len(tokens))

    def step(self) -> None:
        kinds = (
            self.forward, self.together, self.together, self.truncate, self.tree, self.tree,
            self.fork, self.fork, self.close, self.save, self.restore, self.stop, self.fill,
        )  # fmt: skip
        kinds[self.below(len(kinds))]()
        self.check()

    def forward(self) -> None:
        context = self.any_one()
        if tokens := self.some(20):
            row = context.forward(tokens, 1)[0]
            self.appended(context, tokens)
            self.compare(row, self.texts[context])

    def passes(self) -> list[tuple[Context, list[int]]]:
        chosen = [one for one in self.texts if self.below(2)]
        self.random.shuffle(chosen)  # pyright: ignore[reportArgumentType]
        room = self.main.free_cells - len(self.texts)
        return [(one, text(1 + self.below(3), self.below(99))) for one in chosen[: room // 3]]

    def together(self) -> None:
        if passes := self.passes():
            wanted = [self.below(1 + len(tokens)) for _, tokens in passes]
            rows = self.main.forward_together(passes, wanted)
            for (context, tokens), count, own in zip(passes, wanted, rows, strict=True):
                self.appended(context, tokens)
                assert len(own) == count
                for end, row in enumerate(own, len(self.texts[context]) - count + 1):
                    self.compare(row, self.texts[context][:end])

    def truncate(self) -> None:
        context = self.any_one()
        self._cut(context, self.below(1 + len(self.texts[context])))

    def _cut(self, context: Context, length: int) -> None:
        context.truncate(length)
        del self.texts[context][length:], self.places[context][length:]

    def tree(self) -> None:
        """One is run and grows while others go on, and a path of it is kept, or none."""
        if not (tokens := self.some(12)):
            return
        parents = [self.below(1 + node) - 1 for node in range(len(tokens))]
        half = (len(tokens) + 1) // 2
        rows = [self.main.forward_tree(tokens[:half], parents[:half]).copy()]
        other = self.any_one()
        if other is not self.main and (more := self.some(3)):
            other.forward(more, 0)
            self.appended(other, more)
        if half < len(tokens) and len(tokens) - half <= self.main.free_cells - len(self.texts):
            rows.append(self.main.grow_tree(tokens[half:], parents[half:]).copy())
        found = np.concatenate(rows)
        path = path_to(self.below(1 + len(found)) - 1, parents)
        line = [tokens[node] for node in path]
        for end, node in enumerate(path, 1):
            self.compare(found[node], [*self.texts[self.main], *line[:end]])
        self.main.commit(path)
        self.appended(self.main, line)

    def fork(self) -> None:
        if len(self.texts) < min(self.main.max_sequences, self.main.free_cells):
            source = self.any_one()
            length = self.below(1 + len(self.texts[source]))
            fork = self.main.fork(source, length)
            self.texts[fork] = self.texts[source][:length]
            self.places[fork] = self.places[source][:length]

    def close(self) -> None:
        context = self.any_one()
        if context is not self.main:
            context.close()
            del self.texts[context], self.places[context]

    def save(self) -> None:
        context = self.any_one()
        if tokens := self.texts[context]:
            self.states = [*self.states[-3:], (tokens.copy(), context.save())]

    def restore(self) -> None:
        """Without enough free cells, it is refused, and the sequence is empty."""
        context = self.any_one()
        if not self.states:
            return
        tokens, state = self.states[self.below(len(self.states))]
        self._cut(context, 0)
        room = self.main.free_cells
        if len(tokens) <= room - len(self.texts):
            context.restore(tokens, state)
            self.appended(context, tokens)
        elif len(tokens) > room:
            with pytest.raises(ModelError, match="cells are free"):
                context.restore(tokens, state)

    def stop(self) -> None:
        if passes := self.passes():
            with stopped(self.main):
                with pytest.raises(PassStoppedError):
                    self.main.forward_together(passes)
                with pytest.raises(PassStoppedError):
                    passes[0][0].forward(passes[0][1], 0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(api, "llama_decode", lambda *given: _decode(*given) or -3)
                with pytest.raises(ModelError, match="code -3"):
                    self.main.forward_together(passes)
            passes[-1][1][-1] = 1_000_000
            with pytest.raises(ModelError, match="code"):
                self.main.forward_together(passes)

    def fill(self) -> None:
        """Our count is the engine's: so many tokens find cells, and none after them does.

        It has them in blocks of 256.
        """
        context, held = self.any_one(), self.main.free_cells
        length = len(self.texts[context])
        context.forward(text(held), 0)
        assert self.main.free_cells == 0
        other = self.any_one()
        attempts: tuple[Callable[[], object], ...] = (
            lambda: other.forward([5], 1),
            lambda: self.main.forward_together([(other, [5])]),
            lambda: self.main.forward_tree([5], [-1]),
        )
        for attempt in attempts:
            with pytest.raises(ModelError, match="not fit"):
                attempt()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Cells, "shortage", lambda *_: None)
                if self.n_ctx == N_CTX:
                    with pytest.raises(ModelError, match=r"no free place|not fit"):
                        attempt()
        context.truncate(length)


def run(model: Model, seed: int, steps: int) -> World:
    """Texts are cut from time to time, so that they stay short."""
    world = World(model, seed)
    with closing(world.main), closing(world.fresh):
        for _ in range(steps):
            world.step()
            for context, tokens in world.texts.items():
                if len(tokens) > MOST_KEPT:
                    world._cut(context, world.below(MOST_KEPT))
    return world


@pytest.fixture(scope="module")
def model(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(), threads=1)) as model:
        yield model


@pytest.mark.parametrize(
    ("seeds", "steps"), [(2, 100), pytest.param(50, 200, marks=pytest.mark.nightly)]
)
def test_whatever_is_done_to_the_others_each_sequence_is_as_if_alone(
    model: Model, seeds: int, steps: int
) -> None:
    worlds = [run(model, seed, steps) for seed in range(seeds)]
    assert any(len(world.texts) > 4 for world in worlds)
    assert any(world.most > 0 for world in worlds), "else the tolerance is not needed"


def _keep_one_sequence(self: TreePass, path: Sequence[int]) -> list[int]:
    """As it was while a context had one sequence."""
    kept = [self._tokens[node] for node in path]
    sequence = self._sequences[path[-1]] if path else 0
    api.llama_memory_seq_rm(self._memory, sequence, self._start + len(path), -1)
    api.llama_memory_seq_keep(self._memory, sequence)
    if sequence:
        api.llama_memory_seq_cp(self._memory, sequence, 0, -1, -1)
        api.llama_memory_seq_rm(self._memory, sequence, -1, -1)
    self._tokens.clear()
    return kept


def _number_of_a_branch(
    self: LlamaFork, number: int, source: LlamaSequence, tokens: list[int]
) -> None:
    used = {each.number for each in source.cells.sequences}
    _fork(self, min(set(range(number + 1)) - used), source, tokens)
    source.cells.sequences[0].max_branches = number


_fork = LlamaFork.__init__


def _close_with_cells(self: LlamaSequence) -> None:
    self.cells.sequences.remove(self)


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (TreePass, "keep", _keep_one_sequence),
        (LlamaFork, "__init__", _number_of_a_branch),
        (LlamaSequence, "close", _close_with_cells),
        (Cells, "cut", lambda *_: None),
    ],
    ids=["a tree drops all others", "numbers collide", "cells stay", "cells are miscounted"],
)
def test_the_check_finds_what_disturbs_others(
    model: Model, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: object
) -> None:
    monkeypatch.setattr(owner, name, wrong)

    def runs() -> None:
        for seed in range(3):
            run(model, seed, 60)

    with pytest.raises((AssertionError, ModelError)):
        runs()


def test_a_prefix_takes_its_cells_once_until_all_have_left_it(model: Model) -> None:
    """Copies would not fit: the engine has 256 cells, and 17 sequences hold 200 tokens each."""
    with closing(opened(model)) as main:
        main.forward(text(200), 0)
        forks = [main.fork(main, 200) for _ in range(main.max_sequences - 1)]
        assert main.free_cells == 56
        with pytest.raises(ModelError, match="17, which is the most"):
            main.fork(main, 0)
        rows = main.forward_together([(one, [5, 6]) for one in (main, *forks)])
        assert main.free_cells == 56 - 2 * 17
        assert all(np.abs(row - rows[0]).max() < ROUNDING for row in rows)
        main.truncate(0)
        for fork in forks[1:]:
            fork.close()
            assert main.free_cells <= 56 - 2
        assert main.free_cells == N_CTX - 202
        forks[0].close()
        forks[0].close()
        assert main.free_cells == N_CTX


def test_forks_take_branches_from_trees_and_give_them_back(model: Model) -> None:
    with closing(opened(model)) as main:
        most = main.max_branches
        main.forward(text(9), 0)
        forks = [main.fork(main, 9) for _ in range(main.max_sequences - 1)]
        assert main.max_branches == most - len(forks)
        expected = forks[-1].forward([7], 1).copy()
        forks[-1].truncate(9)
        leaves = range(3, 3 + main.max_branches)
        main.forward_tree(leaves, [-1] * len(leaves))
        main.commit([len(leaves) - 1])
        for fork in forks:
            assert np.abs(fork.forward([7], 1) - expected).max() < ROUNDING
            fork.truncate(9)
        with pytest.raises(ModelError, match="branches"):
            main.forward_tree([5] * (1 + len(leaves)), [-1] * (1 + len(leaves)))
        for fork in forks:
            fork.close()
        assert main.max_branches == most


def test_a_tree_outlasts_a_fork_that_takes_none_of_its_branches(model: Model) -> None:
    """A drafter's waits for its target's pass, while another reply begins to draft beside it."""
    with closing(opened(model)) as main:
        most, expected = main.max_branches, main.forward([*text(9), 4, 7], 1).copy()
        main.truncate(9)
        main.forward_tree([3, 4, 5], [-1] * 3)
        fork = main.fork(main, 9)
        main.commit([1])
        assert main.tokens == [*text(9), 4]
        for one in (fork, main):
            one.forward([4] if one is fork else [7], 0)
        assert np.abs(fork.forward([7], 1) - expected).max() < ROUNDING
        main.truncate(10)
        assert np.abs(main.forward([7], 1) - expected).max() < ROUNDING
        fork.close()
        main.forward_tree([5] * most, [-1] * most)
        main.fork(main, 9)
        with pytest.raises(AssertionError, match="no tree"):
            main.commit([])


def test_a_fork_is_a_context_for_lines_that_closes_with_the_first(model: Model) -> None:
    main = opened(model)
    main.forward(text(9), 0)
    fork = main.fork(main, 4)
    assert not isinstance(fork, SharedContext)
    assert (fork.n_ctx, fork.n_chunk, fork.max_logits) == (N_CTX, main.n_chunk, main.max_logits)
    assert not fork.can_verify_tree
    assert fork.tree_refusal == "is one of several sequences"
    for each in (fork, main.fork(fork, 2)):
        with pytest.raises(AssertionError, match="several sequences"):
            each.forward_tree([5, 6], [-1, -1])
        each.checkpoint()
        assert each.rollback_to(1) == 1
    fork.close()
    with pytest.raises(AssertionError, match="closed"):
        fork.forward([5], 1)
    other = main.fork(main, 3)
    main.close()
    for each in (other, main):
        each.close()
        with pytest.raises(AssertionError, match="closed"):
            each.forward([5], 1)


@pytest.mark.parametrize(
    ("kind", "why"), [("lfm2", "running state"), ("gemma4", "sees only the last tokens")]
)
def test_a_context_that_holds_one_sequence_says_why(tiny: Tiny, kind: str, why: str) -> None:
    with closing(llamacpp.load(tiny(kind), threads=1)) as model:
        main = opened(model, 64)
        assert main.max_sequences == 1
        assert why in main.sequences_refusal
        main.forward([5, 6], 0)
        with pytest.raises(ModelError, match=why):
            main.fork(main, 0)
        together = main.forward_together([(main, [7, 8])])[0].copy()
        main.truncate(0)
        main.forward([5, 6], 0)
        np.testing.assert_allclose(main.forward([7, 8], 2), together, atol=1e-5)


@pytest.mark.parametrize("kind", ["eagle3", "glm4moe", "dflash"])
def test_a_head_reads_what_the_first_sequence_leaves(talkative: Opened, kind: str) -> None:
    """Wherever it stands among the passes, and whatever the others run between."""
    found: list[Logits] = []
    for n_logits in (None, (), (1, 0)):
        with talkative(kind) as pair:
            main = pair.context
            main.forward(text(20), 0)
            if n_logits is not None:
                fork = main.fork(main, 12)
                main.forward_together([(fork, [9, 8, 7]), (main, [5, 6, 7])], n_logits)
                fork.forward(text(5, 1), 1)
            else:
                main.forward([5, 6, 7], 3)
            found.append(likeliest(pair.drafts, [*main.tokens, 4], 2))
    assert all(difference(found[0], other) < 0.01 for other in found[1:])


def test_sequences_share_text_before_an_image_and_no_image(tiny: Tiny, tmp_path: Path) -> None:
    projector = write_projector(tmp_path / "mmproj.gguf")
    with closing(llamacpp.load(tiny("llama"), threads=1, projector=projector)) as model:
        seen = model.tokenizer.image_tokens(image_of(picture(1), "1.png"))
        with closing(opened(model)) as main, closing(model.open(N_CTX)) as alone:
            main.forward(text(9), 0)
            main.forward([*seen, *text(3)], 0)
            with pytest.raises(ModelError, match="image"):
                main.fork(main, 10)
            fork = main.fork(main, 9)
            with pytest.raises(ModelError):
                fork.forward(seen, 0)
            assert list(fork.tokens) == text(9)
            rows = main.forward_together([(fork, [5]), (main, [6])])
            assert np.abs(rows[0] - alone.forward([*text(9), 5], 1)).max() < ROUNDING
            main.truncate(9 + len(seen) + 3)
            alone.truncate(9)
            alone.forward([*seen, *text(3)], 0)
            assert np.abs(main.forward([6], 1) - alone.forward([6], 1)).max() < ROUNDING
            main.truncate(9 + 20)
            with pytest.raises(ModelError, match="in part"):
                main.forward_together([(main, [6])])


ASKED = (
    "The capital of France is Paris, and the capital of Italy is",
    "def add(a, b):\n    return a + b\n\ndef multiply(a, b):\n    return",
    "One, two, three, four, five, six, seven, eight,",
    "Water boils at a hundred degrees, and freezes at",
)


@pytest.mark.slow
def test_replies_of_the_bundled_model_are_those_of_single_ones(demo: Model) -> None:
    """Greedily, but for near-ties; texts are read in turns, and their ends fill holes."""
    texts = [demo.tokenizer.encode(one, special=False) for one in ASKED]
    with ExitStack() as stack:
        main = stack.enter_context(closing(opened(demo, 512)))
        alone = [stack.enter_context(closing(demo.open(128))) for _ in texts]
        gap = main.fork(main, 0)
        sequences = [main, *(main.fork(main, 0) for _ in texts[1:])]
        gap.forward(texts[0], 0)
        for start in range(0, max(map(len, texts)), 4):
            for tokens, *both in zip(texts, sequences, alone, strict=True):
                for one in both:
                    if piece := tokens[start : min(start + 4, len(tokens) - 1)]:
                        one.forward(piece, 0)
        gap.close()
        given, clear, most = [tokens[-1] for tokens in texts], 0, 0.0
        for _ in range(16):
            passes = [(one, [token]) for one, token in zip(sequences, given, strict=True)]
            rows = main.forward_together(passes)
            for number, (row, one) in enumerate(zip(rows, alone, strict=True)):
                expected = one.forward([given[number]], 1)[0]
                most = max(most, float(np.abs(row[0] - expected).max()))
                given[number] = int(expected.argmax())
                second, first = np.sort(expected)[-2:]
                if first - second > 2 * DEMO_ROUNDING:
                    assert row[0].argmax() == given[number]
                    clear += 1
        assert clear > 8
        assert 0 < most < DEMO_ROUNDING
