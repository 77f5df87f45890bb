"""The decoding loop: draft, verify in one target pass, emit, roll back rejected tokens."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace

from backends.base import (
    Context,
    Logits,
    ModelError,
    PassStoppedError,
    PromptTooLongError,
    UsageError,
)
from backends.base.images import IMAGE_TOKENS, blind
from backends.base.model import pass_is_stopped, stopping_passes
from decoding.constraint.constraint import Constraint
from decoding.draft import NO_DRAFT, Draft, Drafter
from decoding.events import Event, Finish, FinishReason, Prefill, Step
from decoding.joined_pass import admitted
from decoding.prefill import prefill, read_prompt, reuse
from decoding.sampling.sampler import Sampler, logprobs
from decoding.sampling.settings import SamplingSettings
from decoding.text import TextStream
from decoding.verification.target_pass import drawn, fits, judge, keeps_rows, settle

DrafterProvider = Callable[[], Drafter | None]
"""Returns the drafter of the next step, None to decode plainly."""


def always(drafter: Drafter | None) -> DrafterProvider:
    return lambda: drafter


class CurrentDrafter:
    """Asks a provider once per step; a drafter that takes over begins and reads first."""

    def __init__(self, provider: DrafterProvider, sampler: Sampler) -> None:
        self._provider = provider
        self._sampler = sampler
        self._drafter: Drafter | None = None

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Begin a reply to history and read it; yields tokens held after each chunk.

        The provider is asked after each too: a drafter whose place is taken meanwhile is closed,
        and must not go on.
        """
        while (drafter := self._provider()) is not None:
            self._drafter = drafter
            drafter.begin(history, self._sampler)
            for held in drafter.read(history):
                yield held
                if self._provider() is not drafter:
                    break
            else:
                return
        self._drafter = None

    def commit(self, history: Sequence[int]) -> Drafter | None:
        """The drafter of the next step, after it has taken in history; None to decode plainly.

        Raises:
            PassStoppedError: the reply was stopped while a drafter that takes over was reading.
        """
        drafter, previous = self._provider(), self._drafter
        self._drafter = drafter
        if drafter is not None:
            if drafter is not previous:
                drafter.begin(history, self._sampler)
                for _ in drafter.read(history):
                    if pass_is_stopped():
                        raise PassStoppedError
            drafter.commit(history)
        return drafter

    def observe(self, step: Step) -> None:
        if self._drafter is not None:
            self._drafter.observe(step)


@dataclass(frozen=True, slots=True)
class Limits:
    """Conditions that end a reply.

    text: grows with the tokens of the reply, which ends with the one that completes a stop text.
    """

    max_tokens: int
    end_tokens: frozenset[int]
    text: TextStream | None = None

    def is_over(self, token: int) -> bool:
        """Whether a token ended the reply, as the last one whose text was added."""
        return token in self.end_tokens or (self.text is not None and self.text.stopped)

    def up_to_end(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Those of a pass up to one that ends the reply, whatever was drafted; adds their text."""
        for count, token in enumerate(tokens, 1):
            if self.text is not None:
                self.text.feed(token)
            if self.is_over(token):
                return tokens[:count]
        return tokens


def generate(
    context: Context,
    prompt: Sequence[int],
    settings: SamplingSettings,
    limits: Limits,
    *,
    drafters: DrafterProvider = lambda: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    top_logprobs: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    constraint: Constraint | None = None,
    begun: int = 0,
) -> Iterator[Event]:
    """Generate a reply to prompt; the part that the context holds already is not computed again.

    Yields Prefill after each chunk, one Step per target pass, a Finish last. The first step is the
    last chunk of the prompt and carries the first token; it drafts nothing.

    drafters: asked once per step. The drafter learns of each step before it is yielded.
    constraint: which tokens may follow, None if all may; it advances with the emitted ones.
    begun: tokens at the end of the prompt that belong to the reply, which the constraint accepted.
    top_logprobs: of how many of the likeliest tokens each step tells the log probability, beside
    those of its own tokens; None for no log probabilities.

    Raises:
        PromptTooLongError: the prompt leaves no room for an answer.
        UsageError: the model is elsewhere, and logits are needed here.
        ModelError: the engine failed, or the constraint leaves the model nothing to say; all events
            before remain valid.
    """
    if len(prompt) >= context.n_ctx:
        raise PromptTooLongError(len(prompt), context.n_ctx)
    assert constraint is None or constraint.length == begun
    sampler = Sampler(settings, len(prompt) - begun, constraint, begun)
    if keeps_rows(context) and (
        sampler.warping is None or settings.lossy_in_effect or top_logprobs is not None
    ):
        why = "a grammar, a thinking budget, log probabilities, a bias, penalties and --lossy do"
        raise UsageError("this needs the model's logits here", f"they stay with it; {why}")
    history = blind(prompt) if max(prompt) >= IMAGE_TOKENS else list(prompt)
    reply = _Reply(context, prompt, history, sampler, limits, is_cancelled, top_logprobs, clock)
    can_draft = context.max_rollback > 0
    with stopping_passes(is_cancelled):
        stopping = copy_context()
    with closing(reply.events(drafters if can_draft else always(None))) as events:
        while True:
            try:
                event = stopping.run(next, events)
            except StopIteration:
                return
            except PassStoppedError:
                event = Finish(FinishReason.CANCELLED)
            yield event


@dataclass(slots=True)
class _Reply:
    """A reply that is being generated.

    history: the prompt without its images, of which nobody but the context knows, and what was
    emitted.
    """

    context: Context
    prompt: Sequence[int]
    history: list[int]
    sampler: Sampler
    limits: Limits
    is_cancelled: Callable[[], bool]
    top_logprobs: int | None
    clock: Callable[[], float]

    def events(self, drafters: DrafterProvider) -> Generator[Event, None, None]:
        """Events of the reply; a pass that is stopped raises PassStoppedError."""
        drafter = CurrentDrafter(drafters, self.sampler)
        rows = yield from self._prefilled(drafter)
        if self.is_cancelled():
            yield Finish(FinishReason.CANCELLED)
        else:
            yield from self._steps(drafter, rows)

    def _prefilled(self, drafter: CurrentDrafter) -> Generator[Event, None, Logits | None]:
        """Read the prompt, the drafter too, until it is cancelled; returns the last logits.

        None where these stay with the model: the last token is then left to the first step.
        """
        started, history = self.clock(), self.history
        cached = reuse(self.context, self.prompt)
        done, rows, is_far = cached, None, keeps_rows(self.context)
        unread = prefill(self.context, self.prompt[:-1], 0) if is_far else None
        for done, given in unread or read_prompt(self.context, self.prompt):
            rows = None if is_far else given
            yield Prefill(done, len(history), cached, self.clock() - started)
            if self.is_cancelled():
                return rows
        assert is_far or rows is not None, "reuse leaves the last token to be computed"
        if is_far:
            yield Prefill(done, len(history), cached, self.clock() - started)
        for _ in drafter.read(history):
            yield Prefill(done, len(history), cached, self.clock() - started)
            if self.is_cancelled():
                break
        return rows

    def _steps(self, drafter: CurrentDrafter, rows: Logits | None) -> Iterator[Event]:
        context, history, limits = self.context, self.history, self.limits
        longest = min(context.n_chunk - 1, context.max_logits - 1, context.max_rollback)
        emitted = 0
        step = self._first_step(rows, drafter)
        while True:
            history.extend(step.tokens)
            emitted += len(step.tokens)
            drafter.observe(step)
            yield step
            if (reason := self._reason_to_end(emitted)) is not None:
                drafter.commit(history)  # so that learning drafters see the end of the reply
                self.sampler.follow(history)  # the last token may not be one that was allowed
                yield Finish(reason)
                return
            room = min(limits.max_tokens - emitted - 1, context.n_ctx - len(history), longest)
            step = self._step(drafter, room)

    def _reason_to_end(self, emitted: int) -> FinishReason | None:
        if self.limits.is_over(self.history[-1]):
            return FinishReason.STOP
        if emitted >= self.limits.max_tokens:
            return FinishReason.LENGTH
        if len(self.history) > self.context.n_ctx:
            return FinishReason.CONTEXT
        return FinishReason.CANCELLED if self.is_cancelled() else None

    def _first_step(self, rows: Logits | None, drafter: CurrentDrafter) -> Step:
        if rows is None:  # the last token of the prompt, which counts as reading
            step = self._step(drafter, 0)
            return replace(step, draft_seconds=0.0, verify_seconds=0.0, seconds=0.0)
        tokens = self.limits.up_to_end((drawn(rows[0], self.sampler, self.history),))
        told = logprobs(rows, (0,), tokens, self.top_logprobs)
        return Step(tokens, "", 0, 0, 0.0, 0.0, 0.0, self.clock(), logprobs=told)

    def _step(self, drafter: CurrentDrafter, room: int) -> Step:
        """One target pass over the last token and a draft of at most room tokens."""
        context, history, clock = self.context, self.history, self.clock
        started = clock()
        _check_context(context, history)
        draft = self._draft(drafter, room)
        drafted_at = clock()
        judged = judge(context, history, draft, self.sampler, clock, self.top_logprobs)
        tokens = self.limits.up_to_end((*judged.accepted, judged.next_token))
        accepted = min(len(judged.accepted), len(tokens))
        if len(draft) + draft.padding:
            settle(context, len(history), judged, accepted)
        ended = clock()
        return Step(
            tokens,
            draft.drafter,
            draft.drafted,
            accepted,
            drafted_at - started,
            judged.at - drafted_at,
            ended - started,
            ended,
            draft.form.window_tokens + draft.padding,
            judged.branch,
            draft.shape,
            draft.form.width,
            draft.empty_drafts,
            judged.rule,
            judged.on_device,
            judged.logprobs[: len(tokens)],
        )

    def _draft(self, drafter: CurrentDrafter, room: int) -> Draft:
        """The draft of a step, if it fits."""
        context, history = self.context, self.history
        current = drafter.commit(history)
        self.sampler.follow(history)
        if current is None or room <= 0:
            return NO_DRAFT
        draft = admitted(context, current.propose(history, room))
        if not fits(context, len(history), draft):  # how wide it is may tell what was drawn
            draft = replace(draft, padding=0)
        fitting = fits(context, len(history), draft)
        return draft if fitting else replace(NO_DRAFT, empty_drafts=draft.empty_drafts)


def _check_context(context: Context, history: Sequence[int]) -> None:
    """Check that the context holds the history; otherwise the answer would not be the model's.

    Raises:
        ModelError: the context was used elsewhere since the last step.
    """
    if context.length != len(history) - 1:
        raise ModelError(
            "the answer was stopped",
            f"the model's context holds {context.length:,} tokens, not the {len(history) - 1:,} "
            "of the answer",
            "The answer so far is kept. Continue it, and please report this.",
        )
