"""A drafter model alone in --draft: its trees are planned where they may gain."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.knowing import drafters

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.engine.session_drafters import Drafting
from app.paths import Paths
from backends import llamacpp
from backends.base import Context, Model
from decoding.checks.distribution_check import branch_difference, divergences
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.acceptance import ANY_POSITION, Acceptance, temperature_bucket
from decoding.estimation.cost import CostModel, DraftCost, Measured, TreeSize
from decoding.events import Shape, Step
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import trees_may_gain
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.replied import replied, said
from tests.fixtures.retimed import retimed

PROMPT = [300, 301, 302, 303, 300, 301]
FLAT = {1: 1.0, 64: 1.2}
STEPPED = {1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7}
SELF = "self:q4_0"


@pytest.fixture
def target(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(seed=1))) as model:
        yield model


@pytest.fixture
def drafted(
    target: Model, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[int, float]], tuple[Context, Drafting]]]:
    """The drafting of a target whose passes take so long, and the drafter's a tenth of that."""

    kept = home / "cache" / "calibration"
    shutil.rmtree(kept, ignore_errors=True)

    def of(points: dict[int, float]) -> tuple[Context, Drafting]:
        curves = iter([points, {n: seconds / 10 for n, seconds in points.items()}])

        def calibrate(context: Context, tokens: Sequence[int], **_: float) -> Measured:
            del context, tokens
            return Measured(next(curves))

        monkeypatch.setattr("app.learned.calibrations.calibrate", calibrate)
        context, paths = target.open(256), Paths.of_this_user()
        return context, drafters(SELF, target, context, paths)

    yield of
    shutil.rmtree(kept, ignore_errors=True)


def reply(context: Context, drafter: Controller | None, temperature: float) -> list[Step]:
    timed = retimed(drafter) if drafter else None
    return replied(context, PROMPT, SamplingSettings(temperature), Limits(64, frozenset()), timed)


@pytest.mark.slow
def test_where_tokens_cost_little_trees_are_planned_beside_lines(
    drafted: Callable[[dict[int, float]], tuple[Context, Drafting]],
) -> None:
    context, drafting = drafted(FLAT)
    with closing(drafting):
        assert drafting.names[:2] == [SELF, f"tree({SELF})"]
        assert sum(handle.model is not None for handle in drafting.all_handles) == 1
        for _ in range(2):  # what is one's own cache is the other's too
            found = reply(context, drafting.controller, 0.0)
            allowed = 2 * branch_difference(context, PROMPT)
            turned = divergences(context, PROMPT, said(found))
            assert all(one.margin <= allowed for one in turned)
        for temperature in (0.0, 1.0):
            steps = reply(context, drafting.controller, temperature)
            widths = [step.width for step in steps if step.shape is Shape.TREE]
            assert max(widths) > 1, "one that grew may be a line now and then"
            assert sum(step.accepted for step in steps) > 0
        assert [handle.member.dropped for handle in drafting.handles] == [""] * len(
            drafting.handles
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_trees_learn_is_known_of_the_drafter_itself(
    temperature: float, drafted: Callable[[dict[int, float]], tuple[Context, Drafting]]
) -> None:
    context, drafting = drafted(FLAT)
    with closing(drafting):
        lines, trees, *_ = drafting.handles
        assert drafting.memory is not None
        drafting.remember()
        assert not drafting.memory.recall(trees.key).counts(), "no tree was judged yet"
        reply(context, drafting.controller, temperature)
        assert trees.member.estimates.judged.judged > 0.0
        assert lines.member.estimates.judged.judged > 0.0
        drafting.remember()
        assert drafting.memory.recall(trees.key).counts()
        known = drafting.memory.recall(lines.key)
        assert known.counts()
        assert not known.is_trial
        assert not drafting.memory.recall(lines.key).is_trial


def test_where_they_do_not_lines_are_all_there_is(
    drafted: Callable[[dict[int, float]], tuple[Context, Drafting]],
) -> None:
    _, drafting = drafted(STEPPED)
    with closing(drafting):
        assert drafting.names == [SELF]


@pytest.mark.parametrize(("share", "gains"), [(0.9, False), (0.6, True), (0.3, True)])
def test_a_drafter_that_is_nearly_always_right_needs_no_branches(share: float, gains: bool) -> None:
    cost, costs = DraftCost(0.15, 0.15), CostModel(Measured({1: 1.0, 64: 2.5}))
    lines = member(share, cost)
    assert trees_may_gain(lines, lines.by_rank(), cost, costs, TreeSize(8, 32)) is gains


def test_a_tree_without_a_second_branch_is_no_gain_over_a_line() -> None:
    cost, costs = DraftCost(0.02, 0.002), CostModel(Measured(FLAT))
    lines = member(0.6, cost)
    assert not trees_may_gain(lines, [0.6], cost, costs, TreeSize(8, 32))


def test_trees_go_by_what_is_known_of_themselves_once_lines_are_dropped() -> None:
    cost = DraftCost(0.02, 0.002)
    lines, trees = member(0.9, cost), member(0.3, cost)
    trees.lines = lines
    assert trees.by_rank()[0] > 0.8
    lines.drop("it stalled")
    assert trees.by_rank()[0] < 0.5


def member(share: float, cost: DraftCost) -> ManagedDrafter:
    kinds = {
        f"{temperature_bucket(SamplingSettings().temperature)}:{ANY_POSITION}": (
            1000.0 * share,
            1000.0,
        )
    }
    drafter = DraftModel.__new__(DraftModel)
    return ManagedDrafter(drafter, Acceptance(kinds), cost)
