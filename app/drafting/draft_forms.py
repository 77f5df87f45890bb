"""Forms of drafts: those that occurred in steps, and those that are possible for a pair."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from backends.base import Context
from decoding.draft import Drafter
from decoding.drafters.composed.cascade import Cascade
from decoding.drafters.cross_vocabulary.shared_tokens import AcrossVocabularies
from decoding.drafters.lookahead.lookahead import Lookahead
from decoding.drafters.model.block_draft import BlockDraft
from decoding.drafters.model.draft_model import DraftModel
from decoding.drafters.model.dynamic_tree import DynamicTree
from decoding.drafters.model.multi_draft import SeveralPaths
from decoding.drafters.model.sampled_tree import SampledTree
from decoding.drafters.model.tree_by_temperature import TreeByTemperature
from decoding.events import Step
from decoding.overlap.overlapping import Overlapping
from decoding.planning.controller import Controller
from decoding.rule import Rule
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings
from decoding.shape import Shape

_TOGETHER = "several drafters together"
_WORDS = {Shape.LINE: "lines", Shape.PATHS: "chosen lines", Shape.TREE: "trees"}


@dataclass(frozen=True, slots=True)
class Form:
    """A drafter, the shape of its draft, and the rule that verifies it."""

    drafter: str
    shape: Shape
    rule: Rule
    on_device: bool = False

    def __str__(self) -> str:
        where = " on the device" if self.on_device else ""
        return f"{_WORDS[self.shape]} of {self.drafter} by {self.rule}{where}"


def tallied(steps: Iterable[Step], names: Collection[str]) -> Counter[Form]:
    """Number of tokens drafted in each form; names: of the drafters."""
    tokens: Counter[Form] = Counter()
    for step in steps:
        if step.drafted:
            drafter = step.drafter if step.drafter in names else _TOGETHER
            tokens[Form(drafter, step.shape, step.rule, step.on_device)] += step.drafted
    return tokens


def possible(
    controller: Controller, context: Context, settings: SamplingSettings
) -> Iterator[Form]:
    """Forms that drafts can have with these settings: each drafter's own, then unions."""
    on_device = context.device_sampling is not None and Sampler(settings).warping is not None
    for member in controller.drafters:
        yield _of(member.drafter, on_device, is_greedy=settings.temperature == 0.0)
    free = [member for member in controller.drafters if member.cost is None]
    if len(free) > 1 and controller.max_branches > 1:
        yield Form(_TOGETHER, Shape.TREE, Rule.SAMPLE_MATCH)


def _of(drafter: Drafter, on_device: bool, *, is_greedy: bool) -> Form:
    """The form of one drafter's drafts; on_device: whether the target can verify them there."""
    name = drafter.name
    match drafter:
        case SampledTree() | TreeByTemperature() | DynamicTree() | Lookahead():
            chosen_by_temperature = isinstance(drafter, TreeByTemperature) and not is_greedy
            is_drawn = isinstance(drafter, SampledTree) or chosen_by_temperature
            return Form(name, Shape.TREE, Rule.TRAVERSAL if is_drawn else Rule.SAMPLE_MATCH)
        case SeveralPaths():
            return Form(name, Shape.PATHS, Rule.BLOCK)
        case DraftModel():
            return Form(name, Shape.LINE, Rule.BLOCK, on_device and drafter.draws_on_device)
        case AcrossVocabularies() | Cascade() | BlockDraft() | Overlapping():
            return Form(name, Shape.LINE, Rule.BLOCK)
        case _:
            return Form(name, Shape.LINE, Rule.SAMPLE_MATCH, on_device)
