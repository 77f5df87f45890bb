"""A loaded model with its context and drafters, which answers one prompt after another."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial as partial_of

from app.chat.conversation import USUAL, Conversation, ReplyOptions
from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.drafting.reply_drafters import ReplyDrafters, drafters_of
from app.engine.reply import Reply
from app.engine.session_drafters import Drafting, build
from app.engine.weight_budget import WeightBudget
from app.learned.speeds import ENOUGH_PLAIN_STEPS, PlainReplies, PlainReply
from app.loading.select import fetch_model, remember_model
from app.loading.session_options import SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from app.structured_output import ReplyConstraints
from backends.base import ContextFacts, Model, ModelInfo, UsageError
from backends.chat.chat_template import ChatTemplate, Prompt, with_bos
from backends.chat.message import Tool, whole_characters
from backends.chat.reply_form import ChannelSpeller, ThinkingSpeller
from backends.engines.backend_selection import Form, forms
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.energy import Energy, EnergyMeter
from backends.streaming.disk_speed import DiskSpeed
from decoding.constraint.constraint import Constraint
from decoding.events import Event, Finish, Prefill, Step, TokenLogprob
from decoding.generation import Limits, generate
from decoding.planning.controller import Controller
from decoding.sampling.settings import SamplingSettings
from decoding.text import TextStream, spelling
from models.reference import HubReference, Reference


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
    disk: DiskSpeed | None = None
    """Of the file of a model that streams, if it was measured."""
    plain_replies: PlainReplies = field(default_factory=lambda: PlainReplies(None))
    """Speeds of this model's plain replies."""
    _chat: int | None = field(default=None, init=False)
    _constraints: ReplyConstraints | None = field(default=None, init=False)
    """Built for the first reply that must match a grammar."""

    def environment(self, notify: Callable[[str], None]) -> DrafterEnvironment:
        """For building further drafters; missing ones are downloaded. notify: of each phase."""

        def get(reference: Reference | HubReference) -> Reference:
            return fetch_model(reference, self.paths, notify, offline=self.options.offline)

        return DrafterEnvironment(
            target=self.model,
            context=self.context,
            paths=self.paths,
            threads=self.options.threads,
            gpu_layers=self.options.gpu_layers,
            notify=notify,
            room=self.room,
            obtain=get,
            backend=self.options.backend,
        )

    @property
    def forms(self) -> tuple[Form, ...]:
        """Accepted file formats of further models, preferred ones first."""
        return forms(self.options.backend)

    def spec(self, requested: str) -> draft_spec.DraftSpec:
        """Parse a --draft SPEC for this model.

        Raises:
            UsageError: it cannot be parsed, or does not fit the model.
        """
        spec = draft_spec.parse(requested, self.paths, self.reference, self.forms)
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
        if self.drafting.controller is not None:
            self.drafting.controller.rest()  # what is measured has the machine to itself
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
        drafting.leave_out(self._chat)

    def answer_in(self, chat: int | None) -> None:
        """Set the chat of the next replies by its number in the history, None if not saved."""
        self._chat = chat
        self.drafting.leave_out(chat)

    def prompt(
        self, conversation: Conversation, tools: Sequence[Tool] = (), *, may_drop: bool = True
    ) -> tuple[Prompt, int]:
        """The prompt of a conversation, and how many of its oldest turns were left out.

        tools: those that the model may call. may_drop: whether any may be; if not, the prompt may
        be too long.

        Raises:
            PromptTooLongError: the last turn does not fit even alone.
        """
        rendered = partial_of(self.template.urgent_prompt, tools=tools)
        if may_drop:
            return conversation.fit(rendered, self.context.facts.n_ctx)
        return rendered(conversation.messages()), 0

    def continued(self, prompt: Prompt, partial: str, tokens: Sequence[int] = ()) -> Prompt:
        """A prompt with the beginning of its answer: its own tokens, if they spell it here."""
        if not (tokens or partial):
            return prompt
        known = spelling(self.model.tokenizer, tokens, partial, self._speller(prompt))
        more = known or self.template.spoken(partial, prompt.form)
        return replace(prompt, tokens=[*prompt.tokens, *more], begun=len(more))

    def _speller(self, prompt: Prompt) -> Callable[[int], bytes | None] | None:
        """What spells the reply to a prompt where its tokens' pieces do not."""
        if not prompt.is_conversation:
            return None
        return (ChannelSpeller if prompt.form.channels else ThinkingSpeller)(self.model.tokenizer)

    def raw_prompt(self, text: str) -> Prompt:
        return self.template.raw(text)

    def infill_prompt(self, before: str, after: str) -> Prompt:
        """The prompt of a gap between two texts, of which the reply is the filling.

        Raises:
            UsageError: the model was not trained to fill gaps.
        """
        tokenizer = self.model.tokenizer
        marks = tokenizer.infill
        if marks is None:
            raise UsageError(
                "this model cannot fill a gap",
                "it has no tokens that mark one, as models of code have",
            )
        ahead, behind = (
            tokenizer.encode(whole_characters(text), special=False) for text in (before, after)
        )
        tokens = [marks.prefix, *ahead, marks.suffix, *behind, marks.middle]
        return Prompt(with_bos(tokens, tokenizer), is_conversation=False)

    def check(self, prompt: Prompt, settings: SamplingSettings, options: ReplyOptions) -> None:
        """Check what a reply is asked to be, without beginning it.

        Raises:
            UsageError: a setting names a token that the model does not have, or the grammar cannot
                be used.
        """
        settings.check_vocabulary(self.model.info.n_vocab)
        self._constraint(options, prompt)

    def stream(
        self,
        prompt: Prompt,
        settings: SamplingSettings,
        max_tokens: int,
        reply: Reply,
        is_cancelled: Callable[[], bool],
        options: ReplyOptions = USUAL,
    ) -> Generator[tuple[Event, str], None, None]:
        """Answer a prompt into reply; yields each event with the text it added.

        Raises:
            PromptTooLongError: the prompt leaves no room for an answer.
            UsageError: the grammar of the options cannot be used, or a setting names a token that
                the model does not have.
            ModelError: the engine failed; reply holds what was generated before.
        """
        settings.check_vocabulary(self.model.info.n_vocab)
        constraint = self._constraint(options, prompt)
        reply.rule = settings.lossy_in_effect
        reply.grammar = options.grammar.kind if options.grammar else None
        reply.begun = prompt.tokens[len(prompt.tokens) - prompt.begun :]
        n_ctx = self.context.facts.n_ctx
        own = ReplyDrafters(drafters_of(options, self.model.tokenizer, prompt, n_ctx))
        reply.own_drafters, reply.is_predicted = own.names, bool(options.prediction)
        stops = (*prompt.stops, *options.stops)
        text = TextStream(
            self.model.tokenizer,
            stops,
            begun=reply.begun,
            spell=self._speller(prompt),
            shows_control=options.shows_control,
            calls=prompt.form.call_marks,
        )
        try:
            with self.context.use() as context:
                events = generate(
                    context,
                    prompt.tokens,
                    settings,
                    Limits(max_tokens, self.model.tokenizer.end_tokens, text),
                    drafters=lambda: self._drafter(own),
                    is_cancelled=is_cancelled,
                    top_logprobs=options.top_logprobs,
                    constraint=constraint,
                    begun=prompt.begun,
                )
                yield from self._filled(reply, text, events)
        finally:
            reply.own_statuses = own.end(self.drafting.memory)
            self.template.get_ready()
            self.drafting.remember()
            self._keep_speed(reply)
            if self.options.model and reply.token_ids:
                remember_model(self.reference, self.paths)

    @property
    def has_grammar_vocabulary(self) -> bool:
        """Whether the vocabulary was read for grammars, which takes up to a second."""
        return self._constraints is not None and self._constraints.is_ready

    def _constraint(self, options: ReplyOptions, prompt: Prompt) -> Constraint | None:
        if options.grammar is None:
            return None
        self._constraints = self._constraints or ReplyConstraints(self.model.tokenizer)
        return self._constraints.of(options.grammar, prompt)

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

    def _filled(
        self, reply: Reply, text: TextStream, events: Iterator[Event]
    ) -> Iterator[tuple[Event, str]]:
        energy = Energy(self.meter)
        for event in events:
            reply.statistics.add(event)
            if isinstance(event, Step):
                reply.token_bytes |= self._bytes_of(event.logprobs)
                reply.logprobs += event.logprobs
                reply.token_ids += event.tokens
                reply.provenance += event.provenance
                reply.token_ends += text.ends[len(reply.token_ends) :]
            elif isinstance(event, Finish):
                text.finish()
                reply.finish_reason, reply.stop_text = event.reason, text.stop_text
                reply.joules = energy.joules
            added = text.text[len(reply.text) :]
            reply.text += added
            yield event, added
            if isinstance(event, Prefill):
                energy.start()

    def _bytes_of(self, told: Iterable[TokenLogprob]) -> dict[int, bytes]:
        """What tokens stand for: those of some log probabilities, and the alternatives to them."""
        tokens = {token for one in told for token in (one.token, *(other for other, _ in one.top))}
        return {token: self.model.tokenizer.entry(token) for token in tokens}

    def _keep_speed(self, reply: Reply) -> None:
        """Keep the speed of a reply's plain steps: it tells how much speeds vary here."""
        steps = reply.statistics.plain_steps
        count = bytes_per_token(self.model.info, self.context.facts)
        if steps.count >= ENOUGH_PLAIN_STEPS and steps.noise is not None:
            plain = PlainReply(steps.count / steps.total, count, steps.noise)
            self.plain_replies = self.plain_replies.with_reply(plain)

    def close(self) -> None:
        self.drafting.close()
        self.resources.close()


def bytes_per_token(info: ModelInfo, context: ContextFacts) -> int:
    """Bytes that one plain step reads: weights, and the key-value cache as long as it is now."""
    return info.bytes_read_per_token + context.length * context.kv_bytes_per_token
