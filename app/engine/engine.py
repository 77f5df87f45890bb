"""The engine's thread: it owns the session, runs requests in turn and publishes its status.

What runs a model is imported on that thread: the app is on the screen before it.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, TypeVar

from app.ahead.expected import Expectation, Expected
from app.engine.answer import FIGURES_SECONDS, Answer, Stage
from app.engine.jobs import JobQueue
from app.engine.prompt_builder import PromptBuilder
from app.engine.reply import Request
from app.engine.status import Loaded, Phase, Status, crash_report
from app.loading.session_options import AUTO_DRAFT, DEFAULT_PARALLEL, OFF_DRAFT, SessionOptions
from app.paths import Paths
from app.process import return_large_blocks
from app.settings.catalogue import DEFAULT_AHEAD_WASTE
from app.settings.in_effect import ServedAt
from backends.base import (
    DeviceLostError,
    DraftUnavailableError,
    ModelError,
    PassStoppedError,
    PeerLostError,
    SpecchatError,
)
from backends.base.model import pass_is_stopped, stopping_passes

if TYPE_CHECKING:
    from app.drafting.choose.drafter_info import Ranking
    from app.engine.answerer import Answerer
    from app.engine.idle_tasks import ActiveSession
    from app.engine.remote_session import RemoteSession
    from app.engine.session import Session
    from app.engine.side_by_side import SideBySide
    from app.loading.streaming import StreamOfferError
    from backends.chat.chat_template import Prompt

_NO_NAMES = (AUTO_DRAFT, OFF_DRAFT)

_LOOK_SECONDS = 0.1
"""Between two looks, in mid-answer, at what else is asked: at every token they would slow it."""


ResultT = TypeVar("ResultT")


class LoadingStoppedError(SpecchatError):
    def __init__(self) -> None:
        super().__init__("loading was stopped", "", "Choose a model with /model.")


@dataclass(frozen=True, slots=True)
class _AnswerJob:
    """A job of the queue that answers a request; another may do it before its turn."""

    answer: Answer
    run: Callable[[Answer], None]

    def __call__(self) -> None:
        self.run(self.answer)


OpenSession = Callable[[SessionOptions, Paths, Callable[[str], None]], "Session"]
Companion = Callable[["Engine"], contextlib.AbstractContextManager[ServedAt]]
"""Runs beside an engine as long as its `with` lasts, and tells where it is found."""


class Engine:
    """Loads a model and answers requests in turn on its own thread; no method but close blocks.

    open_session: None for the usual way. may_read: why nothing may be read ahead now, nor measured
    in idle time; "" if it may. most_waste: processor seconds per message that may be spent on
    reading text which is then changed. Both are called often, on the engine's thread.
    """

    def __init__(
        self,
        options: SessionOptions,
        paths: Paths,
        open_session: OpenSession | None = None,
        may_read: Callable[[], str] = lambda: "",
        most_waste: Callable[[], float] = lambda: DEFAULT_AHEAD_WASTE,
    ) -> None:
        self.options: SessionOptions = options
        self.paths = paths
        self._open = open_session
        publish = partial(self._publish_if_new, "ahead")
        self.may_read = may_read
        may = lambda: self.may_read()  # noqa: E731, PLW0108 - it may be replaced
        self._expectation = Expectation(may, most_waste, publish)
        self._status = Status(Phase.LOADING, "starting")
        self._jobs = JobQueue(report=self._publish_error)
        self._free_at = 0.0
        """When the last job ended, by time.perf_counter()."""
        self._active: ActiveSession | None = None
        self._remote: RemoteSession | None = None
        """What answers in place of a model here, if a server does."""
        self._draft = options.draft
        self._draft_lock = Lock()
        self._lent = ""
        """The model loaded for an answer in place of that in use; "" if none is."""
        self._draft_kept: str = options.draft
        """The drafters that were requested for the model in use."""
        self._deferred_draft: str = ""
        """The spec whose drafters cannot be built before the current reply ends."""
        self._together: SideBySide | None = None
        self._current: Answer | None = None
        """The answer in the session's own context."""
        self._looked_at = self._figures_at = 0.0
        self._unfinished: set[Answer] = set()
        """The current answer, and those that wait for their turn."""
        self._is_broken = False
        """Whether a part of the model was lost, and it is to be loaded again before it answers."""
        self._loading_stopped = Event()
        self._prompts = PromptBuilder()
        return_large_blocks()  # before a second thread exists, which would get its own arena
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    @property
    def status(self) -> Status:
        """The latest snapshot; only the engine's thread replaces it."""
        return self._status

    def start(self) -> None:
        self._jobs.put(self._load)
        self._thread.start()

    def another(self, model: str | None, reserved: int) -> "Engine":
        """An engine for another model beside this one, not started. reserved: bytes of others."""
        options = replace(self.options, model=model, reserved=reserved)
        return Engine(options, self.paths, self._open, self.may_read)

    def ask(self, request: Request) -> Answer:
        answer = Answer(request)
        self.begin(answer)
        return answer

    def begin(self, answer: Answer) -> None:
        """Queue the request of an answer, which fills in the background.

        A pass that reads its prompt already goes on, as it is a part of the answer, until stopped.
        """
        answer.reply.statistics.started_at = time.perf_counter()
        self._unfinished.add(answer)
        request = answer.request
        is_begun = self._expectation.led_to(request.conversation, request.tools)
        is_urgent = (lambda: answer.is_stopped) if is_begun else True
        self._jobs.put(_AnswerJob(answer, self._answer), is_urgent=is_urgent)

    @property
    def _beside(self) -> list[Answer]:
        """Answers in progress in other sequences than the session's own."""
        return self._together.beside if self._together is not None else []

    @property
    def is_answering(self) -> bool:
        """Whether an answer is in progress, of the chat, of a race or to a program."""
        return self._current is not None or bool(self._beside)

    @property
    def is_answering_user(self) -> bool:
        """Whether an answer to the user is in progress, and not only one to a program."""
        begun = (self._current, *self._beside)
        return any(one is not None and not one.request.program for one in begun)

    @property
    def waiting_program(self) -> str:
        """The program whose request waits for an answer in progress, "" if none does."""
        begun = (self._current, *self._beside)
        waiting = (one for one in list(self._unfinished) if one not in begun)
        return next((one.request.program for one in waiting if one.request.program), "")

    def expect(self, expected: Expected | None) -> None:
        """Tell what the next request will begin with, None if nothing is known of it.

        To be called at every change: how long text has to rest before it is read is decided here.
        It is read while no job waits. An answer makes it void, when it begins and when it ends; the
        same record again changes nothing while it is not.
        """
        if expected is not self._expectation.latest:
            self._expectation.latest = expected
            self._jobs.disturb()

    def has_loaded(self, path: Path) -> bool:
        """Whether the model in use is that of a file or folder, as it is now."""
        active = self._active
        return active is not None and not self._lent and active.files.are_those_of(path)

    def load(self, model: str) -> None:
        """Stop the current answer and those that wait, and change to another model."""
        self._stop_answers()
        self._jobs.put(lambda: self._reload(replace(self.options, model=model)))

    def take_back_model(self) -> None:
        """Load the model in use, if another one was loaded for an answer. Any request does that."""
        self._jobs.put(lambda: self._lend(""))

    def set_context(self, n_ctx: int | None) -> None:
        """Change the size of the context in tokens, None for the usual one, after this answer.

        If loading had failed, the model is loaded again.

        If that fails, such as for lack of memory, the old size stays, and the status has the error.
        """
        self._jobs.put(lambda: self._change_context(n_ctx))

    def retry(self) -> None:
        self._jobs.put(self._load)

    def stream(self, offer: "StreamOfferError") -> None:
        """Load a model that does not fit and is to be read from disk, from now on."""
        from app.loading.streaming import AgreedModels

        AgreedModels(self.paths.agreed_models).add(offer.path)
        self.load(offer.model)

    def stop_loading(self) -> None:
        """Stop loading a model, if one is being loaded, at its next phase or within a pass."""
        self._loading_stopped.set()

    def count(self, text: str) -> Future[int]:
        """Number of tokens of a text, counted between two steps."""
        return self._build(text)

    def prepare(self, answer: Answer) -> Future[int]:
        """Build the prompt of an answer before its turn, between two steps.

        The future has the number of its tokens, or the error that will end the answer.
        """
        return self._build(answer)

    def _build(self, wanted: Answer | str) -> Future[int]:
        future = self._prompts.ask(wanted)

        def job() -> None:
            if (answerer := self._answerer) is not None:
                self._prompts.work(future, answerer)
            else:
                self._prompts.fail(future, self._no_model())

        self._jobs.put(job, is_urgent=False)
        return future

    @property
    def _answerer(self) -> "Answerer | None":
        return self._active.session if self._active is not None else self._remote

    def _no_model(self) -> SpecchatError:
        return self._status.error or ModelError("no model is loaded")

    @property
    def remote_models(self) -> tuple[str, ...]:
        """The models that a server listed when it was asked last; () where none answers."""
        return self._remote.names if self._remote is not None else ()

    def drafters(self) -> "Ranking | None":
        """Drafters for the loaded model with what is known of them; takes a moment on any thread.

        Raises:
            SpecchatError: the model's file cannot be read any more.
        """
        from app.engine.session_ranking import list_for

        active = self._active
        return list_for(active.session) if active else None

    def rank(self) -> "Future[Ranking]":
        """Drafters for the loaded model, best first, after all requests queued before."""

        def ranked(session: "Session") -> "Ranking":
            from app.engine.session_ranking import rank_for

            try:
                return rank_for(session)
            except Exception as error:
                raise self._reported(error) from error

        return self.between(ranked, is_urgent=True)

    def between(
        self, work: Callable[["Session"], ResultT], *, is_urgent: bool = False
    ) -> "Future[ResultT]":
        """Do some work with the session on the engine's thread; the future has its result.

        That is between two passes of answers side by side, else between two answers. is_urgent: as
        for a job of the queue.
        """
        future: Future[ResultT] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._active is None:
                    raise self._no_model()
                future.set_result(work(self._active.session))
            except Exception as error:
                future.set_exception(error)

        self._jobs.put(job, is_urgent=is_urgent)
        return future

    @property
    def draft(self) -> str:
        """The requested drafters; the current reply changes to them at its next step."""
        return self._draft

    def set_draft(self, spec: str) -> None:
        """Request other drafters from the next step on; an unusable spec changes nothing."""
        with self._draft_lock:
            self._draft = spec
        self._jobs.put(lambda: self._follow_draft(is_asked=True), is_urgent=False)

    def close(self, seconds: float) -> bool:
        """Stop all answers, free everything and end the thread; False after a timeout."""
        self._stop_answers()
        self.stop_loading()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _stop_answers(self) -> None:
        for answer in list(self._unfinished):  # a copy, which another thread cannot change midway
            answer.stop()

    def _run(self) -> None:
        while self._run_next():
            pass
        self._close_session()
        self._status = Status(Phase.CLOSED)

    def _run_next(self) -> bool:
        try:
            works = self._active.idle_work if self._active and not self._is_broken else ()
            job = self._jobs.next(works)
            if job is None:
                return False
            try:
                job()
            finally:
                self._free_at = time.perf_counter()
                if self._active is not None:
                    self._active.reading.look_again()
        except Exception as error:
            self._publish_error(error)
        return True

    def _reported(self, error: Exception) -> SpecchatError:
        self._is_broken = self._is_broken or isinstance(error, DeviceLostError | PeerLostError)
        return error if isinstance(error, SpecchatError) else crash_report(error, self.paths)

    def _publish_error(self, error: Exception) -> None:
        phase = Phase.FAILED if self._answerer is None else Phase.READY
        self._status = replace(self._status, phase=phase, text="", error=self._reported(error))

    def _publish_text(self, text: str) -> None:
        self._status = replace(self._status, text=text)

    def _publish_if_new(self, name: str, value: object) -> None:
        if value != getattr(self._status, name):
            self._status = replace(self._status, **{name: value})

    def _publish_ready(self, session: "Session") -> None:
        """Publish what is in use, and which drafters that were named are not; then auto drafts."""
        error, drafting = None, session.drafting
        if drafting.missing and drafting.requested == self._draft not in _NO_NAMES:
            told = drafting.missing
            if not drafting.handles:
                with self._draft_lock:
                    self._draft = AUTO_DRAFT
                session.redraft(AUTO_DRAFT, self._publish_text)
                if names := session.drafting.names:
                    told = f"{told}; auto drafts instead: {', '.join(names)}"
            error = DraftUnavailableError(told)
        loaded = Loaded.of(session)
        self._status = Status(Phase.READY, "", loaded, error, program=self._status.program)

    def _close_session(self) -> None:
        active, self._active, self._together, self._remote = self._active, None, None, None
        if active is not None:
            active.close()

    def _lend(self, model: str) -> None:
        """Have the model of an answer loaded, "" for that in use, which stays if there is an error.

        Its drafters are chosen anew: those requested may be for the other one.
        """
        if model == self._lent:
            return
        own, draft = self.options, self._draft_kept if self._lent else self._draft
        drafts = OFF_DRAFT if draft == OFF_DRAFT else AUTO_DRAFT
        try:
            self._reload(replace(own, model=model, draft=drafts) if model else own)
        finally:
            self.options = own
        if model:
            with self._draft_lock:
                self._lent, self._draft_kept, self._draft = model, draft, drafts

    def _load(self) -> None:
        if self._lent:
            with self._draft_lock:
                self._lent, self._draft = "", self._draft_kept
        self._loading_stopped.clear()
        self._is_broken = False
        self._status = Status(Phase.LOADING, "loading")
        self._close_session()
        if self.options.asks_server:
            from app.engine.remote_session import open_remote

            self._remote = open_remote(self.options, self.paths, self._notify_of_load)
            self._prompts.forget()
            self._status = Status(Phase.READY, "", self._remote.loaded)
            return
        from app.engine.idle_tasks import ActiveSession
        from app.engine.session_opening import open_session

        opened = self._open or partial(open_session, measures_later=True)
        try:
            with stopping_passes(self._loading_stopped.is_set):
                session = opened(self.options, self.paths, self._notify_of_load)
            if self._loading_stopped.is_set():
                session.close()
                raise PassStoppedError
        except PassStoppedError as stopped:
            raise LoadingStoppedError from stopped
        self._prompts.forget()
        self._active = ActiveSession.of(
            session, self._expectation, partial(self._publish_if_new, "news"), self._measure_new
        )
        self._publish_ready(session)
        # Found once, by a look at each token: 35 to 55 ms, for which the first answer would wait.
        _ = session.model.tokenizer.end_tokens

    def _measure_new(self, is_wanted: Callable[[], bool]) -> None:
        """Measure a model that was ready before that, and build its drafters, while wanted."""
        active = self._active
        if active is None or active.session.drafting.requested:
            return
        session, spec = active.session, self._draft
        try:
            with stopping_passes(lambda: not is_wanted()):
                session.redraft(spec, self._notify_of_load)
            self._publish_ready(session)
        except PassStoppedError:
            self._publish_text("")
        except Exception as error:  # the model answers without drafters
            reported = self._reported(error)
            session.drafting = replace(session.drafting, requested=spec, missing=reported.summary)
            self._status = replace(self._status, text="", error=reported)

    def _notify_of_load(self, text: str) -> None:
        if pass_is_stopped():
            raise PassStoppedError
        if self._loading_stopped.is_set():
            raise LoadingStoppedError
        self._publish_text(text)

    def _change_context(self, n_ctx: int | None) -> None:
        if self._active is None:
            self.options = replace(self.options, ctx=n_ctx)
            if self._remote is not None or self._status.phase is Phase.FAILED:
                self._load()
        elif n_ctx != self.options.ctx:
            self._active.files.check_present()
            self._reload(replace(self.options, ctx=n_ctx))

    def _reload(self, options: SessionOptions) -> None:
        previous, was_loaded = self.options, self._answerer is not None
        self.options = options
        try:
            self._load()
        except SpecchatError:
            self.options = previous
            if was_loaded:
                with contextlib.suppress(SpecchatError):
                    self._load()
            raise

    def _follow_draft(self, *, is_asked: bool = False) -> None:
        """Build the requested drafters; if that fails, keep the present ones.

        is_asked: whether the user asks just now, also for those that were freed.
        """
        from app.loading.target_context import ContextInUseError

        spec = self._draft
        if self._active is None or spec == self._deferred_draft:
            return
        session = self._active.session
        if not (is_asked or session.drafting.requested):  # measured once this answer has ended
            return
        if self._deferred_draft:  # another spec was requested meanwhile
            self._deferred_draft = ""
            self._publish_text("")
        try:
            self._redraft(session, spec, is_asked=is_asked)
        except ContextInUseError as error:
            self._deferred_draft = spec
            self._publish_text(f"drafting with {spec} begins after this answer: {error.reason}")
        except Exception as error:  # a faulty drafter must not end the answer
            with self._draft_lock:
                if self._draft == spec:
                    self._draft = session.drafting.requested
            self._status = replace(self._status, text="", error=self._reported(error))

    def _redraft(self, session: "Session", spec: str, *, is_asked: bool) -> None:
        """Build the drafters of a spec, unless the session has them."""
        drafting = session.drafting
        if drafting.requested == spec and not (is_asked and drafting.is_reduced):
            return
        self._publish_text(f"changing the drafter to {spec}")
        session.redraft(spec, self._publish_text)
        self._publish_ready(session)

    def _answer(self, answer: Answer) -> None:
        """Answer a request, and beside it those that come meanwhile."""
        side_by_side = self._side_by_side(answer.request)
        if side_by_side is None:
            if (together := self._together) is not None and together.sequences.reserve(
                together.own.n_ctx
            ):
                together.sequences.give_back(together.own)
            self._answer_alone(answer)
        else:
            side_by_side.run(answer, lambda: self._let_join(side_by_side))
        self._measure_new(lambda: not self._loading_stopped.is_set())

    def _side_by_side(self, request: Request) -> "SideBySide | None":
        """What answers others beside a request; None where it has to be answered alone."""
        from app.engine.side_by_side import SideBySide
        from backends.base.model import SharedContext

        active, parallel = None if self._is_broken else self._active, self.options.parallel
        most = parallel or DEFAULT_PARALLEL
        if active is None or most == 1 or request.model != self._lent or request.draft:
            return None
        if not active.session.drafting.requested:  # it is measured after this answer
            return None
        own = active.session.context.beside(lambda context: context)
        if not isinstance(own, SharedContext) or own.max_sequences == 1:
            return None
        if self._together is None or self._together.own is not own:
            self._together = SideBySide(
                active.session,
                own,
                most,
                self._prompts,
                joins_programs=parallel is not None,
                in_own=self._answer_alone,
                reported=self._reported,
                ended=self._unfinished.discard,
                unfinished=lambda: len(self._unfinished),
                is_awaited=lambda: self._jobs.first() is not None,
            )
        return self._together

    def _let_join(self, side_by_side: "SideBySide") -> None:
        """Let waiting requests join in turn, as far as they can, and do what takes a moment."""
        while (waiting := self._jobs.first()) is not None:
            job, is_urgent = waiting
            if isinstance(job, _AnswerJob):
                request = job.answer.request
                is_other = request.model != self._lent or request.draft
                if is_other or not side_by_side.begin(job.answer):
                    return
                self._jobs.take()
            elif job is None or is_urgent:
                return
            else:
                self._jobs.take()
                job()

    def _answer_alone(self, answer: Answer) -> None:
        if not answer.claim():
            self._unfinished.discard(answer)
            self._expect_nothing()
            return
        self._current = answer
        self._publish_if_new("program", answer.request.program)
        try:
            if not answer.is_stopped:
                self._fill(answer)
        except Exception as error:
            fault = self._reported(error)
            if self._status.phase is Phase.LOADING:  # nor is the model before there any more
                self._publish_error(fault)
            is_wanted = isinstance(fault, LoadingStoppedError) and answer.is_stopped
            answer.error = None if is_wanted else fault
        finally:
            self._deferred_draft = ""
            try:
                self._expect_nothing()
            finally:
                self._current = None
                self._publish_if_new("program", "")
                self._unfinished.discard(answer)
                answer.finish()
            if self._active is not None:
                self._active.reading.keep_account()  # may wait for other processes

    def _expect_nothing(self) -> None:
        """Forget what was expected before an answer, which would take back what it left."""
        if self._active is not None:
            self._active.reading.expect_nothing()
        else:
            self._expectation.latest = None

    def _fill(self, answer: Answer) -> None:
        from app.engine.metrics import reply_metrics

        request = answer.request
        if self._remote is not None:
            self._fill_from(self._remote, answer)
            return
        self._lend(request.model)
        if self._is_broken:
            self._load()
        active = self._active
        if active is None:
            raise self._no_model()
        session = active.session
        active.files.check_whole()
        answer.model = session.reference.name
        session.answer_in(request.chat)
        if request.draft is None:
            self._follow_draft()
        else:
            self._redraft(session, request.draft, is_asked=True)
        session.drafting.compare(request.draft is not None)
        answer.stage = Stage.READING
        prompt = self._prompts.take(answer, session)
        answer.note = "; ".join(filter(None, [prompt.note, active.indexing.news()]))
        reply = answer.reply
        reply.statistics.started_at = max(reply.statistics.started_at, self._free_at)
        loaded = session.plain_replies.replies, session.drafting
        try:
            reply.ahead_tokens = active.reading.hand_over(prompt.tokens)
            self._follow(answer, session, prompt)
        finally:
            active.answered()
            answer.note = "; ".join(filter(None, [answer.note, session.model.shortage]))
            answer.metrics = reply_metrics(session, reply)
            if (session.plain_replies.replies, session.drafting) != loaded:
                self._status = replace(self._status, loaded=Loaded.of(session))

    def _fill_from(self, remote: "RemoteSession", answer: Answer) -> None:
        answer.model, answer.stage = answer.request.model or remote.name, Stage.READING
        prompt = self._prompts.take(answer, remote)
        try:
            self._follow(answer, remote, prompt)
        finally:
            answer.metrics = remote.metrics(answer.reply)

    def _follow(self, answer: Answer, session: "Answerer", prompt: "Prompt") -> None:
        stream = session.stream(prompt, answer.reply, lambda: answer.is_stopped)
        with contextlib.closing(stream):
            for event in stream:
                answer.on_event(event)
                self._work_beside(answer, session)

    def _work_beside(self, answer: Answer, session: "Answerer") -> None:
        """Publish the figures of an answer between two of its steps, and do what is asked then."""
        now, known = time.perf_counter(), answer.metrics
        is_first = known is None or (known.steps == 0 and answer.stage is Stage.ANSWERING)
        if is_first or now - self._figures_at >= FIGURES_SECONDS:
            from app.engine.answerer import metrics_of

            self._figures_at = now
            answer.metrics = metrics_of(session, answer.reply, is_final=False)
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._prompts.work_beside(session)
            if answer.request.draft is None:
                self._follow_draft()
