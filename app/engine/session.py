"""A loaded model with its context and drafters, which answers one prompt after another."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from app.answering import AnsweringMark
from app.chat.conversation import Infill
from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.drafting.reply_drafters import DocumentDrafts, ReplyDrafters, drafters_of
from app.engine.reply import Reply, Request
from app.engine.session_drafters import Drafting, build
from app.engine.weight_budget import WeightBudget
from app.learned.speeds import ENOUGH_PLAIN_STEPS, PlainReplies, PlainReply
from app.loading.select import fetch_model, remember_model
from app.loading.session_options import SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from app.structured_output import ReplyConstraints
from backends.base import (
    Context,
    ContextFacts,
    Model,
    ModelInfo,
    PromptTooLargeError,
    PromptTooLongError,
    UsageError,
)
from backends.chat.chat_template import ChatTemplate, Prompt, with_bos
from backends.chat.message import whole_characters
from backends.chat.reply_form import ChannelSpeller, ThinkingSpeller
from backends.engines.backend_selection import forms
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.nvidia import Energy, EnergyMeter
from backends.streaming.mapped_file import DiskSpeed
from decoding.constraint.constraint import Constraint, ThinkingBudget
from decoding.events import Event, Finish, Prefill, Step, TokenLogprob
from decoding.generation import Limits, generate
from decoding.planning.controller import Controller
from decoding.text import TextStream, spelling
from models.reference import HubReference, Reference

_MOST_PER_TOKEN = 16
"""Characters for each token of the context that are still turned into tokens; a guess, not
measured. Prose has 4 or 5; only long runs of spaces could have as many and fit after all."""


@dataclass(slots=True)
class Session:
    """A loaded model with its context and drafters. One thread at a time may use it."""

    paths: Paths
    reference: Reference
    model: Model
    context: TargetContext
    template: ChatTemplate
    drafting: Drafting
    bandwidth: Bandwidth | None
    meter: EnergyMeter | None
    notes: tuple[str, ...]
    """Reductions made to fit the model into memory, and models that could not be run."""
    options: SessionOptions
    room: int | None
    """Bytes of memory for drafters, None if unknown."""
    budget: WeightBudget | None = None
    """Memory of the weights and the drafters, of a model that streams."""
    resources: ExitStack = field(default_factory=ExitStack)
    """Frees the model and ends the template's process."""
    load_seconds: float = 0.0
    sequences: int = 1
    """As many contexts' cells the context has."""
    disk: DiskSpeed | None = None
    """Of the file of a model that streams, if it was measured."""
    plain_replies: PlainReplies = field(default_factory=lambda: PlainReplies(None))
    """Speeds of this model's plain replies."""
    documents: DocumentDrafts = field(init=False)
    """Of the chat of the latest request."""
    _chat: int | None = field(default=None, init=False)
    reply_constraints: ReplyConstraints | None = field(default=None, init=False)
    """Built for the first reply that must match a grammar."""
    _mark: AnsweringMark = field(init=False)

    def __post_init__(self) -> None:
        self.documents = DocumentDrafts(self.model.tokenizer)
        self._mark = AnsweringMark(self.paths.answering)

    def environment(self, notify: Callable[[str], None]) -> DrafterEnvironment:
        """For building further drafters; missing ones are downloaded. notify: of each phase."""

        def get(reference: Reference | HubReference) -> Reference:
            return fetch_model(reference, self.paths, notify, offline=self.options.offline)

        return DrafterEnvironment(
            target=self.model,
            context=self.context,
            paths=self.paths,
            threads=self.options.threads,
            gpu_layers=self.options.local_layers,
            notify=notify,
            room=self.room,
            sequences=self.sequences,
            obtain=get,
            backend=self.options.backend,
        )

    def spec(self, requested: str) -> draft_spec.DraftSpec:
        """Parse a --draft SPEC for this model.

        Raises:
            UsageError: it cannot be parsed, or does not fit the model.
        """
        spec = draft_spec.parse(requested, self.paths, self.reference, forms(self.options.backend))
        spec.check(self.reference.name, self.model.info.n_layers, self.model.info.active_experts)
        return spec

    def redraft(self, requested: str, notify: Callable[[str], None]) -> None:
        """Replace the drafters; the current reply uses the new ones from its next step.

        If this raises, the present drafters are kept.

        Raises:
            ContextInUseError: a reply uses the context, which has to be opened anew first, or there
                is not enough memory for a second one to measure them in.
            UsageError: the spec cannot be parsed, or does not fit the model.
        """
        spec = self.spec(requested)
        if spec.nodes:
            self.context.be_ready_to_draft()
        self.drafting.remember()
        self.drafting.save()  # the new ones read it
        environment = self.environment(notify)
        if self.budget is None:
            drafting = build(spec, environment)
        else:
            drafting = self.budget.build(spec, environment, self.drafting)
        self.drafting.close()
        self.drafting = drafting
        if self.budget is not None:
            self.budget.settle(drafting, self.model)
            self.plain_replies = PlainReplies.of(self.model.info, self.paths)
        self.plain_replies = self.plain_replies.with_measured(drafting.plain_rate or 0.0)
        drafting.leave_out(self._chat)

    def answer_in(self, chat: int | None) -> None:
        """Set the chat of the next replies by its number in the history, None if not saved."""
        self._chat = chat
        self.drafting.leave_out(chat)

    def beside(self, context: Context, drafting: Mapping[Context, Context]) -> "Session":
        """This session for one reply in another sequence; drafting: as of Drafting.beside."""
        other = replace(
            self,
            context=TargetContext(self.model, context),
            drafting=self.drafting.beside(drafting),
            meter=None,
            budget=None,
            resources=ExitStack(),
        )
        other.reply_constraints = self.reply_constraints
        return other

    def prompt(self, request: Request) -> tuple[Prompt, int]:
        """The prompt of a request, and how many of its oldest turns were left out.

        Raises:
            PromptTooLargeError: it is far too long, so that its tokens were not even counted.
            PromptTooLongError: it leaves no room for an answer, also without the oldest turns where
                these may be left out.
            UsageError: the model was not trained to fill gaps, or there is nothing to continue.
        """
        size, n_ctx, text = request.least_size, self.context.facts.n_ctx, request.text
        if size > _MOST_PER_TOKEN * n_ctx:  # else others would wait for seconds while it is read
            raise PromptTooLargeError(size, n_ctx)
        if text is None:
            template = self.template.thinking(request.conversation.think)
            rendered = partial(template.urgent_prompt, tools=request.tools)
            if request.may_drop:
                prompt, dropped = request.conversation.fit(rendered, n_ctx)
                return self._continued(prompt, request), dropped
            prompt = self._continued(rendered(request.conversation.messages()), request)
        elif isinstance(text, Infill):
            prompt = self._infill_prompt(text)
        else:
            prompt = self.template.raw(text)
        if len(prompt.tokens) >= n_ctx:
            raise PromptTooLongError(len(prompt.tokens), n_ctx)
        return prompt, 0

    def _continued(self, prompt: Prompt, request: Request) -> Prompt:
        """A prompt with the beginning of its answer: its own tokens, if they spell it here."""
        tokens, text = request.begun, request.partial
        if not (tokens or text):
            return prompt
        known = spelling(self.model.tokenizer, tokens, text, self.speller(prompt))
        more = known or self.template.spoken(text, prompt.form)
        return replace(prompt, tokens=[*prompt.tokens, *more], begun=len(more))

    def _infill_prompt(self, gap: Infill) -> Prompt:
        """The prompt of a gap between two texts, of which the reply is the filling."""
        tokenizer = self.model.tokenizer
        marks = tokenizer.infill
        if marks is None:
            raise UsageError(
                "this model cannot fill in the middle",
                "it lacks the tokens for it, which code models have",
            )
        ahead, behind = (
            tokenizer.encode(whole_characters(text), special=False)
            for text in (gap.before, gap.after)
        )
        tokens = [marks.prefix, *ahead, marks.suffix, *behind, marks.middle]
        return Prompt(with_bos(tokens, tokenizer), is_conversation=False)

    def speller(self, prompt: Prompt) -> Callable[[int], bytes | None] | None:
        """What spells the reply to a prompt where its tokens' pieces do not."""
        if not prompt.is_conversation:
            return None
        if prompt.form.channels:
            return ChannelSpeller(self.model.tokenizer)
        speller = ThinkingSpeller(self.model.tokenizer)
        return speller if speller.told else None

    def constraint(self, prompt: Prompt, request: Request) -> Constraint | None:
        """What limits the tokens of a reply, None if nothing does.

        Raises:
            UsageError: a setting names a token that the model does not have, or the grammar cannot
                be used.
        """
        request.settings.check_vocabulary(self.model.info.n_vocab)
        options = request.options
        if options.think_budget >= min(request.max_tokens, self.context.facts.n_ctx):
            options = replace(options, think_budget=0)  # nothing can exceed it
        if options.grammar is None and not options.think_budget:
            return None
        self.reply_constraints = self.reply_constraints or ReplyConstraints(self.model.tokenizer)
        return self.reply_constraints.of(options, prompt)

    def check(self, prompt: Prompt, request: Request, *, is_quick: bool) -> None:
        if not is_quick or request.options.grammar is None or self.has_grammar_vocabulary:
            self.constraint(prompt, request)

    def stream(
        self, prompt: Prompt, reply: Reply, is_cancelled: Callable[[], bool]
    ) -> Generator[Event, None, None]:
        """Fill a reply, whose prompt this is; yields each event once the reply has taken it in.

        Raises:
            PromptTooLongError: the prompt leaves no room for an answer.
            UsageError: the grammar of the options cannot be used, or a setting names a token that
                the model does not have.
            ModelError: the engine failed; reply holds what was generated before.
        """
        request, tokenizer, n_ctx = reply.request, self.model.tokenizer, self.context.facts.n_ctx
        options = request.options
        constraint = self.constraint(prompt, request)
        told = (turn.content for turn in request.conversation.turns if turn.role != "assistant")
        documents = self.documents if self.documents.follow(request.documents, told) else None
        own = ReplyDrafters(drafters_of(options, tokenizer, prompt, n_ctx, documents))
        text = TextStream(
            tokenizer,
            (*prompt.stops, *options.stops),
            begun=prompt.tokens[len(prompt.tokens) - prompt.begun :],
            spell=self.speller(prompt),
            shows_control=options.shows_control,
            calls=prompt.form.call_marks,
        )
        reply.begun, reply.token_ends, reply.own_drafters = text.begun, text.ends, own.names
        energy = Energy(self.meter)
        self._mark.touch()
        try:
            with self.context.use() as context:
                for event in generate(
                    context,
                    prompt.tokens,
                    request.settings,
                    Limits(request.max_tokens, tokenizer.end_tokens, text),
                    drafters=partial(self._drafter, own),
                    is_cancelled=is_cancelled,
                    top_logprobs=options.top_logprobs,
                    constraint=constraint,
                    begun=prompt.begun,
                ):
                    if isinstance(event, Finish):
                        text.finish()
                        reply.joules = energy.joules
                    self._mark.touch()
                    self._take_in(event, reply, text)
                    if isinstance(constraint, ThinkingBudget) and constraint.has_ended_it:
                        reply.thinking_ended_at = constraint.budget
                    yield event
                    if isinstance(event, Prefill):
                        energy.start()
                    elif documents is not None and isinstance(event, Step):
                        documents.begin()
        finally:
            reply.own_statuses = own.end(self.drafting.memory)
            self.template.get_ready()
            self.drafting.remember()
            self._keep_speed(reply)
            is_named = self.options.model and not (request.model or self.model.info.host)
            if is_named and reply.token_ids:
                remember_model(self.reference, self.paths)

    def _take_in(self, event: Event, reply: Reply, text: TextStream) -> None:
        """Add an event to a reply; its text comes last: whoever reads it knows whose it is."""
        reply.statistics.add(event)
        if isinstance(event, Step):
            if event.logprobs:
                reply.token_bytes |= self._bytes_of(event.logprobs)
                reply.logprobs += event.logprobs
            reply.token_ids += event.tokens
            reply.provenance += event.provenance
        elif isinstance(event, Finish):
            reply.finish_reason, reply.stop_text = event.reason, text.stop_text
        reply.text = text.text

    @property
    def has_grammar_vocabulary(self) -> bool:
        """Whether the vocabulary was read for grammars, which takes up to a second."""
        return self.reply_constraints is not None and self.reply_constraints.is_ready

    def _drafter(self, own: ReplyDrafters) -> Controller | None:
        """The drafter of the next step; models that are not worth their memory are freed first.

        own: drafters of the reply alone.
        """
        if self.budget is not None:
            drafting = self.budget.reconsidered(self.drafting, self.model)
            if drafting is not self.drafting:
                self.drafting = drafting
                self.plain_replies = PlainReplies.of(self.model.info, self.paths)
        drafting = self.drafting
        controller = drafting.controller or (drafting.reserve if own.names else None)
        return own.join(controller, drafting.memory)

    def _bytes_of(self, told: Iterable[TokenLogprob]) -> dict[int, bytes]:
        """What tokens stand for: those of some log probabilities, and the alternatives to them."""
        tokens = {token for one in told for token in (one.token, *(other for other, _ in one.top))}
        return {token: self.model.tokenizer.entry(token) for token in tokens}

    def _keep_speed(self, reply: Reply) -> None:
        """Keep the speed of a reply's plain steps: it tells how much speeds vary here."""
        steps = reply.statistics.plain_steps
        count = bytes_per_token(self.model.info, self.context.facts)
        if steps.count >= ENOUGH_PLAIN_STEPS and steps.noise is not None and not reply.is_shared:
            plain = PlainReply(steps.count / steps.total, count, steps.noise)
            self.plain_replies = self.plain_replies.with_reply(plain)

    @property
    def shortage(self) -> str:
        return self.model.shortage

    def count(self, text: str) -> int:
        return len(self.model.tokenizer.encode(text, special=False))

    def close(self) -> None:
        self.drafting.close()
        self.resources.close()


def bytes_per_token(info: ModelInfo, context: ContextFacts) -> int:
    """Bytes that one plain step reads: weights, and the key-value cache as long as it is now."""
    return info.bytes_read_per_token + context.length * context.kv_bytes_per_token
