"""The engine as the server sees it: what is loaded, the queue in front of it, and its metrics."""

import asyncio
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.chat.conversation import Conversation
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.serve.refusal import RefusalKind, RefusedError, refusal_of, stopped
from app.serve.served_models import ServedModel, ServedModels
from app.serve.server_options import Limits
from app.wording import counted
from backends.base import PromptTooLongError, SpecchatError, UsageError
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings


class RequestQueue:
    """A bounded queue: a few requests to one model are answered at a time, in order.

    Used on the server's event loop alone. The engine has a queue of its own: who chats in the app
    waits for one request there, not for all of these.
    """

    def __init__(self, most_waiting: int, at_once: int = 1) -> None:
        """at_once: how many the engine of a model computes together."""
        self.at_once = at_once
        self._most_waiting = most_waiting
        self._queue: deque[tuple[object, asyncio.Event]] = deque()
        """The first ones are answered, once they are set."""
        self.is_closed = False

    @property
    def answering(self) -> int:
        """How many are answered; any thread may ask."""
        return sum(turn.is_set() for _, turn in list(self._queue))

    @property
    def waiting(self) -> int:
        return len(self._queue) - self.answering

    def check_open(self) -> None:
        """Check that there is a place.

        Raises:
            RefusedError: the queue is full or closed.
        """
        if self.is_closed:
            raise stopped()
        if self.answering >= self.at_once and self.waiting >= self._most_waiting:
            what = f"the queue is full ({counted(self.waiting, 'request')}); try again later"
            raise RefusedError(RefusalKind.BUSY, what)

    @contextmanager
    def enter(self, model: object) -> Generator[asyncio.Event, None, None]:
        """Hold a place at the end of the queue; the event is set once its turn comes.

        model: whoever answers; two models do not compute at once.

        Raises:
            RefusedError: the queue is full or closed.
        """
        self.check_open()
        turn = asyncio.Event()
        self._queue.append((model, turn))
        self._advance()
        try:
            yield turn
        finally:
            self._queue.remove((model, turn))
            self._advance()

    def close(self) -> None:
        """Refuse new requests, and grant no more turns."""
        self.is_closed = True

    def _advance(self) -> None:
        if self.is_closed:
            return
        for model, turn in islice(self._queue, self.at_once):
            if model is not self._queue[0][0]:
                return  # nobody is overtaken
            turn.set()


class Slots:
    """Slots of which only so many are taken at once; used on the server's event loop alone.

    what: what a place is for, as it is told to whom finds none.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self.taken = 0

    @contextmanager
    def take(self) -> Generator[None, None, None]:
        """Hold a place.

        Raises:
            RefusedError: all are taken.
        """
        if self.taken >= self._most:
            what = f"{self.taken} {self._what} already; try again later"
            raise RefusedError(RefusalKind.BUSY, what)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_TTFT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, turns: RequestQueue) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"specchat_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"specchat_{name}", what, registry=registry)

        self.responses = counter("responses", "Responses by path and status", "path", "status")
        self.gone = counter("disconnects", "Requests whose client went away before the end")
        self._prompt = counter("prompt_tokens", "Tokens of prompts, cached ones included")
        self._cached = counter("cached_prompt_tokens", "Tokens of prompts that were cached")
        self._completion = counter("completion_tokens", "Tokens of answers")
        self._steps = counter("steps", "Passes of the target that gave tokens of answers")
        self._drafted = counter("drafted_tokens", "Drafted tokens by drafter", "drafter")
        self._accepted = counter("accepted_tokens", "Accepted tokens by drafter", "drafter")
        self._prefill = counter("prefill_seconds", "Time spent on reading prompts")
        self._decode = counter("decode_seconds", "Time from first to last tokens of answers")
        self._rate = gauge("decode_tokens_per_second", "Decode rate of the last answer")
        self._speedup = gauge("speedup", "Decode rate of the last answer by that of plain decoding")
        gauge("requests_waiting", "Requests in the queue").set_function(lambda: turns.waiting)
        gauge("requests_answering", "Requests being answered").set_function(lambda: turns.answering)
        self._ttft = Histogram(
            "specchat_ttft_seconds",
            "Time from a request's turn to its first token",
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )

    def count_when_done(self, answer: Answer) -> None:
        """Count an answer once its figures are final: one that was stopped ends a step later."""
        uncounted = [answer]

        def count() -> None:
            if answer.is_done:
                with suppress(IndexError):  # two threads may see that it is done
                    self.count_reply(uncounted.pop())

        answer.listen(count)

    def count_reply(self, answer: Answer) -> None:
        metrics = answer.metrics
        if metrics is None:
            return
        self._prompt.inc(metrics.prompt_tokens)
        self._cached.inc(metrics.cached_prompt_tokens)
        self._completion.inc(metrics.completion_tokens)
        self._steps.inc(metrics.steps)
        self._prefill.inc(metrics.prefill_seconds or 0.0)
        self._decode.inc(metrics.decode_seconds or 0.0)
        for name, drafter in metrics.by_drafter.items():
            self._drafted.labels(name).inc(drafter.drafted)
            self._accepted.labels(name).inc(drafter.accepted)
        for value, tell in (
            (metrics.ttft_seconds, self._ttft.observe),
            (metrics.decode_tokens_per_second, self._rate.set),
            (metrics.speedup, self._speedup.set),
        ):
            if value is not None:
                tell(value)

    def text(self) -> bytes:
        return generate_latest(self._registry)


_LONGEST_SECONDS = 30.0
"""Time for which the note on a template is waited for; it takes a moment."""


class ServedEngine:
    """The engine that is served, and those beside it; see ServedModels."""

    def __init__(
        self, engine: Engine, limits: Limits, names: Sequence[str] = (), unload_after: float = 0.0
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.turns = RequestQueue(limits.waiting, engine.options.parallel or 1)
        if names:
            may_read = engine.may_read
            engine.may_read = lambda: (
                "a program is answered" if self.turns.answering else may_read()
            )
        self.models = ServedModels(engine, names, unload_after)
        self.reading = Slots(limits.waiting + 1, "requests arrive")
        self.counting = Slots(limits.waiting, "prompts wait to be counted")
        self.metrics = Metrics(self.turns)
        self.started_at = int(time.time())

    async def check(self, model: ServedModel, answers: Sequence[Answer]) -> None:
        """Build the prompts of some answers, if that is possible within a moment.

        Raises:
            RefusedError: the request cannot be answered.
        """
        if model.engine is None or not model.is_loaded:
            return  # its turn will tell
        prepared = asyncio.gather(
            *(asyncio.wrap_future(model.engine.prepare(answer)) for answer in answers)
        )
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes with the result.
            async with asyncio.timeout(self.limits.check_seconds):
                await prepared
        except TimeoutError:
            return  # its turn will tell
        except UsageError as error:
            raise refusal_of(error) from error
        except Exception:
            return  # its turn will tell, with a report

    async def count(self, model: ServedModel, answer: Answer) -> int:
        """Tokens of a prompt, counted beside a reply; a model that is not loaded is, in turn.

        Raises:
            RefusedError: there is no such prompt, or no model.
        """
        with self.models.use(model):
            if not model.is_loaded:
                with self.turns.enter(model) as turn:
                    await turn.wait()
                    await self.models.engine_of(model)
            engine = await self.models.engine_of(model)
            try:
                return await asyncio.wrap_future(engine.prepare(answer))
            except PromptTooLongError as error:
                return error.prompt_tokens
            except SpecchatError as error:
                raise refusal_of(error) from error


def template_note(engine: Engine) -> str:
    """Why the loaded model's chat template is not used, "" if it is: clients are not told."""
    probe = Answer(Request(Conversation("", [Message("user", "Hi")]), SamplingSettings(), 1))
    try:
        engine.prepare(probe).result(_LONGEST_SECONDS)
    except SpecchatError as error:
        return error.summary
    except TimeoutError:
        return ""
    return probe.note
