"""Ollama's chat and generate, and what its clients ask about models."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.chat.conversation import Conversation, Infill, RawText, ReplyOptions
from app.engine.reply import Request
from app.serve.dialect import AskedReply, Choose, Dialect, Frame, JsonObject, ReplyWriter
from app.serve.dialects.anthropic import parsed_arguments
from app.serve.dialects.chat import ChatTool, tools_of
from app.serve.dialects.openai import FINISH_REASONS, SamplingFields, WholeReply
from app.serve.incoming import json_body
from app.serve.offered_tools import OfferedTools, offered_tools
from app.serve.refusal import RefusalKind, RefusedError, invalid
from app.serve.request_body import (
    Fields,
    Items,
    Lenient,
    Source,
    TextPart,
    read_body,
    text_of,
    thinking,
)
from app.serve.served_engine import ServedEngine
from app.serve.served_models import ServedModel
from app.settings.answering import Answering
from app.tools import events
from backends.base import SpecchatError
from backends.chat.message import Message, ToolCall
from backends.chat.reply_form import THINK_ON
from backends.files.gguf_header import read_model
from decoding.constraint.grammar import Grammar, GrammarKind
from models.metadata.identity import projector_beside, stored_bytes
from models.names import quantization_of
from models.reference import Reference

_VERSION = "0.12.0"
"""Ollama's release whose API this is: clients refuse to speak with older ones than they know."""


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

    def request(
        self, turns: Conversation, defaults: Answering, model: ServedModel, offered: OfferedTools
    ) -> Request:
        grammar = None
        if self.format == "json":
            grammar = Grammar(GrammarKind.JSON_OBJECT)
        elif self.format:
            grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(self.format))
        effort = "none" if self.think is False else THINK_ON if self.think is True else self.think
        budget = thinking(turns, defaults, effort)
        options, longest = self.options, self.options.num_predict
        return Request(
            turns,
            options.sampling(defaults, model.n_vocab),
            longest if longest > 0 else 1 << 31,
            options=offered.options(ReplyOptions(options.stops, grammar, think_budget=budget)),
            tools=offered.tools,
            may_drop=False,
        )


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
    images: Items[str] = Field(default_factory=list[str])
    tool_calls: Items[Call] = Field(default_factory=list[Call])
    tool_name: str = ""
    name: str = ""


class ChatRequest(_Common):
    messages: Items[ChatMessage] = Field(default_factory=list[ChatMessage])
    tools: Items[ChatTool] = Field(default_factory=list[ChatTool])


class GenerateRequest(_Common):
    prompt: str = ""
    suffix: str | None = None
    system: str = ""
    images: Items[str] = Field(default_factory=list[str])
    raw: bool = False


def _with_images(text: str, images: Sequence[str], place: str) -> str:
    parts = [
        TextPart(type="image", source=Source(type="base64", data=image.rpartition(",")[2]))
        for image in images
    ]
    return text_of([*parts, TextPart(type="text", text=text)], place) if parts else text


def _turns(messages: Sequence[ChatMessage]) -> Iterator[Message]:
    """Turns of messages; a result answers the first open call of its name, or the first of all."""
    opened: list[ToolCall] = []
    for index, message in enumerate(messages):
        text = _with_images(message.content, message.images, f"messages.{index}.images")
        answers = ""
        if message.role == "tool":
            name = message.tool_name or message.name
            called = next((call for call in opened if call.name == name), None)
            called = called or (opened[0] if opened else None)
            if called is not None:
                opened.remove(called)
            answers = called.id if called else name or "unnamed"
        calls = tuple(
            ToolCall(f"call_{index}_{at}", call.function.name, json.dumps(call.function.arguments))
            for at, call in enumerate(message.tool_calls)
        )
        opened += calls
        yield Message(message.role, text, calls, answers)


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
                yield self._frame(event.text)
            case events.ReasoningDelta():
                yield self._frame("", thinking=event.text)
            case events.Ended():
                self._ended = event
                if self._reply.calls:
                    yield self._frame("", tool_calls=self._calls())
            case _:
                pass

    def end(self) -> Iterator[Frame]:
        yield Frame({**self._said(""), **self._figures()})

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        yield Frame(error_body(refusal))

    def body(self, choices: Sequence[Sequence[events.ReplyEvent]]) -> JsonObject:
        for event in (event for choice in choices for event in choice):
            for _ in self.frames(0, event):
                pass
        more: JsonObject = {"thinking": self._reply.reasoning} if self._reply.reasoning else {}
        if self._reply.calls:
            more["tool_calls"] = self._calls()
        return {**self._said(self._reply.text, more), **self._figures()}

    def heartbeat(self) -> Frame:
        return self._frame("")

    def _frame(self, text: str, **more: object) -> Frame:
        return Frame({**self._said(text, more), "done": False})

    def _said(self, text: str, more: JsonObject | None = None) -> JsonObject:
        head: JsonObject = {"model": self._model, "created_at": datetime.now(UTC).isoformat()}
        if self._is_chat:
            message = {"role": "assistant", "content": text, **(more or {})}
            return {**head, "message": message}
        return {**head, "response": text, **(more or {})}

    def _calls(self) -> list[JsonObject]:
        return [
            {"function": {"name": call.name, "arguments": parsed_arguments(call.arguments)}}
            for call in self._reply.calls
        ]

    def _figures(self) -> JsonObject:
        """How it ended, and what was measured; without a prompt the model was only loaded."""
        reason = "load"
        measured: dict[str, float | None] = {
            "total_duration": time.perf_counter() - self._begun_at,
            "load_duration": self.load_seconds,
        }
        counts: JsonObject = {}
        if self._ended is not None:
            usage, ended = self._ended.usage, FINISH_REASONS[self._ended.reason]
            reason = "length" if ended == "length" else "stop"
            measured["prompt_eval_duration"] = usage.prefill_seconds
            measured["eval_duration"] = usage.decode_seconds
            counts = {
                "prompt_eval_count": usage.prompt_tokens,
                "eval_count": usage.completion_tokens,
            }
        told = {name: round(1e9 * took) for name, took in measured.items() if took is not None}
        return {"done": True, "done_reason": reason, **told, **counts}


def error_body(refusal: RefusedError) -> JsonObject:
    return {"error": refusal.message}


def _asked(
    asked: _Common, model: ServedModel, request: Request | None, offered: OfferedTools
) -> tuple[AskedReply, OllamaWriter]:
    requests = () if request is None else (request,)
    splitter = offered.splitter if request is None or request.text is None else None
    reply = AskedReply(model, requests, asked.stream, splitter=splitter, form_field="format")
    return reply, OllamaWriter(model.name, is_chat=isinstance(asked, ChatRequest))


def _read_chat(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, OllamaWriter]:
    asked = read_body(ChatRequest, body)
    model = choose(asked.model)
    offered = offered_tools(tools_of(asked.tools))
    turns = Conversation.of(_turns(asked.messages))
    request = asked.request(turns, defaults, model, offered) if asked.messages else None
    return _asked(asked, model, request, offered)


def _read_generate(
    body: bytes, defaults: Answering, choose: Choose
) -> tuple[AskedReply, OllamaWriter]:
    asked = read_body(GenerateRequest, body)
    model, offered = choose(asked.model), OfferedTools()
    prompt = _with_images(asked.prompt, asked.images, "images")
    if (asked.raw or asked.suffix is not None) and (asked.system or asked.images):
        raise invalid("raw and suffix cannot be combined with system or images", "system")
    conversation = Conversation(asked.system, [Message("user", prompt)])
    request = asked.request(conversation, defaults, model, offered)
    if asked.suffix is not None:
        request = replace(request, text=Infill(asked.prompt, asked.suffix))
    elif asked.raw:
        request = replace(request, text=RawText(asked.prompt))
    return _asked(asked, model, request if prompt or asked.suffix else None, offered)


OLLAMA = (
    Dialect("/api/chat", _read_chat, error_body, "/api/"),
    Dialect("/api/generate", _read_generate, error_body, "/api/"),
)


class Named(Lenient):
    model: str = ""
    name: str = ""


def ollama_routes(served: ServedEngine) -> list[Route]:
    """What Ollama's clients ask about models; nothing is loaded for it."""

    async def tags(_: HttpRequest) -> Response:
        return JSONResponse({"models": [_listed(model) for model in served.models.listed()]})

    async def loaded(_: HttpRequest) -> Response:
        models = [
            {**_listed(model), "context_length": model.last.context_size}
            for model in served.models.all
            if model.is_loaded and model.last
        ]
        return JSONResponse({"models": models})

    async def version(_: HttpRequest) -> Response:
        return JSONResponse({"version": _VERSION})

    async def show(request: HttpRequest) -> Response:
        asked = read_body(Named, await json_body(request, served.limits))
        return JSONResponse(_shown(served.models.choose(asked.model or asked.name)))

    async def refused(_: HttpRequest) -> Response:
        what = "models are added and removed with `specchat models`, and served with --models"
        raise RefusedError(RefusalKind.FORBIDDEN, what)

    return [
        Route("/api/tags", tags),
        Route("/api/ps", loaded),
        Route("/api/version", version),
        Route("/api/show", show, methods=["POST"]),
        *(
            Route(f"/api/{verb}", refused, methods=["POST", "DELETE"])
            for verb in ("pull", "push", "create", "copy", "delete")
        ),
    ]


def _path(model: ServedModel) -> Path | None:
    if model.last is not None:
        return model.last.info.path
    return model.reference.path if isinstance(model.reference, Reference) else None


def _listed(model: ServedModel) -> JsonObject:
    head: JsonObject = {"name": model.name, "model": model.name, "details": _details(model)}
    if (path := _path(model)) is not None:
        with suppress(OSError, SpecchatError):
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            head |= {"size": stored_bytes(path), "modified_at": changed.isoformat()}
    return head


def _details(model: ServedModel) -> JsonObject:
    """As Ollama has them, "" for what is unknown before a model was loaded."""
    path, known = _path(model), model.last
    family, quantization, parameters = "", "", 0
    if known is not None:
        info = known.info
        family, quantization, parameters = info.architecture, info.quantization, info.parameters
    elif path is not None and path.is_file():
        with suppress(SpecchatError):
            header, tensors = read_model(path)
            family, quantization = header.architecture, quantization_of(path.name) or ""
            parameters = sum(tensor.parameters for tensor in tensors)
    return {
        "parent_model": "",
        "format": "mlx" if path and path.is_dir() else "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": f"{parameters / 1e9:.1f}B" if parameters else "",
        "quantization_level": quantization,
    }


def _shown(model: ServedModel) -> JsonObject:
    details, path, known = _details(model), _path(model), model.last
    family = str(details["family"])
    capabilities = ["completion", "tools"]
    if path is not None and projector_beside(path) is not None:
        capabilities.append("vision")
    facts: JsonObject = {"general.architecture": family}
    if known is not None:
        capabilities += ["thinking"] * known.can_think
        facts["general.parameter_count"] = known.info.parameters
        facts[f"{family}.context_length"] = known.context_size
    return {"details": details, "model_info": facts, "capabilities": capabilities}
