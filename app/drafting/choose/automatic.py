"""Chooses the drafter model of `--draft auto` among the installed ones.

Candidates are ranked by expected speedup, and the most promising are tried in turn until one pays.
The result of each is saved, so that a later start does not repeat a failed attempt.
"""

from collections.abc import Iterator

from app.drafting.choose.candidates import compared, own, trained, unopened
from app.drafting.choose.drafter_info import Candidate, Kind, Pair
from app.drafting.choose.pair_knowledge import Knowledge, share_of
from app.drafting.drafter_building import Builder
from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_node import HEADS, SELF, DrafterNode, NodeKind
from app.learned.acceptance_memory import TrialResult
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import MemoryPlan
from app.paths import Paths
from backends.base import (
    DiskFullError,
    DownloadError,
    DraftUnavailableError,
    ModelError,
    OutOfMemoryError,
)
from decoding.draft import MOST_DRAFTED
from decoding.estimation.acceptance import POSITION_PRIOR
from decoding.estimation.cost import CostModel, DraftCost
from decoding.estimation.draft_cost import BlockCost
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter
from models.metadata.memory_bill import Fit
from models.reference import Reference

WORTHWHILE = 1.1
"""Predicted speedup from which a drafter is worth its memory."""

_MOST_TRIED, _MOST_NEW = 3, 2
"""Drafters loaded per start at most, in all and untried ones: each takes seconds, and untried ones
must not displace one that paid before."""

_MOST_COMPARED = 6
"""Vocabularies of untried drafters read per start at most: each takes up to half a second."""


def drafter(
    known: Knowledge, builder: Builder, paths: Paths, planned: MemoryPlan
) -> DrafterHandle | None:
    """Build the most promising drafter that pays, None if none does. Nothing is downloaded.

    planned: the target's context, and the memory for drafters.
    """
    tried = 0
    for pair in promising(known, paths, planned):
        if tried == _MOST_TRIED:
            break
        if pair.speedup is None and tried >= _MOST_NEW:
            continue
        handle = _tried(pair.drafter, known, builder)
        if handle is not None:
            return handle
        tried += 1
    return None


def promising(known: Knowledge, paths: Paths, planned: MemoryPlan) -> Iterator[Pair]:
    """Installed drafter models that are expected to pay, most promising first.

    An untried one is credited with the prior acceptance of its kind, and must have the target's
    vocabulary; that is compared when its turn comes.
    """
    compared_count = 0
    models = CheckedLoader(paths, known.calibrations.notify)
    pairs = [known.pair(candidate, planned) for candidate in _at_hand(known, paths)]
    for pair in sorted(pairs, key=lambda pair: _gain(pair, known), reverse=True):
        candidate = pair.drafter
        if _gain(pair, known) < WORTHWHILE:
            return
        if candidate.is_compatible:
            yield pair
            continue
        if pair.speedup is None:
            compared_count += 1
            if compared_count > _MOST_COMPARED:
                continue
        opened = known.pair(compared(candidate, known.target, models), planned)
        if _gain(opened, known) >= WORTHWHILE:
            yield opened
        elif opened.drafter.is_compatible is False:
            known.trials.add(known.key(candidate), TrialResult(failed=opened.drafter.why))
        elif opened.drafter.kind is Kind.ACROSS_VOCABULARIES:
            known.trials.add(known.key(candidate), TrialResult(has_other_tokens=True))


def pays(member: ManagedDrafter, costs: CostModel) -> bool:
    """Whether a drafter is expected to pay, by its measured cost and acceptance."""
    cost, plain = member.cost, costs.seconds(1)
    if cost is None:
        return True
    share = share_of(member.estimates.acceptance)
    expected = member.estimates.prior if share is None else share
    speedup = predicted_speedup(
        lambda _: expected,
        member.costs(costs),
        cost.draw_seconds / plain,
        _longest(cost),
        start_cost=cost.begin_seconds / plain,
    )
    return speedup >= WORTHWHILE


def _longest(cost: DraftCost) -> int:
    """Most tokens of a draft."""
    return cost.longest if isinstance(cost, BlockCost) else MOST_DRAFTED


def _at_hand(known: Knowledge, paths: Paths) -> Iterator[Candidate]:
    """Trained drafters, the self-drafter and the installed models, before files are read."""
    heads = [head for head in trained(known.target, paths) if head.path and head.is_compatible]
    yield from heads
    mine = own(known.target, paths)
    if mine.path is not None or not known.model.info.streamed_bytes_per_token:
        yield mine  # making one takes minutes where the model is read from disk
    if predicted_speedup(lambda _: 1.0, known.costs) < WORTHWHILE:
        return  # not even a perfect drafter that takes no time would pay
    others = [head.path for head in heads]
    seen = [path.resolve() for path in (known.target.path, mine.path, *others) if path]
    for candidate in unopened(known.target, paths, known.memory):
        if candidate.path is not None and candidate.path.resolve() not in seen:
            seen.append(candidate.path.resolve())
            yield candidate


def _gain(pair: Pair, known: Knowledge) -> float:
    """Predicted speedup of a drafter; 0.0 for one that should not be tried."""
    candidate = pair.drafter
    if candidate.is_compatible is False or pair.fit is Fit.TOO_BIG or pair.draw_cost is None:
        return 0.0
    if pair.speedup is not None:
        return pair.speedup
    if candidate.kind is Kind.ACROSS_VOCABULARIES or known.trial(candidate) is not None:
        return 0.0  # its kind has no prior, or an attempt yielded no acceptance
    expected = POSITION_PRIOR if candidate.prior is None else candidate.prior
    longest = candidate.longest or MOST_DRAFTED
    return predicted_speedup(
        lambda _: expected, known.costs, pair.draw_cost, longest, start_cost=pair.start_cost
    )


def _tried(candidate: Candidate, known: Knowledge, builder: Builder) -> DrafterHandle | None:
    """Build a drafter and keep it if it pays; saves the result unless resources ran out."""
    key = known.key(candidate)
    try:
        handle = builder.build(_node(candidate))
    except (OutOfMemoryError, DiskFullError, DownloadError):
        return None
    except (DraftUnavailableError, ModelError) as error:
        words = error.summary
        known.trials.add(key, TrialResult(failed=words))
        return None
    if handle.member.cost is not None:
        draw_cost = handle.member.cost.of_token / known.costs.seconds(1)
        known.trials.add(key, TrialResult(draw_cost))
    known.memory.remember(handle.key, handle.member.estimates.acceptance, handle.facts)
    known.memory.save()
    if pays(handle.member, known.costs):
        return handle
    builder.drop(handle)
    return None


def _node(candidate: Candidate) -> DrafterNode:
    if candidate.recipe is not None:
        return DrafterNode(NodeKind.SELF, SELF)
    assert candidate.path is not None
    reference = Reference(candidate.name, candidate.path)
    word = candidate.name.partition(":")[0]
    if candidate.kind is Kind.TRAINED and word in HEADS:
        file = str(candidate.path)
        return DrafterNode(NodeKind(word), candidate.name, reference=reference, settings=file)
    return DrafterNode(NodeKind.MODEL, candidate.name, reference=reference)
