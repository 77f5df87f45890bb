"""Drafters made of others: read, built, billed, remembered and closed with their parts."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.drafting.drafter_spec import NodeKind
from app.engine.session_drafters import build
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends import llamacpp
from backends.base import Context, Model, UsageError
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.vote import Vote
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.generation import Limits
from decoding.planning.parking import drafter_status
from decoding.sampling.distribution import SamplingSettings
from models.metadata.memory_bill import bill, facts_of
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said

PROMPT = [300, 301, 302, 303, 300, 301]
GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(48, frozenset())

Spelled = Callable[[str], str]
V = "vote(lookup,self:q2_k)"


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


@pytest.fixture
def spelled(tiny_llama: Callable[..., Path]) -> Spelled:
    """A spec with files in the place of three words: models that agree more or less often."""
    files = {
        name: str(tiny_llama(seed=1, noise=noise))
        for name, noise in (("near", 0.1), ("middle", 0.2), ("far", 0.3), ("other", 0.15))
    }
    return lambda spec: re.sub("near|middle|far|other", lambda found: files[found[0]], spec)


def built(spec: str, target: Model, context: Context, paths: Paths, room: int | None = None):
    environment = DrafterEnvironment(
        target, TargetContext(target, context), paths, None, None, lambda text: None, room
    )
    return build(draft_spec.parse(spec, paths), environment)


def reply(context: Context, drafter: Drafter | None) -> list[Step]:
    return replied(context, PROMPT, GREEDY, LIMITS, drafter)


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("cascade(lookup,self)", NodeKind.CASCADE, ["lookup", "self"]),
        ("Cascade( lookup, self:q4_0 ,self )", NodeKind.CASCADE, ["lookup", "self:q4_0", "self"]),
        ("vote(lookup,self)", NodeKind.VOTE, ["lookup", "self"]),
        (
            "cascade(vote(lookup,self:q2_k),self)",
            NodeKind.CASCADE,
            ["vote(lookup,self:q2_k)", "self"],
        ),
        ("cascade(lookup,self),lookup", NodeKind.CASCADE, ["lookup", "self"]),
    ],
)
def test_a_spec_with_brackets_is_read(
    paths: Paths, text: str, kind: NodeKind, parts: list[str]
) -> None:
    node = draft_spec.parse(text, paths).nodes[0]
    assert node.kind is kind
    assert [part.name for part in node.parts] == parts
    assert node.name == f"{kind}({','.join(parts)})"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cascade(self)", "two drafters or more"),
        ("vote(lookup)", "two drafters or more"),
        ("cascade(self,lookup)", "lookup is no model"),
        ("cascade(lookup,vote(lookup,self))", "is no model"),
        ("vote(lookup,lookup)", "twice"),
        ("self,cascade(lookup,self)", "names self twice"),
        ("cascade(lookup,self),vote(lookup,self)", "names self twice"),
        ("vote(self:q2_k,cascade(lookup,SELF:Q2_K))", "names self:q2_k twice"),
        ("cascade(lookup,off)", "contradicts"),
        ("cascade(lookup,", "brackets"),
        ("vote()", "gap"),
    ],
)
def test_what_makes_no_drafter_is_refused_with_the_reason(
    paths: Paths, text: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        draft_spec.parse(text, paths)
    assert why in str(refused.value)


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
    with closing(built(spelled(spec), target, context, paths)) as drafting:
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
    with closing(built(spelled("near"), target, context, paths)) as alone:
        weights, cache = alone.drafter_bytes, alone.kv_bytes
    assert weights > 0
    drafting = built(spelled("cascade(lookup,far,near)"), target, context, paths)
    assert (drafting.drafter_bytes, drafting.kv_bytes) == (2 * weights, 2 * cache)
    drafting.close()
    closed = [one.context for one in drafting.all_handles if one.context]
    assert len(closed) == 2


@pytest.mark.usefixtures("drafting_pays")
def test_without_room_for_a_part_nothing_of_it_is_kept(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    with closing(built(spelled("near"), target, context, paths)) as alone:
        held = alone.drafter_bytes + alone.kv_bytes
    room = held + bill(facts_of(Path(spelled("near"))), context.n_ctx).total
    with closing(built(spelled("vote(far,near)"), target, context, paths, room)) as drafting:
        assert drafting.missing == ""
    spec = spelled("vote(far,middle,near),other")
    with closing(built(spec, target, context, paths, room)) as drafting:
        assert "memory is short" in drafting.missing
        (one,) = drafting.handles
        assert one.parts == (), "the parts were freed: there is room for another"


@pytest.mark.usefixtures("drafting_pays")
def test_what_was_learned_at_every_level_is_kept(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    spec = spelled("cascade(lookup,near)")
    with closing(built(spec, target, context, paths)) as drafting:
        reply(context, drafting.controller)
        drafting.remember()
        assert drafting.memory is not None
        assert drafting.memory.known_drafters() == [], "a cascade is no model that could be loaded"
        (one,) = drafting.handles
        below, model = one.parts
        learned = one.member.estimates.judged.judged, below.member.estimates.judged.judged
    assert learned[0] > 0.0
    assert below.key == f"lookup for {model.key}"
    with closing(built(spec, target, context, paths)) as again:
        (one,) = again.handles
        assert one.member.estimates.acceptance.counts()
        assert bool(one.parts[0].member.estimates.acceptance.counts()) == (learned[1] > 0.0)


@pytest.mark.usefixtures("drafting_pays")
def test_a_cascade_begins_with_what_its_model_costs_and_is_expected_to_reach(
    spelled: Spelled, target: Model, context: Context, paths: Paths
) -> None:
    with closing(built(spelled("cascade(lookup,near)"), target, context, paths)) as drafting:
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
    spec, dear = spelled("cascade(lookup,far)"), CostModel({1: 0.02, 2: 0.036, 16: 0.32})
    with closing(built(spec, target, context, paths)) as drafting:
        reason = drafter_status(drafting.handles[0].member, dear).reason
        assert "needs acceptance" in reason
        assert "a trial expects" in reason
        reply(context, drafting.controller)
        assert drafting.handles[0].member.estimates.judged.judged > 0.0
        drafting.remember()
    with closing(built(spec, target, context, paths)) as again:
        assert ", had " in drafter_status(again.handles[0].member, dear).reason
