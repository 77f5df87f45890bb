"""Trees on the bundled model at temperature 0: plain decoding's tokens, but for near-ties.

A branch leaves llama.cpp's cache in another order than a line does, and quantized sums over it
round otherwise. How far that moves logits is measured for each prompt; two logits that are further
apart cannot have been turned by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from app.paths import Paths
from backends.base import Context, Model
from decoding.checks.distribution_check import branch_difference, divergences
from decoding.draft import Draft, Drafter, KeepOn
from decoding.events import Shape, Step
from scripts.prompts import tokenized
from tests.endtoend.test_guessing import drafting_by, steps
from tests.fixtures.first_hit import FirstHit, first_hit_of
from tests.fixtures.forms import parents_in
from tests.fixtures.replied import said

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("llamacpp", "drafting_never_pays")]

TOKENS = 64
PROMPTS = (0, 2, 4, 10)  # chat, code, copy, translation
SPECS = ("tree(self:q4_0)", "tree(self:q4_0):nodes=8,depth=4")


class Watched(FirstHit):
    """Keeps what a drafter proposed, step by step."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__([drafter], max_draft=63)
        self.drafts: list[Draft] = []

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.drafts.append(super().propose(history, limit, keep_on))
        return self.drafts[-1]


@pytest.fixture(scope="module")
def prompts(demo: Model) -> list[list[int]]:
    every = tokenized(demo)
    return [every[number][1] for number in PROMPTS]


@pytest.fixture(scope="module")
def allowed(context: Context, prompts: list[list[int]]) -> list[float]:
    """The largest margin of a near-tie after each prompt: both logits may have moved."""
    return [2 * branch_difference(context, prompt) for prompt in prompts]


@dataclass(slots=True)
class Found:
    """What came of replies: their tokens, trees, those kept off the first branch, near-ties."""

    tokens: int = 0
    trees: int = 0
    elsewhere: int = 0
    margins: list[float] = field(default_factory=list[float])

    def add(self, context: Context, prompt: list[int], drafter: Drafter, allowed: float) -> None:
        """Reply to a prompt, and judge each token; raises AssertionError for a fault."""
        watched = Watched(drafter)
        reply = steps(context, prompt, TOKENS, watched)
        self.tokens += len(said(reply))
        for draft, step in zip(watched.drafts, reply[1:], strict=False):
            if step.shape is Shape.TREE:
                self.trees += 1
                self.elsewhere += is_off_the_first_branch(draft, step)
        for one in divergences(context, prompt, said(reply)):
            assert one.margin <= allowed, one
            self.margins.append(one.margin)

    def __str__(self) -> str:
        margins = ", ".join(f"{margin:.2g}" for margin in sorted(self.margins))
        return (
            f" {self.tokens} tokens, {self.trees} trees, {self.elsewhere} kept off their first "
            f"branch, {len(self.margins)} near-ties ({margins}) "
        )


def is_off_the_first_branch(draft: Draft, step: Step) -> bool:
    """Whether a token of a tree was accepted that is not the first child of the one before it."""
    parents = parents_in(draft)
    node = -1
    for token in step.tokens[: step.accepted]:
        children = [child for child, parent in enumerate(parents) if parent == node]
        node = next(child for child in children if draft.tokens[child] == token)
        if node != children[0]:
            return True
    return False


@pytest.mark.parametrize("spec", SPECS)
def test_trees_of_a_copy_of_the_model(
    spec: str,
    demo: Model,
    context: Context,
    prompts: list[list[int]],
    allowed: list[float],
    paths: Paths,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Found()
    with drafting_by(spec, demo, context, paths) as drafting:
        assert drafting.missing == ""
        for prompt, most in zip(prompts, allowed, strict=True):
            found.add(context, prompt, first_hit_of(drafting), most)
    with capsys.disabled():
        print(found, end="")
    assert found.tokens == TOKENS * len(prompts)
    assert found.elsewhere > 20


def test_the_cells_of_a_sibling_are_seen_if_they_are_kept(
    demo: Model,
    context: Context,
    prompts: list[list[int]],
    allowed: list[float],
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the tokens are right, and the cache holds another branch's last one."""
    from backends.llamacpp.tree_sequences import TreePass

    keep = TreePass.keep

    def keep_a_sibling(tree: TreePass, path: Sequence[int]) -> list[int]:
        above = tree.parents[path[-1]] if path else -1
        siblings = [
            node for node, parent in enumerate(tree.parents) if parent == above and node not in path
        ]
        return keep(tree, [*path[:-1], siblings[0]] if path and siblings else path)

    monkeypatch.setattr(TreePass, "keep", keep_a_sibling)
    with drafting_by(SPECS[0], demo, context, paths) as drafting:
        reply = steps(context, prompts[0], TOKENS, first_hit_of(drafting))
    assert sum(step.accepted for step in reply) > 0
    margins = [one.margin for one in divergences(context, prompts[0], said(reply))]
    assert max(margins) > allowed[0], margins
