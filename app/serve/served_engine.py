"""The engine as the server sees it: what is loaded, and the queue in front of it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from app.chat.conversation import Conversation
from app.engine.asking.answer import Answer, Request
from app.engine.engine import Engine
from app.engine.engine_status import Loaded, Phase
from app.serve.answers.places import Places
from app.serve.answers.reply_reader import refusal_of
from app.serve.answers.turns import Turns
from app.serve.limits import Limits
from app.serve.metrics import Metrics
from app.serve.refusal import RefusalKind, RefusedError
from backends.base import SpecchatError, UsageError
from backends.chat.message import Message
from decoding.sampling.sampling_settings import SamplingSettings

_LONGEST_SECONDS = 30.0
"""Time for which the note on a template is waited for; it takes a moment."""


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """An engine with its queue, its bounds and its metrics."""

    engine: Engine
    limits: Limits
    turns: Turns
    reading: Places
    """For requests whose bodies arrive."""
    counting: Places
    """For requests whose tokens are to be counted, beside the queue."""
    metrics: Metrics
    started_at: int
    """When, in seconds since 1970."""

    @classmethod
    def of(cls, engine: Engine, limits: Limits) -> Self:
        """An engine with an empty queue."""
        turns = Turns(limits.waiting)
        reading = Places(limits.waiting + 1, "requests arrive")
        counting = Places(limits.waiting, "prompts wait to be counted")
        return cls(engine, limits, turns, reading, counting, Metrics(turns), int(time.time()))

    @property
    def loaded(self) -> Loaded:
        """What is loaded now.

        Raises:
            RefusedError: nothing is; it is loading, or that failed.
        """
        status = self.engine.status
        if status.loaded is not None and status.phase is Phase.READY:
            return status.loaded
        why = status.error.summary if status.error else "the model is loading; try again later"
        raise RefusedError(RefusalKind.LOADING, why)

    async def check(self, answers: Sequence[Answer]) -> None:
        """Build the prompts of some answers, if that is possible within a moment.

        Raises:
            RefusedError: the request cannot be answered.
        """
        prepared = asyncio.gather(
            *(asyncio.wrap_future(self.engine.prepare(answer)) for answer in answers)
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


def template_note(engine: Engine) -> str:
    """Why the loaded model's chat template is not used, "" if it is: clients are not told."""
    probe = Answer(Request(Conversation("", [Message("user", "Hi")]), SamplingSettings(), 1))
    try:
        engine.prepare(probe).result(_LONGEST_SECONDS)
    except SpecchatError as error:
        return error.summary
    except TimeoutError:
        return ""
    return probe.prepared[1].note if probe.prepared is not None else ""
