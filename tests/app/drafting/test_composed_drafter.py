"""Drafters made of others: built, billed, remembered, closed with their parts, and exact."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.knowing import drafters

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


from app.paths import Paths
from backends import llamacpp
from backends.base import Context, Model
from decoding.checks.distribution_check import branch_difference, divergences
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths, TreeByTemperature
from decoding.drafters.trees import DynamicTree
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Shape, Step
from decoding.generation import Limits
from decoding.planning.pausing import drafter_status
from decoding.sampling.distribution import SamplingSettings
from models.metadata.memory_bill import bill, facts_of
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said

PROMPT = [300, 301, 302, 303, 300, 301]
GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(48, frozenset())

Spelled = Callable[[str], str]
SPECS = {
    "tree(self:q4_0)": TreeByTemperature,
    "tree(self:q4_0):children=likeliest,nodes=8,depth=3": DynamicTree,
    "tree(self:q4_0):children=drawn,nodes=5": SampledTree,
    "paths(self:q4_0):k=3,length=4": SeveralPaths,
}


@pytest.fixture
def target(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(seed=1))) as model:
        yield model


@pytest.fixture
def context(target: Model) -> Context:
    return target.open(128)


@pytest.fixture
def spelled(tiny_llama: Callable[..., Path]) -> Spelled:
    """A spec with files in the place of three words: models that agree more or less often."""
    files = {
        name: str(tiny_llama(seed=1, noise=noise))
        for name, noise in (("near", 0.1), ("middle", 0.2), ("far", 0.3), ("other", 0.15))
    }
    return lambda spec: re.sub("near|middle|far|other", lambda found: files[found[0]], spec)


def reply(
    context: Context, drafter: Drafter | None, sampling: SamplingSettings = GREEDY
) -> list[Step]:
    return replied(context, PROMPT, sampling, LIMITS, drafter)


@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("cascade(lookup,near)", Cascade),
        ("cascade(far,near)", Cascade),
        ("cascade(lookup,far,near)", Cascade),
        ("vote(lookup,ngram,near)", Vote),
        ("vote(lookup,cascade(far,near))", Vote),
    ],
)
def test_it_drafts_what_the_target_says(
    spec: str, kind: type, spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    plain = said(reply(context, None))
    with closing(drafters(spelled(spec), target, context, paths)) as drafting:
        assert drafting.missing == ""
        (one,) = drafting.handles
        assert isinstance(one.member.drafter, kind)
        assert said(reply(context, first_hit_of(drafting))) == plain
        steps = reply(context, drafting.controller)
        assert said(steps) == plain
        assert sum(step.accepted for step in steps) > 0
        assert {step.drafter for step in steps} - {""} == {one.member.name}
        assert one.member.dropped == ""


@pytest.mark.usefixtures("drafting_pays")
def test_its_models_are_billed_and_closed_with_it(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    with closing(drafters(spelled("near"), target, context, paths)) as alone:
        weights, cache = alone.drafter_bytes, alone.kv_bytes
    assert weights > 0
    drafting = drafters(spelled("cascade(lookup,far,near)"), target, context, paths)
    assert (drafting.drafter_bytes, drafting.kv_bytes) == (2 * weights, 2 * cache)
    drafting.close()
    closed = [one.context for one in drafting.all_handles if one.context]
    assert len(closed) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_without_room_for_a_part_nothing_of_it_is_kept(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    with closing(drafters(spelled("near"), target, context, paths)) as alone:
        held = alone.drafter_bytes + alone.kv_bytes
    room = held + bill(facts_of(Path(spelled("near"))), context.n_ctx).total
    with closing(drafters(spelled("vote(far,near)"), target, context, paths, room)) as drafting:
        assert drafting.missing == ""
    spec = spelled("vote(far,middle,near),other")
    with closing(drafters(spec, target, context, paths, room)) as drafting:
        assert "memory is short" in drafting.missing
        (one,) = drafting.handles
        assert one.parts == (), "the parts were freed: there is room for another"


@pytest.mark.usefixtures("drafting_pays")
def test_what_was_learned_at_every_level_is_kept(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    spec = spelled("cascade(lookup,near)")
    with closing(drafters(spec, target, context, paths)) as drafting:
        reply(context, drafting.controller)
        drafting.remember()
        assert drafting.memory is not None
        assert drafting.memory.known_drafters() == [], "a cascade is no model that could be loaded"
        (one,) = drafting.handles
        below, model = one.parts
        learned = one.member.estimates.judged.judged, below.member.estimates.judged.judged
    assert learned[0] > 0.0
    assert below.key == f"lookup for {model.key}"
    with closing(drafters(spec, target, context, paths)) as again:
        (one,) = again.handles
        assert one.member.estimates.acceptance.counts()
        assert bool(one.parts[0].member.estimates.acceptance.counts()) == (learned[1] > 0.0)


@pytest.mark.usefixtures("drafting_pays")
def test_a_cascade_begins_with_what_its_model_costs_and_is_expected_to_reach(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    with closing(drafters(spelled("cascade(lookup,near)"), target, context, paths)) as drafting:
        (one,) = drafting.handles
        model = one.parts[1]
        assert one.member.cost is not None
        assert model.member.cost is not None
        assert one.member.cost is not model.member.cost
        assert one.member.cost.draw_seconds == model.member.cost.draw_seconds
        assert one.member.estimates.by_position(0, 3) == model.member.estimates.by_position(0, 3)


@pytest.mark.usefixtures("drafting_pays")
def test_what_only_a_trial_expects_of_a_cascade_is_called_that(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    spec, dear = spelled("cascade(lookup,far)"), CostModel(Measured({1: 0.02, 2: 0.036, 16: 0.32}))
    with closing(drafters(spec, target, context, paths)) as drafting:
        reason = drafter_status(drafting.handles[0].member, dear).reason
        assert "needs acceptance" in reason
        assert "a trial expects" in reason
        reply(context, drafting.controller)
        assert drafting.handles[0].member.estimates.judged.judged > 0.0
        drafting.remember()
    with closing(drafters(spec, target, context, paths)) as again:
        assert ", had " in drafter_status(again.handles[0].member, dear).reason


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize("spec", SPECS)
def test_branches_draft_what_the_target_says(
    spec: str, target: Model, context: Context, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for near-ties: a branch leaves the cache in another order than plain decoding does."""
    with closing(drafters(spec, target, context, paths)) as drafting:
        assert drafting.missing == ""
        (one,) = drafting.handles
        assert isinstance(one.member.drafter, SPECS[spec])
        assert drafting.drafter_bytes > 0
        found = reply(context, first_hit_of(drafting))
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
    with closing(drafters("tree(self:q4_0):nodes=64", target, context, paths)) as drafting:
        assert "64 nodes, and at most 62" in drafting.missing
        assert drafting.controller is None
