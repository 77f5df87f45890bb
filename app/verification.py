"""Is it lossless here? The checks behind `specchat verify`, finding by finding."""

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from app.prompts import built_in_prompts
from app.session import Session
from backends.base import Context
from backends.chat_template import Message
from decoding.distribution_check import (
    LENGTH,
    Law,
    Outcome,
    distance,
    exact_law,
    p_value,
    plain_distances,
    replies,
)
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits
from decoding.greedy_check import (
    Divergence,
    branch_difference,
    divergences,
    greedy_reply,
    kernel_difference,
)
from decoding.lossy_rule import LossyRule
from decoding.sampling import SamplingSettings
from decoding.shape import Shape

TOKENS = 64
REPLIES = 1500
_SECONDS = 90.0
"""How long replies are drawn on a slow machine; fewer of them see only coarser faults."""

FALSE_ALARM = 1e-4
_SETTINGS = SamplingSettings(1.0, top_k=4, top_p=0.97, min_p=0.02, repeat_penalty=1.2)
_PASS_TOKENS = 16
"""The longest pass tried for rounding: over the tree of a few free drafters."""

_OPENING = "My favourite season is the summer. Her favourite season is the"
"""It repeats itself, so that prompt lookup has something to propose."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the result; lossless is False where it is broken."""

    text: str
    lossless: bool = True


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation between lossy replies and the model's distribution, from 0 to 1.

    plain_mean, plain_most: what as many plain replies have by chance, on average and at most but
    for one time in 10,000.
    """

    measured: float
    plain_mean: float
    plain_most: float

    @property
    def is_beyond_chance(self) -> bool:
        """Whether plain replies would hardly be so far off."""
        return self.measured > self.plain_most


@dataclass(frozen=True, slots=True)
class Doing:
    """What is being checked, for a status line."""

    text: str


def verify_session(
    session: Session, drafter: Drafter, rule: LossyRule | None = None
) -> Iterator[Finding | Doing | Distance]:
    """Check a loaded pair, from rounding over greedy replies to the distribution.

    rule: a lossy rule, whose distance from the model's distribution is measured. It changes nothing
    at temperature 0.
    """
    with session.context.use() as context:
        yield from _findings(session, context, drafter, rule)


def _findings(
    session: Session, context: Context, drafter: Drafter, rule: LossyRule | None
) -> Iterator[Finding | Doing | Distance]:
    rounding = _rounding(session, context)
    yield Finding(
        "Passes over several tokens give the same bits as over one."
        if rounding == 0.0
        else f"Passes over several tokens round otherwise than over one: logits move by up to "
        f"{rounding:.2g}, which can turn near-ties."
    )
    yield from _greedy(session, context, drafter, rounding)
    if rule is None:
        yield from _distribution(session, context, drafter)
    else:
        yield from _distance(session, context, drafter, rule)


def _rounding(session: Session, context: Context) -> float:
    text = " ".join(prompt.text for prompt in built_in_prompts()[:4])
    tokens = session.model.tokenizer.encode(text, special=False)
    room = min(context.n_ctx, len(tokens), 64)
    most = min(_PASS_TOKENS, context.max_logits, room - 1)
    return kernel_difference(context, tokens[:room], most)


def _greedy(
    session: Session, context: Context, drafter: Drafter, rounding: float
) -> Iterator[Finding | Doing]:
    limits = Limits(TOKENS, session.model.tokenizer.end_tokens)
    prompts = built_in_prompts()
    every: list[Step] = []
    replies = turned = 0
    for number, prompt in enumerate(prompts, start=1):
        yield Doing(f"temperature 0: prompt {number} of {len(prompts)}")
        tokens = session.template.prompt([Message("user", prompt.text)]).tokens
        if len(tokens) + TOKENS >= context.n_ctx:
            yield Finding(f"Prompt {number} ({prompt.kind}) does not fit the context: left out.")
            continue
        replies += 1
        steps = list(greedy_reply(context, tokens, limits, drafter))
        every += steps
        said = [token for step in steps for token in step.tokens]
        found = list(divergences(context, tokens, said))
        turned += len(found)
        if found and any(step.branch is not None for step in steps):
            rounding = max(rounding, branch_difference(context, tokens))
        for one in found:
            yield _blame(session, one, rounding, f"prompt {number} ({prompt.kind})")
    yield Finding(_agreement(every, replies, turned))


def _agreement(steps: Sequence[Step], replies: int, turned: int) -> str:
    """How many tokens of greedy replies are plain decoding's, and what was drafted for them."""
    said = sum(len(step.tokens) for step in steps)
    drafted, accepted = sum(step.drafted for step in steps), sum(step.accepted for step in steps)
    trees = sum(step.shape is Shape.TREE for step in steps)
    return (
        f"Temperature 0: {said - turned:,} of {said:,} tokens in {replies} replies are what plain "
        f"decoding says after the same text ({drafted:,} drafted in {trees:,} trees and "
        f"{len(steps) - replies - trees:,} other steps, {accepted:,} accepted)."
    )


def _blame(session: Session, found: Divergence, rounding: float, where: str) -> Finding:
    """A difference that rounding explains is a near-tie; any other is a fault."""
    piece = session.model.tokenizer.piece
    ours, theirs = (piece(token).decode(errors="replace") for token in (found.plain, found.drafted))
    text = (
        f"Temperature 0, {where}: token {found.position + 1} is {theirs!r} drafted and {ours!r} "
        f"plain, {found.margin:.2g} logits apart (rounding moved logits by up to {rounding:.2g})"
    )
    # Both logits may have moved, each by as much as was measured.
    if found.margin <= 2 * rounding:
        return Finding(f"{text}: a near-tie that rounding turned.")
    return Finding(f"{text}: more than rounding explains.", lossless=False)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Replies, how many tokens were drafted for them, and the law that the model gives them."""

    law: Law
    replies: Counter[Outcome]
    drafted: int


def _draw(
    session: Session,
    context: Context,
    drafter: Drafter,
    settings: SamplingSettings,
    length: int = LENGTH,
) -> Generator[Doing, None, _Drawn]:
    prompt = session.raw_prompt(_OPENING).tokens
    yield Doing("temperature 1: the model's own distribution")
    law = exact_law(context, prompt, settings, length)
    drawn: Counter[Outcome] = Counter()
    started = time.perf_counter()
    drafted_tokens = 0
    found = replies(context, prompt, settings, drafter, REPLIES)
    for number, (outcome, drafted) in enumerate(found):
        drawn[outcome[:length]] += 1
        drafted_tokens += drafted
        if number % 10 == 0:
            yield Doing(f"temperature 1: reply {number} of {REPLIES}")
        if time.perf_counter() - started > _SECONDS:
            break
    return _Drawn(law, drawn, drafted_tokens)


def _distribution(
    session: Session, context: Context, drafter: Drafter
) -> Iterator[Finding | Doing]:
    drawn = yield from _draw(session, context, drafter, _SETTINGS)
    chance = p_value(drawn.law, drawn.replies)
    lossless = chance >= FALSE_ALARM
    verdict = "as the model alone gives them" if lossless else "not what the model alone gives"
    yield Finding(
        f"Temperature 1: the first {LENGTH} tokens of {drawn.replies.total():,} replies, with "
        f"{drawn.drafted:,} drafted, are {verdict} (chi-square p = {chance:.2g}; a correct engine "
        f"fails below {FALSE_ALARM:g} once in {1 / FALSE_ALARM:,.0f} times).",
        lossless,
    )


def _distance(
    session: Session, context: Context, drafter: Drafter, rule: LossyRule
) -> Iterator[Finding | Doing | Distance]:
    drawn = yield from _draw(session, context, drafter, replace(_SETTINGS, lossy=rule), LENGTH)
    count = drawn.replies.total()
    noise = plain_distances(drawn.law, count)
    yield Finding(
        f"Temperature 1, {rule.words}: the first {LENGTH} tokens of {count:,} replies, with "
        f"{drawn.drafted:,} drafted, were compared with what the model alone gives."
    )
    yield Distance(
        distance(drawn.law, drawn.replies),
        plain_mean=float(noise.mean()),
        plain_most=float(noise[round((1.0 - FALSE_ALARM) * (len(noise) - 1))]),
    )
