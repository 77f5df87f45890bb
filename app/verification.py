"""Is it lossless here? The checks behind `specchat verify`, finding by finding."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.prompts import built_in_prompts
from app.session import Session
from backends.chat_template import Message
from decoding.distribution_check import LENGTH, exact_law, p_value, replies
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits
from decoding.greedy_check import (
    Divergence,
    branch_difference,
    first_divergence,
    greedy_reply,
    kernel_difference,
)
from decoding.sampling import SamplingSettings

TOKENS = 64
REPLIES = 1500
_SECONDS = 90.0
"""How long replies are drawn on a slow machine; fewer of them see only coarser faults."""

FALSE_ALARM = 1e-4
_SETTINGS = SamplingSettings(1.0, top_k=4, top_p=0.97, min_p=0.02, repeat_penalty=1.2)
_PASS_TOKENS = 9
_OPENING = "My favourite season is the summer. Her favourite season is the"
"""It repeats itself, so that prompt lookup has something to propose."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the result; lossless is False where it is broken."""

    text: str
    lossless: bool = True


@dataclass(frozen=True, slots=True)
class Doing:
    """What is being checked, for a status line."""

    text: str


def verify_session(session: Session, drafter: Drafter) -> Iterator[Finding | Doing]:
    """Check a loaded pair, from rounding over greedy replies to the distribution."""
    rounding = _rounding(session)
    yield Finding(
        "Passes over several tokens give the same bits as over one."
        if rounding == 0.0
        else f"Passes over several tokens round otherwise than over one: logits move by up to "
        f"{rounding:.2g}, which can turn near-ties."
    )
    yield from _greedy(session, drafter, rounding)
    yield from _distribution(session, drafter)


def _rounding(session: Session) -> float:
    text = " ".join(prompt.text for prompt in built_in_prompts()[:4])
    tokens = session.model.tokenizer.encode(text, special=False)
    room = min(session.context.n_ctx, len(tokens), 64)
    most = min(_PASS_TOKENS, session.context.max_logits, room - 1)
    return kernel_difference(session.context, tokens[:room], most)


def _greedy(session: Session, drafter: Drafter, rounding: float) -> Iterator[Finding | Doing]:
    context = session.context
    limits = Limits(TOKENS, session.model.tokenizer.end_tokens)
    prompts = built_in_prompts()
    drafted_tokens = accepted_tokens = same = 0
    for number, prompt in enumerate(prompts, start=1):
        yield Doing(f"temperature 0: prompt {number} of {len(prompts)}")
        tokens = session.template.prompt([Message("user", prompt.text)]).tokens
        if len(tokens) + TOKENS >= context.n_ctx:
            yield Finding(f"Prompt {number} ({prompt.kind}) does not fit the context: left out.")
            continue
        plain = _tokens(greedy_reply(context, tokens, limits, None))
        steps = list(greedy_reply(context, tokens, limits, drafter))
        drafted = _tokens(steps)
        drafted_tokens += sum(step.drafted for step in steps)
        accepted_tokens += sum(step.accepted for step in steps)
        found = first_divergence(context, tokens, plain, drafted)
        if found is None:
            same += 1
        else:
            if any(step.branch is not None for step in steps):
                rounding = max(rounding, branch_difference(context, tokens))
            yield _blame(session, found, rounding, f"prompt {number} ({prompt.kind})")
    yield Finding(
        f"Temperature 0: {same} of {len(prompts)} replies of {TOKENS} tokens are the same drafted "
        f"and plain ({accepted_tokens:,} of {drafted_tokens:,} drafted tokens accepted)."
    )


def _tokens(steps: Iterable[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def _blame(session: Session, found: Divergence, rounding: float, where: str) -> Finding:
    """A difference that rounding explains is a near-tie; any other is a fault."""
    piece = session.model.tokenizer.piece
    ours, theirs = (piece(token).decode(errors="replace") for token in (found.plain, found.drafted))
    text = (
        f"Temperature 0, {where}: token {found.position + 1} is {theirs!r} drafted and {ours!r} "
        f"plain, {found.margin:.2g} logits apart"
    )
    # Both logits may have moved, each by as much as was measured.
    if abs(found.margin) <= 2 * rounding:
        return Finding(f"{text}: a near-tie that rounding turned.")
    return Finding(f"{text}: more than rounding explains.", lossless=False)


def _distribution(session: Session, drafter: Drafter) -> Iterator[Finding | Doing]:
    context = session.context
    prompt = session.raw_prompt(_OPENING).tokens
    yield Doing("temperature 1: the model's own distribution")
    law = exact_law(context, prompt, _SETTINGS)
    drawn: Counter[tuple[int, ...]] = Counter()
    started = time.perf_counter()
    drafted_tokens = 0
    found = replies(context, prompt, _SETTINGS, drafter, REPLIES)
    for number, (outcome, drafted) in enumerate(found):
        drawn[outcome] += 1
        drafted_tokens += drafted
        if number % 10 == 0:
            yield Doing(f"temperature 1: reply {number} of {REPLIES}")
        if time.perf_counter() - started > _SECONDS:
            break
    chance = p_value(law, drawn)
    lossless = chance >= FALSE_ALARM
    verdict = "as the model alone gives them" if lossless else "not what the model alone gives"
    yield Finding(
        f"Temperature 1: the first {LENGTH} tokens of {drawn.total():,} replies, with "
        f"{drafted_tokens:,} drafted, are {verdict} (chi-square p = {chance:.2g}; a correct engine "
        f"fails below {FALSE_ALARM:g} once in {1 / FALSE_ALARM:,.0f} times).",
        lossless,
    )
