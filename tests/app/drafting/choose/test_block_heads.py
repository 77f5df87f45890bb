"""What blocks cost: their pass, however few of its tokens are kept."""

from contextlib import closing
from pathlib import Path

import pytest

from app.drafting.choose.automatic import pays
from app.drafting.choose.drafter_info import CostSource
from app.drafting.choose.drafter_words import facts_in_words
from app.drafting.composed_drafter import Composer
from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_spec import DrafterSpec, NodeKind
from app.engine.session_opening import open_session
from app.engine.session_ranking import list_for
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.session_options import SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.estimation.draft_cost import BlockCost
from decoding.planning.managed_drafter import ManagedDrafter
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.tiny.kinds import Pair

COSTS = CostModel(Measured({1: 1.0, 16: 1.5}))


@pytest.mark.parametrize(("begin", "is_worth_it"), [(0.1, True), (3.0, False)])
def test_a_block_that_costs_more_than_it_saves_does_not_pay(
    begin: float, is_worth_it: bool
) -> None:
    """Though a further token of it costs nothing."""
    member = ManagedDrafter(IdleDrafter(), cost=BlockCost(0.0, 0.0, begin, 15), prior=0.5)
    assert pays(member, COSTS) is is_worth_it


def test_a_gain_counts_no_more_tokens_than_a_block_has() -> None:
    """As a block takes nearly a step here, only a long one pays."""
    short, long = (
        ManagedDrafter(IdleDrafter(), cost=BlockCost(0.0, 0.0, 0.9, longest), prior=0.95)
        for longest in (1, 15)
    )
    assert not pays(short, COSTS)
    assert pays(long, COSTS)


def test_a_voter_drafts_a_block_for_each_of_its_ballots() -> None:
    paths, model = Paths.of_this_user(), ScriptedModel(["a "])
    memory = AcceptanceMemory(Path(__file__), paths)
    context = TargetContext(model, model.open(64))
    composer = Composer(model, context, Calibrations(paths, lambda _: None), memory)
    costs = (BlockCost(0.01, 0.02, 0.5, 15), DraftCost(0.1, 0.03))
    parts = [
        DrafterHandle(f"part {number}", ManagedDrafter(IdleDrafter(), cost=cost))
        for number, cost in enumerate(costs)
    ]
    together = composer.compose(DrafterSpec(NodeKind.VOTE, "vote"), parts).member.cost
    assert together is not None
    for count in (1, 4):
        assert together.seconds(count, 1) == pytest.approx(count * (0.01 + 0.5 + 0.1))


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp", "drafting_pays", "heads_are_trusted")
def test_a_ranking_tells_what_a_block_was_measured_to_cost(pair: Pair) -> None:
    """One of 1 token took 0.0002 s, one of 16 0.0004 s, and a step 0.02 s."""
    model, _ = pair("dflash")
    options = SessionOptions(str(model), draft="dflash", threads=1, ctx=256)
    with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
        session.drafting.remember()
        (found,) = [one for one in list_for(session).drafters if one.name == "dflash"]
    assert found.cost_source is CostSource.MEASURED
    assert found.draw_cost == pytest.approx(0.0002 / 15 / 0.02)
    assert found.start_cost == pytest.approx((0.0002 - 0.0002 / 15) / 0.02)
    assert found.speedup is not None
    words = ", ".join(facts_in_words(found))
    assert "a block costs 0.01 of a step (measured)" in words
