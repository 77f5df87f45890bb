"""tree(A) and paths(A): read, built, billed and closed with their model, and exact in the loop."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.drafting.drafter_spec import Children, NodeKind, PathsSettings, TreeSettings
from app.engine.session_drafters import Drafting, build
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends import llamacpp
from backends.base import Context, Model, UsageError
from decoding.checks.greedy_check import branch_difference, divergences
from decoding.draft import Drafter
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.sampled_tree import SampledTree, TreeByTemperature
from decoding.drafters.several_paths import SeveralPaths
from decoding.events import Shape, Step
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said

PROMPT = [300, 301, 302, 303, 300, 301]
GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(48, frozenset())
SPECS = {
    "tree(self:q4_0)": TreeByTemperature,
    "tree(self:q4_0):children=likeliest,nodes=8,depth=3": DynamicTree,
    "tree(self:q4_0):children=drawn,nodes=5": SampledTree,
    "paths(self:q4_0):k=3,length=4": SeveralPaths,
}


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.of_this_user()


@pytest.fixture
def target(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(seed=1))) as model:
        yield model


@pytest.fixture
def context(target: Model) -> Context:
    return target.open(128)


def built(spec: str, target: Model, context: Context, paths: Paths) -> Drafting:
    environment = DrafterEnvironment(
        target, TargetContext(target, context), paths, None, None, lambda text: None
    )
    return build(draft_spec.parse(spec, paths), environment)


def reply(context: Context, drafter: Drafter | None, sampling: SamplingSettings) -> list[Step]:
    return replied(context, PROMPT, sampling, LIMITS, drafter)


@pytest.mark.parametrize(
    ("text", "kind", "part", "settings"),
    [
        ("tree(self)", NodeKind.TREE, "self", ""),
        ("Tree(self:q4_0):depth=2", NodeKind.TREE, "self:q4_0", "depth=2"),
        ("tree(self):nodes=4, depth=2", NodeKind.TREE, "self", "nodes=4, depth=2"),
        ("paths(self:skip=3):k=3,length=2", NodeKind.PATHS, "self:skip=3", "k=3,length=2"),
    ],
)
def test_a_spec_is_read(paths: Paths, text: str, kind: NodeKind, part: str, settings: str) -> None:
    nodes = draft_spec.parse(f"lookup,{text},ngram", paths).nodes
    assert [node.kind for node in nodes] == [NodeKind.LOOKUP, kind, NodeKind.NGRAM]
    assert [one.name for one in nodes[1].parts] == [part]
    assert nodes[1].settings == settings


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tree(lookup)", "which is a model"),
        ("tree(self,self:q4_0)", "one drafter"),
        ("tree()", "gap"),
        ("paths(tree(self))", "which is a model"),
        ("vote(lookup,tree(self))", "drafts for the model itself"),
        ("cascade(tree(self:q4_0),self)", "drafts for the model itself"),
        ("tree(self):nodes=0", "nodes is 1 to 64"),
        ("tree(self):nodes=2,depth=3", "no deeper"),
        ("tree(self):width=2", "'width=2' is not one of"),
        ("tree(self):ngrams=20", "'ngrams=20' is not one of nodes=N, depth=N"),
        ("paths(self):k=1", "k is 2 to 16"),
        ("paths(self):k=2,k=3", "each once"),
    ],
)
def test_what_makes_no_drafter_is_refused_with_the_reason(
    paths: Paths, text: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        draft_spec.parse(text, paths)
    assert why in str(refused.value)


def test_settings_left_out_are_the_usual_ones() -> None:
    assert TreeSettings.parse("") == TreeSettings()
    assert TreeSettings.parse("children=drawn,nodes=4").children is Children.DRAWN
    assert PathsSettings.parse("k=4") == PathsSettings(4)


@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize("spec", SPECS)
def test_it_drafts_what_the_target_says(
    spec: str, target: Model, context: Context, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for near-ties: a branch leaves the cache in another order than plain decoding does."""
    with closing(built(spec, target, context, paths)) as drafting:
        assert drafting.missing == ""
        (one,) = drafting.handles
        assert isinstance(one.member.drafter, SPECS[spec])
        assert drafting.drafter_bytes > 0
        found = reply(context, first_hit_of(drafting), GREEDY)
        assert sum(step.accepted for step in found) > 0
        shape = Shape.PATHS if spec.startswith("paths") else Shape.TREE
        assert {step.shape for step in found[1:-1]} == {shape}
        allowed = 2 * branch_difference(context, PROMPT)
        for turned in divergences(context, PROMPT, said(found)):
            assert turned.margin <= allowed
            with capsys.disabled():
                print(f" near-tie at token {turned.position + 1}: {turned.margin:.2g} logits ")
        found = reply(context, drafting.controller, SamplingSettings(1.0))
        assert sum(step.accepted for step in found) > 0
        assert one.member.dropped == ""
        assert one.member.estimates.judged.judged > 0.0


@pytest.mark.usefixtures("drafting_pays")
def test_a_tree_too_large_to_be_run_is_refused(
    target: Model, context: Context, paths: Paths
) -> None:
    with closing(built("tree(self:q4_0):nodes=64", target, context, paths)) as drafting:
        assert "64 nodes, and at most 62" in drafting.missing
        assert drafting.controller is None
