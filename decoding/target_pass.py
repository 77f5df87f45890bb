"""One pass of the target over a draft: run, judged, and settled in its context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits
from backends.base.parent_array import count_leaves
from decoding.draft import Draft
from decoding.lossy_rule import LossyRule
from decoding.rule import Rule
from decoding.sampler import Sampler
from decoding.sampling import Distribution, uniform
from decoding.shape import Siblings
from decoding.token_tree import TokenTree
from decoding.verification.block import verify_block
from decoding.verification.lossy import verify_lossy
from decoding.verification.multi_round import verify_multi_round
from decoding.verification.on_device import verify_on_device
from decoding.verification.sample_match import verify_tree
from decoding.verification.token_level import TargetRows, Verdict, verify
from decoding.verification.traversal import verify_traversal
from decoding.verification.tree import TreeRows, TreeVerdict
from decoding.warped_rows import WarpedRows

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Judged:
    """The drafted tokens that stand, in order, and the model's own token after them.

    at: when the target had been run. path: of a tree, the nodes of those tokens; None for a line.
    places: where the target's pass has these nodes. branch, rule, on_device: as
    decoding.events.Step has them.
    """

    accepted: tuple[int, ...]
    next_token: int
    at: float
    path: tuple[int, ...] | None = None
    places: tuple[int, ...] = ()
    branch: int | None = None
    rule: Rule = Rule.NONE
    on_device: bool = False


def judge(
    context: Context, history: Sequence[int], draft: Draft, sampler: Sampler, clock: Clock
) -> Judged:
    """Run the target over the last token of history and a draft, which settle has to follow.

    Raises:
        ModelError: the engine failed.
    """
    if draft.parents is not None:
        return _judge_tree(context, history, draft, sampler, clock)
    lossy = sampler.settings.lossy_in_effect
    device = context.device_sampling if lossy is None else None
    warping = sampler.warping
    if device is not None and warping is not None and draft.distributions is None:
        on_device = True
        verdict = verify_on_device(device, warping, history[-1], draft, sampler.verification)
        at = clock()
    else:
        on_device = False
        draft = draft.brought_over()
        rows = context.forward([history[-1], *draft.tokens], 1 + len(draft))
        at = clock()
        _tell(draft, rows)
        if not draft.tokens:
            return Judged((), drawn(rows[0], sampler, history), at)
        laws = WarpedRows(rows, sampler, history, draft.tokens)
        verdict = verify_line(laws, draft, sampler.verification, lossy)
    return Judged(
        draft.tokens[: verdict.accepted],
        verdict.next_token,
        at,
        rule=rule_of(draft, lossy),
        on_device=on_device,
    )


def drawn(row: NDArray[np.float32], sampler: Sampler, history: Sequence[int]) -> int:
    """The model's own token after history: what every rule comes to where nothing was drafted."""
    law = sampler.distribution(row, history)
    if sampler.settings.temperature == 0.0:  # no number decides anything then, and each takes time
        return int(law.ids[0])
    return law.draw(uniform(sampler.verification))


def _judge_tree(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    """The last token is the root of all: node 0 of the pass, before those of the draft."""
    tokens, above, places = _as_passed(history[-1], draft)
    rows = context.forward_tree(tokens, above)
    at = clock()
    _tell(draft, rows, places)
    branches = Branches(rows, sampler, history, draft.tokens, places)
    verdict = _verify_branches(branches, draft, sampler.verification)
    accepted = tuple(draft.tokens[node] for node in verdict.path)
    kept = tuple(places[node] for node in verdict.path)
    return Judged(
        accepted, verdict.next_token, at, verdict.path, kept, verdict.longest, rule_of(draft)
    )


def _as_passed(last: int, draft: Draft) -> tuple[list[int], list[int], Sequence[int]]:
    """Tokens and parents of a pass over a tree below its root, and where it has each node.

    Children drawn alike are nodes of their own, which the target need not run twice.
    """
    assert draft.parents is not None
    if draft.siblings is not Siblings.INDEPENDENT:
        above = [-1, *(1 + parent for parent in draft.parents)]
        return [last, *draft.tokens], above, range(1, 1 + len(draft))
    tree = TokenTree()
    root = tree.append(last, -1)
    places: list[int] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        places.append(tree.share(token, places[parent] if parent >= 0 else root))
    return tree.tokens, tree.parents, places


def rule_of(draft: Draft, lossy: LossyRule | None = None) -> Rule:
    """What decides what stands of a draft; lossy: the rule asked for, which judges lines alone.

    Tokens that were not drawn gain nothing as a block, and a seed gives the plain reply.
    """
    if not draft.drafted:
        return Rule.NONE
    if draft.parents is None and lossy is not None:
        return Rule.LOSSY
    match draft.siblings:
        case Siblings.INDEPENDENT:
            return Rule.MULTI_ROUND
        case Siblings.WITHOUT_REPLACEMENT:
            return Rule.TRAVERSAL
        case None:
            return Rule.BLOCK if draft.is_drawn else Rule.SAMPLE_MATCH


def verify_line(
    target: TargetRows,
    draft: Draft,
    generator: np.random.Generator,
    lossy: LossyRule | None = None,
) -> Verdict:
    """Judge a line where its target's rows are here."""
    match rule_of(draft, lossy):
        case Rule.LOSSY if lossy is not None:
            return verify_lossy(target, draft, lossy, generator)
        case Rule.BLOCK:
            return verify_block(target, draft, generator)
        case _:
            return verify(target, draft, generator)


def _verify_branches(target: TreeRows, draft: Draft, generator: np.random.Generator) -> TreeVerdict:
    match rule_of(draft):
        case Rule.MULTI_ROUND:
            return verify_multi_round(target, draft, generator)
        case Rule.TRAVERSAL:
            return verify_traversal(target, draft, generator)
        case _:
            return verify_tree(target, draft, generator)


def settle(context: Context, length: int, judged: Judged, accepted: int) -> None:
    """Let the context hold the length tokens of the history and the first accepted ones alone."""
    if judged.path is None:
        context.truncate(length + accepted)
    else:
        context.commit([0, *judged.places[:accepted]])


def fits(context: Context, length: int, draft: Draft) -> bool:
    """Whether a tree can be run after a history of length tokens; lines are kept to their room."""
    if draft.parents is None:
        return True
    if count_leaves(draft.parents) > context.max_branches:
        return False
    return len(draft) < min(context.n_chunk, context.max_logits, context.n_ctx - length + 1)


def _tell(draft: Draft, rows: Logits, places: Sequence[int] | None = None) -> None:
    if draft.listener is not None:
        likeliest = rows.argmax(axis=1)
        draft.listener(likeliest if places is None else likeliest[[0, *places]])


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """p_target in a tree, after a path of drafted nodes; places: the row of each."""

    rows: Logits
    sampler: Sampler
    history: Sequence[int]
    drafted: Sequence[int]
    places: Sequence[int]

    def __getitem__(self, path: Sequence[int]) -> Distribution:
        row = self.rows[self.places[path[-1]] if path else 0]
        return self.sampler.distribution(row, self.history, [self.drafted[node] for node in path])
