"""What OpenAI's dialects share: fields, forms of replies, figures and errors."""

import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.serve.dialect import Frame, JsonObject, ReplyWriter
from app.serve.refusal import RefusalKind, RefusedError, invalid
from app.serve.request_body import Fields, Items, Lenient, asked_sampling
from app.serve.server_options import MOST_BIASES, MOST_CHOICES, MOST_STOP_CHARACTERS, MOST_STOPS
from app.settings.answering import Answering
from app.tools import events
from backends.chat.message import ToolCall
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings

_DONE = Frame("[DONE]")
_TYPES: Mapping[RefusalKind, str] = {
    RefusalKind.UNAUTHORIZED: "authentication_error",
    RefusalKind.FORBIDDEN: "permission_error",
    RefusalKind.NOT_FOUND: "not_found_error",
    RefusalKind.NO_MODEL: "not_found_error",
    RefusalKind.FAILED: "server_error",
    RefusalKind.BUSY: "overloaded_error",
    RefusalKind.LOADING: "unavailable_error",
    RefusalKind.STOPPED: "unavailable_error",
}
_CODES: Mapping[RefusalKind, str] = {
    RefusalKind.CONTEXT_EXCEEDED: "context_length_exceeded",
    RefusalKind.UNAUTHORIZED: "invalid_api_key",
    RefusalKind.NO_MODEL: "model_not_found",
    RefusalKind.BUSY: "queue_full",
    RefusalKind.LOADING: "model_not_loaded",
    RefusalKind.STOPPED: "answer_stopped",
}


FINISH_REASONS = {
    events.EndReason.STOP: "stop",
    events.EndReason.STOP_SEQUENCE: "stop",
    events.EndReason.LENGTH: "length",
    events.EndReason.CONTEXT: "length",
    events.EndReason.TOOL_CALLS: "tool_calls",
}
Count = Annotated[int, Field(ge=1, le=1 << 31)]


def error_body(refusal: RefusedError) -> JsonObject:
    error = {
        "message": refusal.message,
        "type": _TYPES.get(refusal.kind, "invalid_request_error"),
        "param": refusal.param or None,
        "code": _CODES.get(refusal.kind),
    }
    return {"error": error}


Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]


def _few(biases: object) -> object:
    """Refuse too many biases before each is checked."""
    if isinstance(biases, dict) and len(cast("dict[str, object]", biases)) > MOST_BIASES:
        raise PydanticCustomError(
            "too_long", "must have at most {most} tokens", {"most": MOST_BIASES}
        )
    return cast("object", biases)


class StreamOptions(Lenient):
    include_usage: bool = False


class JsonSchema(Fields):
    """A schema by name; every schema is kept to exactly, whether strict or not."""

    ignored = frozenset({"name", "description", "strict"})

    schema_: Annotated[dict[str, object], Field(alias="schema")] = Field(
        default_factory=dict[str, object]
    )


class ResponseFormat(Fields):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[dict[str, object] | None, Field(alias="schema")] = None
    """As llama-server takes it, beside json_object."""

    def grammar(self) -> Grammar | None:
        if self.type == "text":
            return None
        if self.type == "json_object" and self.schema_ is None:
            return Grammar(GrammarKind.JSON_OBJECT)
        schema = self.schema_ if self.json_schema is None else self.json_schema.schema_
        if schema is None:
            what = "response_format.json_schema"
            raise invalid(f"{what} is missing", what)
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


_AS_NAMED = {"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"}
"""Settings that have the names of these fields."""


class SamplingFields(Fields):
    """What says how a reply is drawn; fields that OpenAI does not have come last."""

    seed: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    """-1 for any, as llama-server has it."""
    stop: Stop | Annotated[Items[Stop], Field(max_length=MOST_STOPS)] = Field(
        default_factory=list[str]
    )
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    logit_bias: Annotated[
        dict[
            Annotated[int, Field(ge=0, strict=False)], Annotated[float, Field(ge=-100.0, le=100.0)]
        ],
        BeforeValidator(_few),
    ] = Field(default_factory=dict[int, float])

    top_k: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    repeat_penalty: Annotated[float, Field(ge=0.01, le=100.0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100.0)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self, defaults: Answering, n_vocab: int | None) -> SamplingSettings:
        if n_vocab and any(token >= n_vocab for token in self.logit_bias):
            raise invalid(f"the model has tokens 0 to {n_vocab - 1:,}", "logit_bias")
        return asked_sampling(
            defaults,
            seed=None if self.seed == -1 else self.seed,
            repeat_penalty=self.repeat_penalty or self.repetition_penalty,
            logit_bias=tuple(self.logit_bias.items()) or None,
            **self.model_dump(include=_AS_NAMED),
        )


class CommonFields(SamplingFields):
    ignored = frozenset((
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_options", "prompt_cache_retention", "cache_prompt", "timings_per_token",
    ))  # fmt: skip

    model: Annotated[str, Field(max_length=1024)] = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    grammar: Annotated[str, Field(min_length=1, max_length=1 << 20)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def form_field(self) -> str:
        return "response_format" if self.grammar is None else "grammar"

    @property
    def form(self) -> Grammar | None:
        grammar = self.response_format.grammar() if self.response_format is not None else None
        if self.grammar is None:
            return grammar
        if grammar is not None:
            raise invalid("response_format and grammar contradict each other", "grammar")
        return Grammar(GrammarKind.GBNF, self.grammar)


@dataclass(slots=True)
class WholeReply:
    text: str = ""
    reasoning: str = ""
    logprobs: list[events.TokenLogprob] = field(default_factory=list[events.TokenLogprob])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    reason: str = ""

    def add(self, event: events.ReplyEvent) -> None:
        match event:
            case events.TextDelta():
                self.text += event.text
                self.logprobs += event.logprobs
            case events.ReasoningDelta():
                self.reasoning += event.text
            case events.ToolCallBegun():
                self.calls.append(ToolCall(event.id, event.name, ""))
            case events.ToolArguments():
                call = self.calls[event.index]
                self.calls[event.index] = replace(call, arguments=call.arguments + event.text)
            case events.Ended():
                self.reason = FINISH_REASONS[event.reason]
            case events.Begun():
                pass


class OpenAIWriter(ReplyWriter):
    """Writes replies in what is common to chat and completions.

    model: the one that is expected to answer. kind, chunk_kind: of whole replies and of chunks.
    """

    def __init__(
        self, model: str, asked: CommonFields, prefix: str, kind: str, chunk_kind: str
    ) -> None:
        self._kind, self._chunk_kind = kind, chunk_kind
        self._head: JsonObject = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"specchat-{version('specchat')}",
        }
        self._asked = asked
        self._ended: list[events.Ended] = []

    @abstractmethod
    def choices(self, choice: int, event: events.ReplyEvent) -> Iterable[JsonObject]:
        """What an event adds to a choice of a stream."""

    @abstractmethod
    def whole(self, choice: int, reply: WholeReply) -> JsonObject:
        """A choice that is not streamed."""

    def frames(self, choice: int, event: events.ReplyEvent) -> Iterator[Frame]:
        self._note(event)
        for added in self.choices(choice, event):
            yield Frame({**self._head, "object": self._chunk_kind, "choices": [added]})

    def end(self) -> Iterator[Frame]:
        if self._asked.stream_options.include_usage:
            head = {**self._head, "object": self._chunk_kind}
            yield Frame({**head, "choices": [], **self._figures()})
        yield _DONE

    def failure(self, refusal: RefusedError) -> Iterable[Frame]:
        return (Frame(error_body(refusal)), _DONE)

    def body(self, choices: Sequence[Sequence[events.ReplyEvent]]) -> JsonObject:
        written: list[JsonObject] = []
        for index, told in enumerate(choices):
            reply = WholeReply()
            for event in told:
                self._note(event)
                reply.add(event)
            written.append(self.whole(index, reply))
        return {**self._head, "object": self._kind, "choices": written, **self._figures()}

    def _note(self, event: events.ReplyEvent) -> None:
        if isinstance(event, events.Begun):
            self._head["model"] = event.model
        elif isinstance(event, events.Ended):
            self._ended.append(event)

    def _figures(self) -> JsonObject:
        usage = usage_of(self._ended, self._asked.n)
        return {"usage": usage, "timings": timings_of(self._ended)}


def token_text(data: bytes) -> str:
    """The text of a token; of a part of a character its bytes, as OpenAI writes them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def usage_of(choices: Sequence[events.Ended], per_prompt: int) -> JsonObject:
    """Usage of all choices; per_prompt: so many have the same prompt, which counts once."""
    usages = [choice.usage for choice in choices]
    prompts = usages[::per_prompt]
    prompt = sum(usage.prompt_tokens for usage in prompts)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(u.cached_prompt_tokens for u in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(usage.reasoning_tokens for usage in usages),
            "accepted_prediction_tokens": sum(u.accepted_prediction_tokens for u in usages),
            "rejected_prediction_tokens": sum(u.rejected_prediction_tokens for u in usages),
        },
    }


def timings_of(choices: Sequence[events.Ended]) -> JsonObject:
    """What all choices took together, by llama-server's names; null where it was not measured.

    A prompt is read again for each choice, as far as it is not cached.
    """
    usages = [choice.usage for choice in choices]
    cached = sum(usage.cached_prompt_tokens for usage in usages)
    return {
        "cache_n": cached,
        "prompt_n": sum(usage.prompt_tokens for usage in usages) - cached,
        "prompt_ms": _milliseconds([usage.prefill_seconds for usage in usages]),
        "predicted_n": sum(usage.completion_tokens for usage in usages),
        "predicted_ms": _milliseconds([usage.decode_seconds for usage in usages]),
        "predicted_per_second": _decode_rate(usages),
        "draft_n": sum(usage.drafted for usage in usages),
        "draft_n_accepted": sum(usage.accepted for usage in usages),
    }


def _milliseconds(seconds: Sequence[float | None]) -> float | None:
    """The sum of what was measured; None if nothing was."""
    measured = [second for second in seconds if second is not None]
    return 1000.0 * sum(measured) if measured else None


def _decode_rate(usages: Sequence[events.Usage]) -> float | None:
    """Decode rate over all choices that have one: each counts as long as it took."""
    measured = [
        (usage.decode_tokens_per_second * usage.decode_seconds, usage.decode_seconds)
        for usage in usages
        if usage.decode_tokens_per_second is not None and usage.decode_seconds is not None
    ]
    seconds = sum(second for _, second in measured)
    return sum(tokens for tokens, _ in measured) / seconds if seconds else None
