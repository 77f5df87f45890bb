"""Chooses the drafter model of `--draft auto` among the installed ones.

They are ranked by expected speedup, and the most promising are tried in turn until one pays. The
result of each is saved, so that a later start does not repeat a failed attempt.
"""

from collections.abc import Iterator

from app.drafting.choose.candidates import compared, own, trained, unopened, unseen
from app.drafting.choose.drafter_info import DrafterInfo, Kind
from app.drafting.choose.pair_knowledge import Knowledge
from app.drafting.drafter_building import Builder
from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_spec import HEADS, SELF, DrafterSpec, NodeKind
from app.drafting.gain import WORTHWHILE, Cost, expected_gain, pays
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
from models.metadata.memory_bill import Fit
from models.reference import Reference

_MOST_TRIED, _MOST_NEW = 3, 2
"""Drafters loaded per start at most, in all and untried ones: each takes seconds, and untried ones
must not displace one that paid before."""

_HOPED = 0.9
"""Acceptance with which an untried drafter must pay to be tried: a trial takes two seconds, once.
By the prior alone a padded body in Q8_0 never met the 135M that it was padded from, which is right
at 0.98 and makes it 1.3 times as fast on two cores, where less than 0.86 does not pay."""

_MOST_COMPARED = 6
"""Vocabularies of untried drafters read per start at most: each takes up to half a second."""


def drafter(
    known: Knowledge, builder: Builder, paths: Paths, planned: MemoryPlan
) -> DrafterHandle | None:
    """Build the most promising drafter that pays, None if none does. Nothing is downloaded.

    planned: the target's context, and the memory for drafters.
    """
    tried = 0
    for info in promising(known, paths, planned):
        if tried == _MOST_TRIED:
            break
        if info.speedup is None and tried >= _MOST_NEW:
            continue
        handle = _tried(info, known, builder)
        if handle is not None:
            return handle
        tried += 1
    return None


def promising(known: Knowledge, paths: Paths, planned: MemoryPlan) -> Iterator[DrafterInfo]:
    """Installed drafter models that may pay, most promising first.

    An untried one is ranked by the prior acceptance of its kind, and must have the target's
    vocabulary; that is compared when its turn comes.
    """
    compared_count = 0
    models = CheckedLoader(paths, known.calibrations.notify)
    infos = [known.of_drafter(info, planned) for info in _at_hand(known, paths)]
    for info in sorted(infos, key=lambda info: _gain(info, known), reverse=True):
        if not _may_pay(info, known):
            continue
        if info.is_compatible:
            yield info
            continue
        if info.speedup is None:
            compared_count += 1
            if compared_count > _MOST_COMPARED:
                continue
        opened = known.of_drafter(compared(info, known.target, models), planned)
        if _may_pay(opened, known):
            yield opened
        elif opened.is_compatible is False:
            known.trials.add(known.key(info), TrialResult(failed=opened.why))
        elif opened.kind is Kind.ACROSS_VOCABULARIES:
            known.trials.add(known.key(info), TrialResult())


def _at_hand(known: Knowledge, paths: Paths) -> Iterator[DrafterInfo]:
    """Trained drafters, the self-drafter and the installed models, before files are read."""
    heads = [head for head in trained(known.target, paths) if head.path and head.is_compatible]
    yield from heads
    mine = own(known.target, paths)
    if mine.path is not None or not known.model.info.streamed_bytes_per_token:
        yield mine  # making one takes minutes where the model is read from disk
    if expected_gain(known.costs, Cost(0.0), 1.0) < WORTHWHILE:
        return  # not even a perfect drafter that takes no time would pay
    others = unopened(known.target, paths, known.memory)
    seen = [one.path for one in (known.target, mine, *heads)]
    yield from (info for info in unseen(others, seen) if info.path is not None)


def _may_pay(info: DrafterInfo, known: Knowledge) -> bool:
    """Whether it is expected to pay, or would if it is untried and better than its kind.

    Not where something was measured when it was trained, nor for a copy of the target, which takes
    minutes to make.
    """
    is_unknown = info.recipe is None and info.prior is None
    return _gain(info, known, _HOPED if is_unknown else 0.0) >= WORTHWHILE


def _gain(info: DrafterInfo, known: Knowledge, least: float = 0.0) -> float:
    """Predicted speedup of a drafter; 0.0 for one that should not be tried.

    least: acceptance with which an untried one is credited at least.
    """
    if info.is_compatible is False or info.fit is Fit.TOO_BIG or info.draw_cost is None:
        return 0.0
    if info.speedup is not None:
        return info.speedup
    if info.kind is Kind.ACROSS_VOCABULARIES or known.trial(info) is not None:
        return 0.0  # its kind has no prior, or an attempt yielded no acceptance
    cost = Cost(info.draw_cost, info.start_cost, info.longest or MOST_DRAFTED)
    prior = POSITION_PRIOR if info.prior is None else info.prior
    return expected_gain(known.costs, cost, max(prior, least))


def _tried(info: DrafterInfo, known: Knowledge, builder: Builder) -> DrafterHandle | None:
    key = known.key(info)
    try:
        handle = builder.build(_node(info), is_to_choose=True)
    except (OutOfMemoryError, DiskFullError, DownloadError):
        return None
    except (DraftUnavailableError, ModelError) as error:
        known.trials.add(key, TrialResult(failed=error.summary))
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


def _node(info: DrafterInfo) -> DrafterSpec:
    if info.recipe is not None:
        return DrafterSpec(NodeKind.SELF, SELF)
    assert info.path is not None
    reference = Reference(info.name, info.path)
    word = info.name.partition(":")[0]
    if info.kind is Kind.TRAINED and word in HEADS:
        settings = str(info.path)
        return DrafterSpec(NodeKind(word), info.name, reference=reference, settings=settings)
    return DrafterSpec(NodeKind.MODEL, info.name, reference=reference)
