"""Drafters of trees and of several lines: exact through the loop, where every outcome is counted.

One drafted step is enumerated, with the token before it; plain decoding follows. Drafters that
draw in wrong ways must fail the same enumeration.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.base.tree import depths, path_to
from decoding import generation, sampling
from decoding.cost import TreeSize
from decoding.draft import Draft, Drafter, KeepOn
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.several_paths import SeveralPaths
from decoding.drafters.tree_by_temperature import TreeByTemperature
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampler import Sampler
from decoding.sampling import Distribution, SamplingSettings, warp
from decoding.tree_shape import TreeShape, likeliest_shape
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SPARSE,
    Path,
    Prefix,
    SymbolicUniform,
    law_of_one_step,
    plain,
    total_variation,
)

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Open = Callable[..., "FakeContext"]
Table = Callable[..., NDArray[np.float32]]
Make = Callable[["FakeContext"], Drafter]

PROMPT = [0, 1]
LENGTH = 3
GREEDY = SamplingSettings(temperature=0.0)
NO_END: frozenset[int] = frozenset()
BUSHY = TreeShape((-1, -1, 0), (0, 1, 0))
PENALISED = SamplingSettings(0.8, 0, 1.0, 0.0, repeat_penalty=1.4)


def dynamic(context: "FakeContext", **more: Any) -> DynamicTree:
    return DynamicTree("dynamic", context, TreeSize(2, 3), n_vocab=N_VOCAB, **more)


def sampled(context: "FakeContext", shape: TreeShape = BUSHY, **more: Any) -> SampledTree:
    return SampledTree("sampled", context, shape, n_vocab=N_VOCAB, **more)


def paths(context: "FakeContext", **more: Any) -> SeveralPaths:
    return SeveralPaths("paths", context, 2, 2, n_vocab=N_VOCAB, **more)


@pytest.fixture
def symbolic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Path stand for every random number, wherever one is drawn."""
    of_a_number, numbers = Distribution.draw, sampling.uniform

    def draw(law: Distribution, number: SymbolicUniform | float) -> int:
        if not isinstance(number, SymbolicUniform):
            return of_a_number(law, number)
        return int(law.ids[number.path.choose(law.probabilities.tolist())])

    monkeypatch.setattr(Distribution, "draw", draw)
    for name, module in list(sys.modules.items()):
        if name.startswith("decoding.") and getattr(module, "uniform", None) is numbers:
            monkeypatch.setattr(module, "uniform", SymbolicUniform)


def error(target: "FakeContext", drafter: Drafter, sampling: SamplingSettings) -> float:
    """Total variation between the law of what the loop says and the target's own."""

    def rows(prefix: Prefix) -> Distribution:
        text = [*PROMPT, *prefix]
        return warp(target.row(text), sampling, text)

    def step(prefix: Prefix, path: Path) -> Prefix:
        said: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(generation, "Sampler", partial(_sampler, path))
            for event in generate(target, PROMPT, sampling, Limits(9, NO_END), drafter=drafter):
                if isinstance(event, Step):
                    said += event.tokens
                    if event.drafted:
                        break
        return tuple(said)

    law = law_of_one_step(step, rows, LENGTH)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return total_variation(law, law_of_one_step(plain(rows), rows, LENGTH))


def _sampler(path: Path, settings: SamplingSettings) -> Sampler:
    made = Sampler(settings)
    object.__setattr__(made, "verification", path)
    object.__setattr__(made, "drafting", path)
    return made


def by_temperature(context: "FakeContext") -> TreeByTemperature:
    return TreeByTemperature("tree", dynamic(context), sampled(context))


MAKERS: dict[str, Make] = {
    "by temperature": by_temperature,
    "dynamic": dynamic,
    "dynamic with n-grams": partial(dynamic, ngram_weight=0.5),
    "sampled": sampled,
    "sampled to an end": partial(sampled, end_tokens=frozenset({2})),
    "paths": paths,
    "paths to an end": partial(paths, end_tokens=frozenset({2})),
}


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize("sampling", [DENSE, SPARSE, PENALISED])
@pytest.mark.parametrize("name", MAKERS)
def test_the_loop_says_what_the_target_says(
    name: str, sampling: SamplingSettings, table: Table, fake_context: Open
) -> None:
    drafter = MAKERS[name](fake_context(table(7, N_VOCAB)))
    assert error(fake_context(table(3, N_VOCAB)), drafter, sampling) < 1e-9


class WithoutWhatCameUpUnlikely(SampledTree):
    """Wrong: whether a child is drafted depends on which token it is."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        assert draft.distributions is not None
        if draft.confidence[0] > 0.5:
            return draft
        return Draft(
            draft.tokens[1:2], draft.drafter, draft.confidence[1:2], draft.distributions[1:2],
            draft.evidence[1:2], parents=(-1,), siblings=draft.siblings,
        )  # fmt: skip


class InTheOrderOfLikelihood(SampledTree):
    """Wrong: children are handed on in another order than they were drawn in."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        assert draft.distributions is not None
        first, second = sorted(zip(draft.confidence[:2], draft.tokens[:2], strict=True))
        return Draft(
            (second[1], first[1]), draft.drafter, (second[0], first[0]), draft.distributions[:2],
            draft.evidence[:2], parents=(-1, -1), siblings=draft.siblings,
        )  # fmt: skip


class WithTheLawOfASingleLine(SeveralPaths):
    """Wrong: the line is handed on as if it had not been chosen."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        text, laws = list(history), []
        for token in draft.tokens:
            laws.append(warp(self._context.row(text), DENSE))  # type: ignore[attr-defined]
            text.append(token)
        return replace(draft, distributions=tuple(laws))


@pytest.mark.usefixtures("symbolic")
def test_controls_are_caught(table: Table, fake_context: Open) -> None:
    drafting = fake_context(table(7, N_VOCAB))
    wrong: list[Drafter] = [
        WithoutWhatCameUpUnlikely("wrong", drafting, BUSHY, n_vocab=N_VOCAB),
        InTheOrderOfLikelihood("wrong", drafting, BUSHY, n_vocab=N_VOCAB),
        WithTheLawOfASingleLine("wrong", drafting, 2, 2, n_vocab=N_VOCAB),
    ]
    for drafter in wrong:
        assert error(fake_context(table(3, N_VOCAB)), drafter, DENSE) > 1e-3


@pytest.mark.parametrize("name", MAKERS)
@given(
    seed=st.integers(0, 2**32),
    prompt=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12),
    n_ctx=st.integers(14, 60),
    drafter_ctx=st.integers(14, 60),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_greedy_replies_are_those_of_plain_decoding(
    name: str, seed: int, prompt: list[int], n_ctx: int, drafter_ctx: int, table: Table,
    fake_context: Open,
) -> None:  # fmt: skip
    """To the end of either context; each holds its caller to the contract."""
    scores = table(seed, N_VOCAB)
    replies: list[list[int]] = []
    for drafter in (None, MAKERS[name](fake_context(table(seed + 1, N_VOCAB), n_ctx=drafter_ctx))):
        context = fake_context(scores, n_ctx=n_ctx)
        events = generate(context, prompt, GREEDY, Limits(60, NO_END), drafter=drafter)
        replies.append([token for one in events if isinstance(one, Step) for token in one.tokens])
        assert list(context.tokens) == [*prompt, *replies[-1]][: context.length]
    assert replies[0] == replies[1]


def proposed(drafter: Drafter, sampling: SamplingSettings, limit: int = 9) -> Draft:
    drafter.begin(PROMPT, Sampler(sampling))
    return drafter.propose(PROMPT, limit)


def test_the_best_of_all_nodes_are_drafted(table: Table, fake_context: Open) -> None:
    """Against the scores of every node there is."""
    for seed in range(20):
        scores = table(seed)
        context = fake_context(scores, n_ctx=64)
        drafter = DynamicTree("dynamic", context, TreeSize(3, 6), n_vocab=6)
        draft = proposed(drafter, DENSE)
        every: dict[Prefix, float] = {(): 1.0}
        waiting: list[Prefix] = [()]
        for path in waiting:
            law = warp(context.row([*PROMPT, *path]), DENSE)
            for token in range(6):
                every[(*path, token)] = every[path] * law.of(token)
                if len(path) < 2:
                    waiting.append((*path, token))
        del every[()]
        assert draft.parents is not None
        found = {
            tuple(draft.tokens[one] for one in path_to(node, draft.parents))
            for node in range(len(draft))
        }
        assert found == set(sorted(every, key=lambda path: -every[path])[:6])


def test_a_level_is_one_pass_and_what_was_said_is_not_read_again(
    table: Table, fake_context: Open
) -> None:
    shape = likeliest_shape([0.5, 0.3], 6, 3)
    context = fake_context(table(5))
    drafter = SampledTree("sampled", context, shape, n_vocab=6)
    draft = proposed(drafter, DENSE)
    assert (draft.parents, context.forwards) == (shape.parents, [2, *shape.widths[1:]])
    assert draft.parents is not None
    node = draft.parents.index(0)
    history = [*PROMPT, draft.tokens[0], draft.tokens[node], 3]
    drafter.commit(history)
    run = 2 if node in draft.parents else 1
    assert drafter.backlog(history) == 3 - run
    drafter.propose(history, 9)
    assert context.forwards[1 + len(shape.widths[1:])] == 3 - run


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_deeper_or_longer_than_the_limit(
    name: str, table: Table, fake_context: Open
) -> None:
    drafter = MAKERS[name](fake_context(table(5, N_VOCAB)))
    for limit in (0, 1, 2):
        draft = proposed(drafter, DENSE, limit)
        depth = 1 + max(depths(draft.parents), default=-1) if draft.parents else len(draft)
        assert min(limit, 1) <= depth <= limit
        assert len(draft) <= limit or not draft.is_drawn, "whether it fits is known before"


def test_a_plan_is_followed(table: Table, fake_context: Open) -> None:
    line = TreeShape((-1, 0), (0, 0))
    one = TreeShape((-1,), (0,))
    for make, most in ((dynamic, 3), (sampled, 3), (paths, 2)):
        drafter = make(fake_context(table(5, N_VOCAB)))
        assert len(proposed(drafter, DENSE)) == most == drafter.largest.nodes
        drafter.plan(line)
        assert len(proposed(drafter, DENSE)) == 2
        drafter.plan(one)
        assert len(proposed(drafter, DENSE)) == 1


def test_what_is_drafted_follows_the_temperature(table: Table, fake_context: Open) -> None:
    """One context serves both ways, and neither leaves it a tree of the other's."""
    drafter = by_temperature(fake_context(table(5, N_VOCAB)))
    for chosen in (GREEDY, DENSE, GREEDY, DENSE, DENSE):
        draft = proposed(drafter, chosen)
        assert len(draft) == 3
        assert draft.is_drawn == (chosen is DENSE)


def test_n_grams_of_the_reply_bring_up_what_the_model_does_not_expect(
    table: Table, fake_context: Open
) -> None:
    scores = table(5)
    scores[:, 4, 2] = -9.0
    history = [4, 2, 4, 2, 4, 2, 4]
    found: list[bool] = []
    for weight in (0.0, 0.9):
        drafter = DynamicTree(
            "dynamic", fake_context(scores), TreeSize(1, 2), n_vocab=6, ngram_weight=weight
        )
        drafter.begin(history, Sampler(GREEDY))
        drafter.commit(history)
        found.append(2 in drafter.propose(history, 9).tokens)
    assert found == [False, True]
