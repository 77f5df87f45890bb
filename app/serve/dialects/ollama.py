"""Ollama's chat and generate, and what its clients ask about models."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.serve.dialect import AskedReply, Choose, Dialect, Frame, JsonObject, ReplyWriter
from app.serve.dialects import chat, completions
from app.serve.dialects.anthropic import parsed_arguments
from app.serve.dialects.completions import CompletionsRequest
from app.serve.dialects.openai import FINISH_REASONS, SamplingFields, WholeReply
from app.serve.incoming import json_body
from app.serve.refusal import RefusalKind, RefusedError, invalid
from app.serve.request_body import Fields, Items, Lenient, Source, TextPart, read_body
from app.serve.served_engine import ServedEngine
from app.serve.served_models import ServedModel
from app.settings.answering import Answering
from app.tools import events
from models.metadata.identity import projector_beside, stored_bytes

_VERSION = "0.12.0"
"""Ollama's release whose API this is: clients refuse to speak with older ones than they know."""


_Images = Annotated[Items[str], Field(max_length=64)]


class Options(SamplingFields):
    """What changes answers; a context that is too short is an error here, whatever num_ctx says."""

    ignored = frozenset((
        "num_ctx", "num_keep", "num_batch", "num_gpu", "num_thread", "main_gpu", "low_vram", "numa",
        "f16_kv", "use_mmap", "use_mlock", "logits_all", "vocab_only", "embedding_only",
    ))  # fmt: skip

    num_predict: Annotated[int, Field(ge=-2, le=1 << 31)] = -1
    """Negative: up to the end of the context."""


class _Common(Fields):
    ignored = frozenset({"keep_alive"})

    model: Annotated[str, Field(max_length=1024)] = ""
    stream: bool = True
    format: Literal["", "json"] | dict[str, object] = ""
    options: Options = Options()
    think: bool | Literal["low", "medium", "high"] | None = None

    @property
    def openai(self) -> dict[str, Any]:
        """What OpenAI's requests have as well, by its names."""
        fields = self.options.model_dump(exclude={"num_predict"}, exclude_defaults=True)
        if self.format:
            schema = None if self.format == "json" else self.format
            fields["response_format"] = {"type": "json_object", "schema": schema}
        longest = self.options.num_predict
        return {**fields, "stream": self.stream, "max_tokens": longest if longest > 0 else 1 << 31}


class Function(Lenient):
    name: str
    arguments: dict[str, object] = Field(default_factory=dict[str, object])


class Call(Lenient):
    function: Function


class ChatMessage(Fields):
    """One message; what was thought in earlier turns is not given to the model again."""

    ignored = frozenset({"thinking", "tool_call_id"})

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    images: _Images = Field(default_factory=list[str])
    tool_calls: Items[Call] = Field(default_factory=list[Call])
    tool_name: str = ""


class ChatRequest(_Common):
    messages: Items[ChatMessage] = Field(default_factory=list[ChatMessage])
    tools: Items[chat.ChatTool] = Field(default_factory=list[chat.ChatTool])

    def reply(self, defaults: Answering, model: ServedModel) -> AskedReply:
        if not self.messages:
            return AskedReply(model, (), self.stream)
        efforts: Mapping[object, str] = {True: "medium", False: "none"}
        effort = efforts.get(self.think, self.think)
        messages = list(_as_openai(self.messages))
        asked: dict[str, Any] = {**self.openai, "tools": self.tools, "reasoning_effort": effort}
        return chat.asked_reply(chat.ChatRequest(messages=messages, **asked), defaults, model)


class GenerateRequest(_Common):
    prompt: str = ""
    suffix: str | None = None
    system: str = ""
    images: _Images = Field(default_factory=list[str])
    raw: bool = False

    def reply(self, defaults: Answering, model: ServedModel) -> AskedReply:
        if self.raw or self.suffix is not None:
            if self.system or self.images:
                raise invalid("raw and suffix cannot be combined with system or images", "system")
            gap = CompletionsRequest(prompt=self.prompt, suffix=self.suffix, **self.openai)
            return completions.asked_reply(gap, defaults, model)
        asked: dict[str, Any] = {name: getattr(self, name) for name in _Common.model_fields}
        messages = [ChatMessage(role="system", content=self.system)] if self.system else []
        messages.append(ChatMessage(role="user", content=self.prompt, images=self.images))
        is_asked = self.prompt or self.images
        return ChatRequest(messages=messages if is_asked else [], **asked).reply(defaults, model)


def _as_openai(messages: Sequence[ChatMessage]) -> Iterator[chat.ChatMessage]:
    """Messages in OpenAI's form; a result answers the first open call of its name, else of all."""
    opened: list[chat.Call] = []
    for index, message in enumerate(messages):
        answered = ""
        if message.role == "tool" and opened:
            named = [call for call in opened if call.function.name == message.tool_name]
            answered = (named or opened)[0].id
            opened = [call for call in opened if call.id != answered]
        calls = [
            chat.Call(
                id=f"call_{index}_{at}",
                function=chat.Function(name=one.name, arguments=json.dumps(one.arguments)),
            )
            for at, one in enumerate(call.function for call in message.tool_calls)
        ]
        opened += calls
        parts = [
            TextPart(type="image", source=Source(type="base64", data=image))
            for image in message.images
        ]
        yield chat.ChatMessage(
            role=message.role,
            content=[*parts, TextPart(type="text", text=message.content)],
            tool_calls=calls,
            tool_call_id=answered,
        )


class OllamaWriter(ReplyWriter):
    """Writes lines of JSON. is_chat: whether text is told in messages."""

    is_lines = True

    def __init__(self, model: str, *, is_chat: bool) -> None:
        self._model = model
        self._is_chat = is_chat
        self._begun_at = time.perf_counter()
        self._reply = WholeReply()
        self._ended: events.Ended | None = None

    def frames(self, choice: int, event: events.ReplyEvent) -> Iterator[Frame]:
        del choice
        self._reply.add(event)
        match event:
            case events.Begun():
                self._model = event.model
            case events.TextDelta() if event.text:
                yield self._frame(event.text, {})
            case events.ReasoningDelta():
                yield self._frame("", {"thinking": event.text})
            case events.Ended():
                self._ended = event
                if self._reply.calls:
                    yield self._frame("", self._calls())
            case _:
                pass

    def end(self) -> Iterator[Frame]:
        yield Frame({**self._said("", {}), **self._figures()})

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        yield Frame(error_body(refusal))

    def body(self, choices: Sequence[Sequence[events.ReplyEvent]]) -> JsonObject:
        for event in (event for choice in choices for event in choice):
            for _ in self.frames(0, event):
                pass
        reply, more = self._reply, self._calls()
        if reply.reasoning:
            more["thinking"] = reply.reasoning
        return {**self._said(reply.text, more), **self._figures()}

    def heartbeat(self) -> Frame:
        return self._frame("", {})

    def _frame(self, text: str, more: JsonObject) -> Frame:
        return Frame({**self._said(text, more), "done": False})

    def _said(self, text: str, more: JsonObject) -> JsonObject:
        head: JsonObject = {"model": self._model, "created_at": datetime.now(UTC).isoformat()}
        if self._is_chat:
            return {**head, "message": {"role": "assistant", "content": text, **more}}
        return {**head, "response": text, **more}

    def _calls(self) -> JsonObject:
        calls = [
            {"function": {"name": call.name, "arguments": parsed_arguments(call.arguments)}}
            for call in self._reply.calls
        ]
        return {"tool_calls": calls} if calls else {}

    def _figures(self) -> JsonObject:
        """How it ended, and what was measured, in ns; without a prompt it was only loaded."""
        took: dict[str, float | None] = {
            "total": time.perf_counter() - self._begun_at,
            "load": self.load_seconds,
        }
        told: JsonObject = {"done": True, "done_reason": "load"}
        if self._ended is not None:
            usage, reason = self._ended.usage, FINISH_REASONS[self._ended.reason]
            took |= {"prompt_eval": usage.prefill_seconds, "eval": usage.decode_seconds}
            told["done_reason"] = "length" if reason == "length" else "stop"
            told["prompt_eval_count"] = usage.prompt_tokens
            told["eval_count"] = usage.completion_tokens
        known = {name: seconds for name, seconds in took.items() if seconds is not None}
        return told | {f"{name}_duration": round(1e9 * known[name]) for name in known}


def error_body(refusal: RefusedError) -> JsonObject:
    return {"error": refusal.message}


def _dialect(path: str, kind: type[ChatRequest | GenerateRequest]) -> Dialect:
    def read(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, OllamaWriter]:
        asked = read_body(kind, body)
        model = choose(asked.model)
        writer = OllamaWriter(model.name, is_chat=kind is ChatRequest)
        return asked.reply(defaults, model), writer

    return Dialect(path, read, error_body, "/api/")


OLLAMA = (_dialect("/api/chat", ChatRequest), _dialect("/api/generate", GenerateRequest))


class Named(Lenient):
    model: str = ""
    name: str = ""


def ollama_routes(served: ServedEngine) -> list[Route]:
    """What Ollama's clients ask about models; nothing is loaded for it."""

    async def tags(_: HttpRequest) -> Response:
        return JSONResponse({"models": [_listed(model) for model in served.models.listed()]})

    async def loaded(_: HttpRequest) -> Response:
        running = [_listed(model) for model in served.models.all if model.is_loaded]
        return JSONResponse({"models": running})

    async def version(_: HttpRequest) -> Response:
        return JSONResponse({"version": _VERSION})

    async def show(request: HttpRequest) -> Response:
        asked = read_body(Named, await json_body(request, served.limits))
        return JSONResponse(_shown(served.models.choose(asked.model or asked.name)))

    async def refused(_: HttpRequest) -> Response:
        what = "models are added and removed with `specchat models`, and served with --models"
        raise RefusedError(RefusalKind.FORBIDDEN, what)

    return [
        Route("/", version),  # asked for by Ollama's own program, to see whether it runs
        Route("/api/tags", tags),
        Route("/api/ps", loaded),
        Route("/api/version", version),
        Route("/api/show", show, methods=["POST"]),
        *(
            Route(f"/api/{verb}", refused, methods=["POST", "DELETE"])
            for verb in ("pull", "push", "create", "copy", "delete")
        ),
    ]


def _listed(model: ServedModel) -> JsonObject:
    """As Ollama lists a model; what is not known before it was loaded is left out."""
    head: JsonObject = {"name": model.name, "model": model.name, "details": {}}
    if (path := model.path) is not None:
        with suppress(OSError):
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            head |= {"size": stored_bytes(path), "modified_at": changed.isoformat()}
    if model.last is not None:
        info = model.last.info
        head["details"] = {
            "format": "mlx" if info.path.is_dir() else "gguf",
            "family": info.architecture,
            "families": [info.architecture],
            "parameter_size": f"{info.parameters / 1e9:.1f}B",
            "quantization_level": info.quantization,
        }
        head["context_length"] = model.last.context_size
    return head


def _shown(model: ServedModel) -> JsonObject:
    capabilities, facts = ["completion", "tools"], JsonObject()
    if model.path is not None and projector_beside(model.path) is not None:
        capabilities.append("vision")
    if (known := model.last) is not None:
        capabilities += ["thinking"] * known.can_think
        family = known.info.architecture
        facts = {
            "general.architecture": family,
            "general.parameter_count": known.info.parameters,
            f"{family}.context_length": known.context_size,
        }
    details = _listed(model)["details"]
    return {"details": details, "model_info": facts, "capabilities": capabilities}
