"""The checks behind `specchat verify`, which report finding by finding."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from app.builtin_prompts import BuiltInPrompt, built_in_prompts
from app.engine.session import Session
from app.wording import counted
from backends.base import Context, UsageError
from backends.chat.message import Message
from decoding.checks.distribution_check import (
    LENGTH,
    Divergence,
    Outcome,
    ReplyDistribution,
    branch_difference,
    compared,
    distance,
    divergences,
    exact_distribution,
    greedy_reply,
    kernel_difference,
    p_value,
    plain_distances,
    reply,
)
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.cross_vocabulary.shared_tokens import AcrossVocabularies
from decoding.drafters.draft_model import BlockDraft, DraftModel
from decoding.drafters.lookahead import Lookahead
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths, TreeByTemperature
from decoding.drafters.trees import DynamicTree
from decoding.events import Rule, Shape, Step
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.turns import TakingTurns
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import LossyRule, SamplingSettings

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


def tallied(steps: Iterable[Step]) -> Counter[Form]:
    """Number of tokens drafted in each form."""
    tokens: Counter[Form] = Counter()
    for step in steps:
        if step.drafted:
            tokens[Form(step.drafter, step.shape, step.rule, step.on_device)] += step.drafted
    return tokens


def possible(
    controller: Controller, context: Context, settings: SamplingSettings
) -> Iterator[Form]:
    """Forms that the drafts of each drafter can have with these settings."""
    on_device = context.device_sampling is not None and Sampler(settings).warping is not None
    for member in controller.drafters:
        yield _of(member.drafter, on_device, is_greedy=settings.temperature == 0.0)


def _of(drafter: Drafter, on_device: bool, *, is_greedy: bool) -> Form:
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
        case AcrossVocabularies() | Cascade() | BlockDraft():
            return Form(name, Shape.LINE, Rule.BLOCK)
        case _:
            return Form(name, Shape.LINE, Rule.SAMPLE_MATCH, on_device)


TOKENS = 64
REPLIES = 1500
"""Sampled replies with each settings."""

_SECONDS = 90.0
"""Time limit for sampled replies in all, on a slow machine: fewer detect only coarser faults."""

_QUICK_SECONDS = 20.0

FALSE_ALARM = 1e-4
_GREEDY = SamplingSettings(temperature=0.0)
_WARPED = SamplingSettings(1.0, top_k=2, top_p=0.97, min_p=0.02)
"""With two tokens to choose from, replies are long beside the number of different ones."""

_PENALISED = replace(_WARPED, repeat_penalty=1.2)
"""With a penalty, rows are copied from a device, which otherwise verifies by itself."""

_PASS_TOKENS = 16
"""The longest pass tried for rounding."""

_OPENING = "My favourite season is the summer. Her favourite season is the"
_BEFORE, _END = 16, 8
"""Replies put into the prompt, each followed by the last tokens of the opening.

So prompt lookup has a proposal for either first token of a reply.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the result; lossless: False if it reports a violation."""

    text: str
    lossless: bool = True


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation between lossy replies and the model's distribution, from 0 to 1.

    plain_mean, plain_most: that of as many plain replies, on average, and exceeded by chance once
    in 10,000 times.
    """

    measured: float
    plain_mean: float
    plain_most: float


@dataclass(frozen=True, slots=True)
class _Tested:
    """A loaded pair, with the session's context and a controller that ignores costs.

    seconds: limit of all sampled replies. is_stopped: whether the user wants the result so far.
    """

    session: Session
    context: Context
    controller: TakingTurns
    prompts: Sequence[BuiltInPrompt]
    seconds: float
    is_stopped: Callable[[], bool]


def expected_seconds(session: Session, *, is_quick: bool) -> float | None:
    """About how long the check takes at most; None if it is not known how fast the model is."""
    rate = session.plain_replies.rate or session.drafting.plain_rate
    prompts, seconds = _extent(is_quick=is_quick)
    return 2 * len(prompts) * TOKENS / rate + seconds if rate else None


def _extent(*, is_quick: bool) -> tuple[Sequence[BuiltInPrompt], float]:
    """The prompts of the greedy replies, and the time for sampled ones."""
    prompts = built_in_prompts()
    return (prompts[::4], _QUICK_SECONDS) if is_quick else (prompts, _SECONDS)


def verify_session(
    session: Session,
    controller: Controller,
    rule: LossyRule | None = None,
    *,
    is_quick: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Finding | Distance | str]:
    """Check a loaded pair, from rounding over greedy replies to the distribution.

    A text that is yielded tells what is done next.

    The controller's drafters draft at every step, in turns, at any cost. rule: a lossy rule, whose
    distance from the model's distribution is measured; it has no effect at temperature 0.
    is_stopped: asked again and again; once it holds, what was found so far is all.

    Raises:
        UsageError: the model is on another machine.
    """
    if host := session.model.info.host:
        why = f"its logits, which the check compares with, stay on {host}"
        raise UsageError("this model cannot be checked from here", why, "Run the check there.")
    extent = _extent(is_quick=is_quick)
    with session.context.use() as context:
        pair = _Tested(session, context, TakingTurns(controller), *extent, is_stopped)
        yield from _findings(pair, rule)


def _findings(pair: _Tested, rule: LossyRule | None) -> Iterator[Finding | Distance | str]:
    rounding = _rounding(pair.session, pair.context)
    yield Finding(
        "Passes over several tokens give the same bits as over one."
        if rounding == 0.0
        else f"Passes over several tokens round differently than over one: logits move by up to "
        f"{rounding:.2g}, which can decide near-ties."
    )
    yield from _greedy(pair, rounding)
    if rule is None:
        for settings in (_WARPED, _PENALISED):
            if not pair.is_stopped():
                yield from _distribution(pair, settings, rounding)
    elif not pair.is_stopped():
        yield from _distance(pair, rule, rounding)
    for member in pair.controller.drafters:
        if member.dropped:
            yield Finding(f"{member.name} stopped drafting: {member.dropped}.")


def _rounding(session: Session, context: Context) -> float:
    text = " ".join(prompt.text for prompt in built_in_prompts()[:4])
    tokens = session.model.tokenizer.encode(text, special=False)
    room = min(context.n_ctx, len(tokens), 64)
    most = min(_PASS_TOKENS, context.max_logits, room - 1)
    return kernel_difference(context, tokens[:room], most)


def _greedy(pair: _Tested, rounding: float) -> Iterator[Finding | str]:
    session, context = pair.session, pair.context
    limits = Limits(TOKENS, session.model.tokenizer.end_tokens)
    every: list[Step] = []
    replies = different = 0
    for number, prompt in enumerate(pair.prompts, start=1):
        if pair.is_stopped():
            break
        yield f"temperature 0: prompt {number} of {len(pair.prompts)}"
        tokens = session.template.prompt([Message("user", prompt.text)]).tokens
        if len(tokens) + TOKENS >= context.n_ctx:
            yield Finding(f"Prompt {number} ({prompt.kind}) does not fit the context: left out.")
            continue
        replies += 1
        steps = list(greedy_reply(context, tokens, limits, pair.controller))
        every += steps
        output = [token for step in steps for token in step.tokens]
        diverging = list(divergences(context, tokens, output))
        different += len(diverging)
        if diverging and any(step.branch is not None for step in steps):
            rounding = max(rounding, branch_difference(context, tokens))
        for divergence in diverging:
            yield _blame(session, divergence, rounding, f"prompt {number} ({prompt.kind})")
    yield Finding(_agreement(every, replies, different))
    yield from _coverage(pair, _GREEDY, tallied(every))


def _agreement(steps: Sequence[Step], replies: int, different: int) -> str:
    """Summary of the greedy replies: tokens that equal plain decoding's, drafted and accepted."""
    count = sum(len(step.tokens) for step in steps)
    drafted, accepted = sum(step.drafted for step in steps), sum(step.accepted for step in steps)
    trees = sum(step.shape is Shape.TREE for step in steps)
    return (
        f"Temperature 0: {count - different:,} of {count:,} tokens in "
        f"{counted(replies, 'answer')} are plain decoding's after the same text ({drafted:,} "
        f"drafted in {counted(trees, 'tree')} and "
        f"{counted(len(steps) - replies - trees, 'other step')}, {accepted:,} accepted)."
    )


def _coverage(pair: _Tested, settings: SamplingSettings, forms: Counter[Form]) -> Iterator[Finding]:
    """Tokens drafted in each form, and the forms that were expected but did not occur."""
    where = _where(settings)
    drafted = ", ".join(f"{count:,} in {form}" for form, count in forms.most_common())
    yield Finding(f"{where}, tokens drafted: {drafted or 'none'}.")
    expected = possible(pair.controller, pair.context, settings)
    missing = [str(form) for form in expected if not forms[form]]
    if missing and settings.lossy is None:
        yield Finding(f"{where}, not tested, as none occurred: {', '.join(missing)}.")


def _where(settings: SamplingSettings) -> str:
    penalty = " with a repeat penalty" if settings.repeat_penalty != 1.0 else ""
    return f"Temperature {settings.temperature:g}{penalty}"


def _blame(session: Session, divergence: Divergence, rounding: float, where: str) -> Finding:
    """Report a divergence: a near-tie if rounding explains it, a fault otherwise."""
    plain, drafted = (
        session.model.tokenizer.piece(token).decode(errors="replace")
        for token in (divergence.plain, divergence.drafted)
    )
    margin = divergence.margin
    text = (
        f"Temperature 0, {where}: token {divergence.position + 1} is {drafted!r} drafted and "
        f"{plain!r} plain, {margin:.2g} logits apart (rounding moved logits by up to "
        f"{rounding:.2g})"
    )
    # Both logits may have moved, each by as much as was measured.
    if margin <= 2 * rounding:
        return Finding(f"{text}: a near-tie decided by rounding.")
    return Finding(f"{text}: more than rounding explains.", lossless=False)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Replies by the turn they began with, the forms of their drafts, and what is expected."""

    exact: ReplyDistribution
    replies: list[Counter[Outcome]]
    forms: Counter[Form] = field(default_factory=Counter[Form])

    @property
    def every(self) -> Counter[Outcome]:
        return sum(self.replies, Counter[Outcome]())

    @property
    def words(self) -> str:
        return (
            f"the first {LENGTH} tokens of {self.every.total():,} answers, "
            f"with {self.forms.total():,} drafted,"
        )

    @property
    def cut_short(self) -> float:
        """Share of the replies that are compared up to a near-tie only."""
        return sum(chance for start, chance in self.exact.items() if len(start) < LENGTH)


def _draw(
    pair: _Tested, settings: SamplingSettings, seconds: float, rounding: float
) -> Generator[str, None, _Drawn]:
    context, turns, where = pair.context, pair.controller, _where(settings).lower()
    yield f"{where}: the model's own distribution"
    prompt = _repetitive_prompt(pair, settings)
    forms = possible(turns, context, settings)
    if any(form.shape is Shape.TREE for form in forms):
        rounding = max(rounding, branch_difference(context, prompt[-_PASS_TOKENS:]))
    exact = exact_distribution(context, prompt, settings, rounding=rounding)
    drawn = _Drawn(exact, [Counter() for _ in range(turns.period)])
    started = time.perf_counter()
    for number in range(REPLIES):
        if number % 10 == 0:
            yield f"{where}: answer {number} of {REPLIES}"
        turns.start(number)
        outcome, steps = reply(context, prompt, replace(settings, seed=number), turns)
        drawn.replies[number % turns.period][compared(exact, outcome)] += 1
        drawn.forms.update(tallied(steps))
        if pair.is_stopped() or time.perf_counter() - started > seconds:
            break
    return drawn


def _repetitive_prompt(pair: _Tested, settings: SamplingSettings) -> list[int]:
    """A prompt whose suffix occurs several times before, each time continued by the model."""
    prompt = list(pair.session.template.raw(_OPENING).tokens)
    end = prompt[-_END:]
    for seed in range(_BEFORE):
        continuation, _ = reply(pair.context, prompt, replace(settings, seed=seed), None)
        if len(prompt) + 2 * (len(continuation) + len(end)) > pair.context.n_ctx:
            break
        prompt += [*continuation, *end]
    return prompt


def _distribution(
    pair: _Tested, settings: SamplingSettings, rounding: float
) -> Iterator[Finding | str]:
    drawn = yield from _draw(pair, settings, pair.seconds / 2, rounding)
    chance = p_value(drawn.exact, *drawn.replies)
    lossless = chance >= FALSE_ALARM
    verdict = ("follow" if lossless else "do not follow") + " the model's own distribution"
    yield Finding(
        f"{_where(settings)}: {drawn.words} {verdict} (chi-square p = {chance:.2g}; a correct "
        f"engine fails below {FALSE_ALARM:g} once in {1 / FALSE_ALARM:,.0f} times).",
        lossless,
    )
    if drawn.cut_short > 0.0:
        yield Finding(
            f"{_where(settings)}: {drawn.cut_short:.0%} of these answers were compared only as far "
            "as rounding cannot decide which tokens are possible. The more, the less this shows."
        )
    yield from _coverage(pair, settings, drawn.forms)


def _distance(
    pair: _Tested, rule: LossyRule, rounding: float
) -> Iterator[Finding | Distance | str]:
    settings = replace(_PENALISED, lossy=rule)
    drawn = yield from _draw(pair, settings, pair.seconds, rounding)
    noise = plain_distances(drawn.exact, drawn.every.total())
    yield Finding(
        f"{_where(settings)}, {rule.words}: {drawn.words} were compared with the model's own "
        "distribution."
    )
    yield from _coverage(pair, settings, drawn.forms)
    yield Distance(
        distance(drawn.exact, drawn.every),
        plain_mean=float(noise.mean()),
        plain_most=float(noise[round((1.0 - FALSE_ALARM) * (len(noise) - 1))]),
    )
