"""Writes replies as OpenAI's text completions."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence

from app.serve.dialect import Frame, Json
from app.serve.openai.chat_writer import FINISH_REASONS
from app.serve.openai.logprobs import completion_logprobs_of
from app.serve.openai.openai_error import error_body
from app.serve.openai.usage import timings_of, usage_of
from app.serve.refusal import RefusedError
from app.serve.reply_events import Begun, Ended, ReplyEvent, TextDelta, TokenLogprob

Fields = dict[str, object]


class CompletionsWriter:
    """Writes the replies to one request; model: the one that is expected to answer.

    choices: of each prompt.
    """

    def __init__(
        self, model: str, *, choices: int, includes_usage: bool, has_logprobs: bool
    ) -> None:
        self._head: Fields = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._choices = choices
        self._includes_usage = includes_usage
        self._has_logprobs = has_logprobs
        self._ended: list[Ended] = []

    def frames(self, choice: int, event: ReplyEvent) -> Iterator[Frame]:
        """One event of a choice as chunks; text alone is told."""
        if isinstance(event, Begun):
            self._head["model"] = event.model
        elif isinstance(event, TextDelta):
            yield self._chunk(choice, event.text, event.logprobs)
        elif isinstance(event, Ended):
            self._ended.append(event)
            yield self._chunk(choice, "", (), FINISH_REASONS[event.reason])

    def end(self) -> Iterator[Frame]:
        """The usage, if it was asked for, and the mark of the end."""
        if self._includes_usage:
            yield Frame({**self._head, "choices": [], **self._figures()})
        yield Frame("[DONE]")

    def failure(self, refusal: RefusedError) -> Iterable[Frame]:
        """The error as the last chunk."""
        return (Frame(error_body(refusal)), Frame("[DONE]"))

    def heartbeat(self) -> Frame | None:
        """A comment."""
        return None

    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> Json:
        """All choices as one object."""
        written = [self._whole(index, events) for index, events in enumerate(choices)]
        return {**self._head, "choices": written, **self._figures()}

    def _whole(self, index: int, events: Sequence[ReplyEvent]) -> Json:
        for event in events:
            if isinstance(event, Begun):
                self._head["model"] = event.model
        deltas = [event for event in events if isinstance(event, TextDelta)]
        ended = [event for event in events if isinstance(event, Ended)]
        self._ended += ended
        tokens = [token for delta in deltas for token in delta.logprobs]
        text = "".join(delta.text for delta in deltas)
        return self._choice(index, text, tokens, FINISH_REASONS[ended[-1].reason])

    def _figures(self) -> Fields:
        return {"usage": usage_of(self._ended, self._choices), "timings": timings_of(self._ended)}

    def _chunk(
        self, choice: int, text: str, tokens: Sequence[TokenLogprob], reason: str | None = None
    ) -> Frame:
        return Frame({**self._head, "choices": [self._choice(choice, text, tokens, reason)]})

    def _choice(
        self, index: int, text: str, tokens: Sequence[TokenLogprob], reason: str | None
    ) -> Fields:
        logprobs = completion_logprobs_of(tokens) if self._has_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
