"""A model with its context and drafters, ready to answer one message after another."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from app import draft_spec
from app.conversation import Conversation
from app.drafter_building import Place
from app.drafting import Drafting, build
from app.large_blocks import return_large_blocks
from app.memory_bandwidth import memory_bandwidth
from app.memory_plan import open_context, plan
from app.model_choice import expected_backend, model_choices, remember_model
from app.obtaining import facts_before, obtain
from app.own_files import own_entries
from app.paths import Paths
from app.proven_models import ProvenModels
from app.reply import Reply
from app.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.target_context import TargetContext
from backends.bandwidth import Bandwidth
from backends.base import Model, ModelError, OutOfMemoryError
from backends.chat_template import ChatTemplate, Prompt
from backends.choice import MLX, Form, check_backend, forms, free_memory
from backends.energy import Energy, EnergyMeter, energy_meter
from backends.template_process import TemplateProcess
from decoding.drafters.switch import Switch
from decoding.events import Event, Finish, FinishReason, Prefill, Step
from decoding.generation import Limits, generate
from decoding.sampling import SamplingSettings
from decoding.text import TextStream
from models.leftovers import remove_leftovers
from models.model_facts import facts_of
from models.reference import HubReference, Reference


@dataclass(slots=True)
class Session:
    """Everything loaded. One thread at a time may use it."""

    paths: Paths
    reference: Reference
    model: Model
    context: TargetContext
    template: ChatTemplate
    drafting: Drafting
    bandwidth: Bandwidth | None
    meter: EnergyMeter | None
    load_seconds: float
    notes: tuple[str, ...]
    """What was given up to run the model here, and which models could not be run."""
    options: SessionOptions
    _room: int | None
    """Bytes that drafters may take."""
    _held: ExitStack
    _chat: int | None = None

    @classmethod
    def open(
        cls,
        options: SessionOptions,
        paths: Paths,
        notify: Callable[[str], None],
        usual_context: int = DEFAULT_CONTEXT,
        *,
        every_form: bool = False,
    ) -> "Session":
        """Load the model and its drafters; notify gets a line on each phase.

        usual_context: tokens of the context where the options name no number. every_form: drafter
        models draft trees and paths too where they are not expected to gain, for checks. Where no
        model is named and one cannot be run, the next choice is opened, and a note says so.

        Raises:
            SpecchatError: an option cannot be met, or the model cannot be run.
        """
        return_large_blocks()
        for entry in own_entries(paths):
            remove_leftovers(Path(entry.path))
        check_backend(options.backend)
        check_ranges(options)
        choices = model_choices(options.model, paths, forms(options.backend))
        first: ModelError | None = None
        failed: list[str] = []
        for chosen in choices:
            try:
                session = cls._open(chosen, options, paths, notify, usual_context, every_form)
            except OutOfMemoryError:  # which may be free again at the next start
                raise
            except ModelError as error:
                first = first or error
                why = f"{error.what}: {error.why}" if error.why else error.what
                failed.append(f"{chosen.name} is passed over: {why}")
                continue
            session.notes = (*failed, *session.notes)
            return session
        assert first is not None
        raise first

    @classmethod
    def _open(
        cls,
        chosen: Reference | HubReference,
        options: SessionOptions,
        paths: Paths,
        notify: Callable[[str], None],
        usual_context: int,
        every_form: bool,
    ) -> "Session":
        """Load a model and its drafters.

        Raises:
            SpecchatError: an option cannot be met, or the model cannot be run.
        """
        started = time.perf_counter()
        preferred = forms(options.backend)
        spec = draft_spec.parse(options.draft, paths, chosen, preferred)
        free = free_memory(expected_backend(chosen, options.backend), options.gpu_layers)
        if (expected := facts_before(chosen)) is not None:
            plan(chosen.name, expected, options.ctx, usual_context, free)
        reference = obtain(chosen, paths, notify, offline=options.offline)
        notify(f"loading {reference.name}")
        facts = facts_of(reference.path, expected_backend(reference, options.backend))
        spec.check(reference.name, facts.n_layers, facts.active_experts)
        planned = plan(reference.name, facts, options.ctx, usual_context, free)
        with ExitStack() as stack:
            templates = stack.enter_context(closing(TemplateProcess()))
            models = ProvenModels(paths, notify)
            model = models.load(
                reference.path, options.threads, options.gpu_layers, options.backend
            )
            stack.callback(model.close)
            opened, notes = open_context(model, planned, options.ctx)
            context = TargetContext(model, opened)
            spec.check(reference.name, model.info.n_layers, model.info.active_experts)
            if options.threads and model.info.backend == MLX:
                notes.append("--threads means nothing to MLX, which chooses its threads itself")
            place = _place(model, context, paths, options, notify, planned.room)
            bandwidth = memory_bandwidth(model.info, paths)
            drafting = build(spec, replace(place, every_form=every_form))
            held = stack.pop_all()
        template = ChatTemplate(model.tokenizer, templates)
        seconds = time.perf_counter() - started
        meter = energy_meter(on_gpu=model.info.device.startswith("GPU"))
        return cls(
            paths, reference, model, context, template, drafting, bandwidth, meter, seconds,
            tuple(notes), options, planned.room, held,
        )  # fmt: skip

    def place(self, notify: Callable[[str], None]) -> Place:
        """Where further drafters are built; notify gets a line on each phase."""
        return _place(self.model, self.context, self.paths, self.options, notify, self._room)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms in which further models are looked for."""
        return forms(self.options.backend)

    def spec(self, requested: str) -> draft_spec.DraftSpec:
        """Read what --draft asks for, beside this model.

        Raises:
            UsageError: it cannot be read, or does not fit the model.
        """
        spec = draft_spec.parse(requested, self.paths, self.reference, self.forms)
        spec.check(self.reference.name, self.model.info.n_layers, self.model.info.active_experts)
        return spec

    def redraft(self, requested: str, notify: Callable[[str], None]) -> None:
        """Change the drafters; a reply at work takes up the new ones at its next step.

        Whatever it raises, the drafters stay as they are.

        Raises:
            ContextInUseError: it takes passes of the model, which a reply runs, and there is no
                memory for them beside it.
            UsageError: the spec cannot be read, or does not fit the model.
        """
        spec = self.spec(requested)
        self.drafting.remember()
        self.drafting.save()  # before the new ones look for it
        drafting = build(spec, self.place(notify))
        self.drafting.close()
        self.drafting = drafting
        drafting.leave_out(self._chat)

    def answer_in(self, chat: int | None) -> None:
        """Say in which chat of the history the next replies are, None for one that is not kept."""
        self._chat = chat
        self.drafting.leave_out(chat)

    def prompt(self, conversation: Conversation, partial: str = "") -> tuple[Prompt, int]:
        """What is to be answered, and how many of the oldest turns no longer fit.

        partial: the beginning of the answer, where one is to be continued.

        Raises:
            PromptTooLongError: the last turn does not fit even alone.
        """
        prompt, dropped = conversation.fit(self.template.prompt, self.context.n_ctx)
        if partial:
            more = self.model.tokenizer.encode(partial, special=False)
            prompt = Prompt([*prompt.tokens, *more], prompt.stops, prompt.note)
        return prompt, dropped

    def raw_prompt(self, text: str) -> Prompt:
        """Text as it stands, without the chat template."""
        return self.template.raw(text)

    def stream(
        self,
        prompt: Prompt,
        settings: SamplingSettings,
        max_tokens: int,
        reply: Reply,
        is_cancelled: Callable[[], bool],
    ) -> Generator[tuple[Event, str], None, None]:
        """Answer a prompt, filling reply; yields each event with the text it added.

        Raises:
            PromptTooLongError: the prompt leaves no room for an answer.
            ModelError: the engine failed; reply holds what was said before.
        """
        reply.rule = settings.lossy_in_effect
        try:
            with closing(self._events(prompt, settings, max_tokens, is_cancelled)) as events:
                yield from self._filled(reply, prompt, events)
        finally:
            self.drafting.remember()
            if self.options.model and reply.token_ids:
                remember_model(self.reference, self.paths)

    def _filled(
        self, reply: Reply, prompt: Prompt, events: Iterator[Event]
    ) -> Iterator[tuple[Event, str]]:
        text = TextStream(self.model.tokenizer, prompt.stops)
        energy = Energy(self.meter)
        for event in events:
            reply.statistics.add(event)
            added = ""
            if isinstance(event, Step):
                reply.token_ids += event.tokens
                reply.provenance += event.provenance
                added = text.feed(event.tokens)
            elif isinstance(event, Finish):
                added = text.finish()
                reply.finish_reason = event.reason
                reply.joules = energy.joules
            reply.text += added
            yield event, added
            if isinstance(event, Prefill):
                energy.start()
            if text.stopped and reply.finish_reason is None:
                reply.finish_reason = FinishReason.STOP
                reply.joules = energy.joules
                return

    def _events(
        self,
        prompt: Prompt,
        settings: SamplingSettings,
        max_tokens: int,
        is_cancelled: Callable[[], bool],
    ) -> Generator[Event, None, None]:
        with self.context.use() as context:
            for event in generate(
                context,
                prompt.tokens,
                settings,
                Limits(max_tokens, self.model.tokenizer.end_tokens),
                drafter=Switch(lambda: self.drafting.controller),
                is_cancelled=is_cancelled,
            ):
                controller = self.drafting.controller
                if controller is not None and isinstance(event, Step):
                    controller.observe(event)
                yield event

    def close(self) -> None:
        """Free all memory and end the template's process."""
        self.drafting.close()
        self._held.close()


def _place(
    model: Model,
    context: TargetContext,
    paths: Paths,
    options: SessionOptions,
    notify: Callable[[str], None],
    room: int | None,
) -> Place:
    def get(reference: Reference | HubReference) -> Reference:
        return obtain(reference, paths, notify, offline=options.offline)

    return Place(
        model, context, paths, options.threads, options.gpu_layers, notify, room, get,
        options.backend,
    )  # fmt: skip
