"""The one thread that owns a session: requests queue, what happens is published."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Thread

from app.answer import Answer, Request, Stage, pieces
from app.engine_status import Loaded, Phase, Status
from app.indexing import Indexing
from app.large_blocks import return_large_blocks
from app.pairing import rank_for
from app.paths import Paths
from app.ranking import Ranking
from app.reply import Reply, new_reply
from app.reply_metrics import reply_metrics
from app.session import Session
from app.session_options import SessionOptions
from app.state_keeper import StateKeeper
from app.target_context import ContextInUseError
from app.token_counts import TokenCounts
from app.unexpected import unexpected
from backends.base import ModelError, SpecchatError
from backends.chat_template import Prompt
from decoding.events import Prefill, Step

_PUBLISH_SECONDS = 0.1
"""Between two pictures of the figures: nothing is summed up per token."""


class LoadingStoppedError(SpecchatError):
    """A model that is not wanted any more before it is loaded."""

    def __init__(self) -> None:
        super().__init__("loading was stopped", "", "Choose a model with /model.")


OpenSession = Callable[[SessionOptions, Paths, Callable[[str], None]], Session]


class Engine:
    """Loads a model and answers, one request after another; every method returns at once."""

    def __init__(
        self, options: SessionOptions, paths: Paths, open_session: OpenSession = Session.open
    ) -> None:
        self.status = Status(Phase.LOADING, "starting")
        self.options = options
        self.paths = paths
        self._open = open_session
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._session: Session | None = None
        self._keeper: StateKeeper | None = None
        self._indexing: Indexing | None = None
        self._wanted_draft = options.draft
        self._waiting_draft = ""
        """The spec that can be built only once the reply at work has ended."""
        self._current: Answer | None = None
        self._loading_stopped = Event()
        self._counts = TokenCounts()
        return_large_blocks()  # before there is a thread, which would get a store of its own
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._jobs.put(self._load)
        self._thread.start()

    def ask(self, request: Request) -> Answer:
        """Queue a request; its answer fills while the caller goes on."""
        answer = Answer(request)
        self._jobs.put(lambda: self._answer(answer))
        return answer

    def load(self, model: str) -> None:
        """Change to another model, after what is at work was stopped."""
        self._stop_current()
        self._jobs.put(lambda: self._change_model(model))

    def stop_loading(self) -> None:
        """Give up the model that is being loaded, if one is, at its next phase."""
        self._loading_stopped.set()

    def count(self, text: str) -> Future[int]:
        """The tokens of a text, counted between two steps."""
        future = self._counts.ask(text)
        self._jobs.put(self._count)
        return future

    def rank(self) -> Future[Ranking]:
        """Drafters for the loaded model, the best first, once what is asked already is done."""
        future: Future[Ranking] = Future()

        def job() -> None:
            try:
                if self._session is None:
                    raise ModelError("no model is loaded")
                future.set_result(rank_for(self._session))
            except SpecchatError as error:
                future.set_exception(error)

        self._jobs.put(job)
        return future

    @property
    def draft(self) -> str:
        """The spec that is wanted; a reply at work takes it up at its next step."""
        return self._wanted_draft

    def set_draft(self, spec: str) -> None:
        """Change the drafters, from the next step on; a spec that cannot be had changes nothing."""
        self._wanted_draft = spec
        self._jobs.put(self._take_up_draft)

    def close(self, seconds: float) -> bool:
        """Stop what is at work, free everything and end; False if that took longer."""
        self._stop_current()
        self.stop_loading()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _stop_current(self) -> None:
        current = self._current
        if current is not None:
            current.stop()

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                job()
            except SpecchatError as error:
                self.status = replace(self.status, phase=self._phase(), text="", error=error)
            except Exception as error:
                fault = unexpected(error, self.paths)
                self.status = replace(self.status, phase=self._phase(), text="", error=fault)
        self._close_session()
        self.status = Status(Phase.CLOSED)

    def _next_job(self) -> Callable[[], None] | None:
        keeper, indexing = self._keeper, self._indexing
        if keeper is None or indexing is None:
            return self._jobs.get()
        return (indexing if indexing.is_due else keeper).next_job(self._jobs)

    def _phase(self) -> Phase:
        return Phase.FAILED if self._session is None else Phase.READY

    def _close_session(self) -> None:
        session, self._session = self._session, None
        keeper, self._keeper = self._keeper, None
        indexing, self._indexing = self._indexing, None
        if indexing is not None:
            indexing.close()
        if keeper is not None:
            keeper.close()
        if session is not None:
            session.close()

    def _load(self) -> None:
        self._loading_stopped.clear()
        self.status = Status(Phase.LOADING, "loading")
        self._close_session()
        self._session = self._open(self.options, self.paths, self._notify_of_load)
        self._keeper = StateKeeper.of(self._session)
        self._indexing = Indexing.of(self._session)
        self._publish()

    def _change_model(self, model: str) -> None:
        """Load a model; the one before, if any, comes back if that fails."""
        before, had_one = self.options, self._session is not None
        self.options = replace(before, model=model)
        try:
            self._load()
        except SpecchatError:
            self.options = before
            if had_one:
                with contextlib.suppress(SpecchatError):
                    self._load()
            raise

    def _count(self) -> None:
        if self._session is not None:
            self._counts.count(self._session.model.tokenizer)

    def _notify_of_load(self, text: str) -> None:
        if self._loading_stopped.is_set():
            raise LoadingStoppedError
        self._notify(text)

    def _notify(self, text: str) -> None:
        self.status = replace(self.status, text=text)

    def _publish(self) -> None:
        assert self._session is not None
        self.status = Status(Phase.READY, "", Loaded.of(self._session))

    def _take_up_draft(self) -> None:
        """Build the drafters that are wanted; where they cannot be had, all stays as it is."""
        session, spec = self._session, self._wanted_draft
        if session is None or spec == self._waiting_draft:
            return
        if self._waiting_draft:  # it is not wanted any more
            self._waiting_draft = ""
            self._notify("")
        try:
            self._switch_draft(session, spec)
        except ContextInUseError:
            self._waiting_draft = spec
            self._notify(f"drafting with {spec} begins after this answer: memory is short")
        except Exception as error:  # whatever a drafter does, answers go on
            if self._wanted_draft == spec:
                self._wanted_draft = session.drafting.requested
            fault = error if isinstance(error, SpecchatError) else unexpected(error, self.paths)
            self.status = replace(self.status, text="", error=fault)

    def _switch_draft(self, session: Session, spec: str) -> None:
        """Build the drafters of a spec, unless they are at hand."""
        if session.drafting.requested == spec:
            return
        self._notify(f"changing the drafter to {spec}")
        session.redraft(spec, self._notify)
        self._publish()

    def _answer(self, answer: Answer) -> None:
        """Fill an answer; whatever goes wrong ends it and is told in it."""
        self._current = answer
        try:
            if not answer.is_stopped:
                self._fill(answer)
        except SpecchatError as error:
            answer.error = error
        except Exception as error:
            answer.error = unexpected(error, self.paths)
        finally:
            self._current = None
            self._waiting_draft = ""
            answer.finish()

    def _fill(self, answer: Answer) -> None:
        session, keeper, indexing = self._session, self._keeper, self._indexing
        if session is None or keeper is None or indexing is None:
            raise self.status.error or ModelError("no model is loaded")
        request = answer.request
        session.answer_in(request.chat)
        if request.draft is None:
            self._take_up_draft()
        else:
            self._switch_draft(session, request.draft)
        session.drafting.compare(request.draft is not None)
        answer.stage = Stage.READING
        prompt, answer.dropped = session.prompt(request.conversation, request.partial)
        answer.note = "; ".join(filter(None, [prompt.note, indexing.news()]))
        reply = new_reply()
        origins: list[str] = []
        try:
            keeper.prepare(prompt.tokens)
            self._stream(session, answer, prompt, reply, origins)
        finally:
            keeper.answered()
            indexing.changed()
            answer.metrics = reply_metrics(session, reply)
            answer.finish_reason = reply.finish_reason
            answer.token_ids = tuple(reply.token_ids)
            tokenizer = session.model.tokenizer
            answer.pieces = pieces(tokenizer, reply.token_ids, origins)

    def _stream(
        self, session: Session, answer: Answer, prompt: Prompt, reply: Reply, origins: list[str]
    ) -> None:
        request = answer.request
        published = 0.0
        stream = session.stream(
            prompt, request.settings, request.max_tokens, reply, lambda: answer.is_stopped
        )
        with contextlib.closing(stream):
            for event, added in stream:
                if isinstance(event, Prefill):
                    answer.read = (event.done, event.total)
                elif isinstance(event, Step):
                    answer.stage = Stage.ANSWERING
                    origins += event.provenance
                answer.put(added)
                now = time.perf_counter()
                if now - published >= _PUBLISH_SECONDS:
                    published = now
                    answer.metrics = reply_metrics(session, reply)
                    self._counts.count(session.model.tokenizer)
                    if request.draft is None:
                        self._take_up_draft()
