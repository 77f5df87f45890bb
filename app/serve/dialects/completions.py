"""OpenAI's text completions, also into a gap."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation, Infill, RawText, ReplyOptions
from app.engine.answer import Request
from app.engine.status import Loaded
from app.serve.dialect import (
    AskedReply,
    Begun,
    Ended,
    Frame,
    Json,
    ReplyEvent,
    ReplyWriter,
    TextDelta,
    TokenLogprob,
)
from app.serve.dialects.chat import FINISH_REASONS
from app.serve.dialects.openai import (
    CommonFields,
    ResponseFormat,
    asked_grammar,
    completion_logprobs_of,
    error_body,
    timings_of,
    usage_of,
)
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Items, read_body, seeds
from app.serve.server_options import MOST_CHOICES, MOST_TOP_LOGPROBS
from app.settings.answering import Answering


class CompletionsRequest(CommonFields):
    """The body of a request to /v1/completions; a prompt is text, not tokens."""

    prompt: str | Annotated[Items[str], Field(min_length=1, max_length=MOST_CHOICES)]
    suffix: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    echo: Literal[False] = False
    best_of: Literal[1] = 1

    def requests(self, defaults: Answering, loaded: Loaded) -> tuple[Request, ...]:
        """A request for each choice, those of the first prompt first.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if self.n * len(prompts) > MOST_CHOICES:
            raise invalid(f"at most {MOST_CHOICES} choices in all", "n")
        sampling = self.sampling(defaults, loaded.info.n_vocab)
        longest = self.max_tokens or defaults.max_tokens
        options = ReplyOptions(
            stops=self.stops,
            grammar=asked_grammar(self.response_format, self.grammar),
            top_logprobs=self.logprobs,
        )
        return tuple(
            Request(
                Conversation(),
                replace(sampling, seed=seed),
                longest,
                options=options,
                text=RawText(prompt) if self.suffix is None else Infill(prompt, self.suffix),
                may_drop=False,
            )
            for prompt in prompts
            for seed in seeds(sampling.seed, self.n)
        )


JsonObject = dict[str, object]


class CompletionsWriter:
    """Writes the replies to one request; model: the one that is expected to answer.

    choices: of each prompt.
    """

    def __init__(
        self, model: str, *, choices: int, includes_usage: bool, has_logprobs: bool
    ) -> None:
        self._head: JsonObject = {
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

    def _figures(self) -> JsonObject:
        return {"usage": usage_of(self._ended, self._choices), "timings": timings_of(self._ended)}

    def _chunk(
        self, choice: int, text: str, tokens: Sequence[TokenLogprob], reason: str | None = None
    ) -> Frame:
        return Frame({**self._head, "choices": [self._choice(choice, text, tokens, reason)]})

    def _choice(
        self, index: int, text: str, tokens: Sequence[TokenLogprob], reason: str | None
    ) -> JsonObject:
        logprobs = completion_logprobs_of(tokens) if self._has_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


@dataclass(frozen=True, slots=True)
class Completions:
    """The dialect of /v1/completions; defaults: what holds for what is not asked for."""

    defaults: Answering
    path: str = "/v1/completions"

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks for."""
        asked = read_body(CompletionsRequest, body)
        writer = CompletionsWriter(
            model.name,
            choices=asked.n,
            includes_usage=asked.stream_options.include_usage,
            has_logprobs=asked.logprobs is not None,
        )
        reply = AskedReply(
            asked.requests(self.defaults, model),
            asked.stream,
            asked.n,
            prompt_field="prompt",
            form_field=asked.form_field,
        )
        return reply, writer

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        return error_body(refusal)
