"""Answers by a server elsewhere: what it says and tells is taken in as a model's reply is."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.chat.conversation import Infill
from app.engine.metrics import ReplyMetrics, snapshot
from app.engine.reply import PredictedTokens, Reply, Request
from app.engine.report import MODEL, SAMPLED, SCHEMA, STATISTICS
from app.engine.status import Loaded
from app.learned.remote_verdicts import verdict_of
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.paths import Paths
from app.remote.address import Address
from app.remote.chat import (
    MOST_PREDICTED,
    RemoteText,
    grammar_fields,
    messages_of,
    not_sent,
    sampling_fields,
    thinking_fields,
)
from app.remote.connection import Connection
from app.remote.kinds import Kind, kind_of
from app.values import count_of, items, mapping, part_of, text_of
from backends.base import ModelInfo, Rollback, ServerError, UsageError
from backends.chat.chat_template import Prompt
from backends.chat.message import Message
from backends.chat.reply_form import PLAIN as PLAIN_FORM
from backends.chat.reply_form import THINK_AUTO, ReplyForm, ToolForm, split
from backends.engines.backend_selection import REMOTE
from decoding.events import Event, Finish, FinishReason, State, Step
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import DrafterStatistics
from models.reference import Reference

_FINISHED = {"length": FinishReason.LENGTH, "max_tokens": FinishReason.LENGTH}
_ANY_LENGTH = 1 << 30
SERVER = "the server"
"""What drafts, where only that is known."""
SERVER_DRAFTS = "with --backend remote the server drafts, if anything does"
"""Why nothing drafts here, as the rest of a sentence."""


def listed_models(options: SessionOptions) -> list[Mapping[str, Any]]:
    """The models that a server offers, as it describes them.

    Raises:
        SpecchatError: it cannot be asked, or has no such list.
    """
    return _listed(_connection(options))


def _connection(options: SessionOptions) -> Connection:
    return Connection(Address.of(options.url, options.remote_key_file, is_offline=options.offline))


def _listed(connection: Connection) -> list[Mapping[str, Any]]:
    told = connection.get("/models")
    models = [mapping(one) for one in items(told.get("data"))]
    if "data" not in told or any(not text_of(one.get("id")) for one in models):
        what = f"{connection.address.url} does not speak OpenAI's protocol"
        raise ServerError(what, "it has no list of models", "Its address mostly ends in /v1.")
    return models


def open_remote(
    options: SessionOptions, paths: Paths, notify: Callable[[str], None]
) -> "RemoteSession":
    """Ask the server for its models, and choose the named one, or else the first.

    Raises:
        SpecchatError: it cannot be asked, or has no model.
    """
    connection = _connection(options)
    address = connection.address
    notify(f"asking {address.url} for its models")
    models = _listed(connection)
    names = tuple(text_of(one["id"]) for one in models)
    if not (names or options.model):
        raise ServerError(f"{address.url} has no model", "", "Load one there, or name it: --model")
    asked, kind = options.model or names[0], kind_of(models)
    ignores = kind.ignores_names and len(names) == 1 and asked not in names
    name = names[0] if ignores else asked
    entry = next((one for one in models if one["id"] == name), mapping(None))
    told = count_of(entry.get("max_model_len")) or count_of(part_of(entry, "meta").get("n_ctx"))
    context = options.ctx or told
    notes = [
        address.warning,
        f"{address.url} does not list {asked}{f': {name} answers' if ignores else ''}"
        if asked not in names
        else "",
        f"{name} is the first of {len(names)} models; --model names another"
        if len(names) > 1 and not options.model
        else "",
        f"{kind.name} does not tell its context: {DEFAULT_CONTEXT:,} tokens are assumed; --ctx "
        "tells how many it has"
        if context is None
        else "",
    ]
    notes = tuple(filter(None, notes))
    return RemoteSession(paths, connection, kind, names, name, context or DEFAULT_CONTEXT, notes)


@dataclass(slots=True)
class RemoteSession:
    """A server's model, as what answers. One thread at a time may use it."""

    paths: Paths
    connection: Connection
    kind: Kind
    names: tuple[str, ...]
    """The models that it listed."""
    name: str
    context_size: int
    notes: tuple[str, ...]
    told: RemoteText = field(default_factory=RemoteText)
    """The latest answer."""
    _told_of: SamplingSettings | None = None
    """The settings of which it was told last that the server does not take them."""

    @property
    def info(self) -> ModelInfo:
        """Its name, context, server and address; texts and counts that are empty are unknown."""
        facts = "", "", 0, 0, 0, 0, 0, self.context_size, Rollback.NONE
        where = REMOTE, self.kind.name, self.connection.address.host, 0
        return ModelInfo(Path(), self.name, *facts, *where, image_refusal="")

    @property
    def loaded(self) -> Loaded:
        return Loaded(
            Reference(self.name, Path()),
            self.info,
            self.context_size,
            drafters=(),
            missing="",
            notes=self.notes,
            load_seconds=0.0,
            bandwidth=None,
            can_think=bool(self.kind.thinks),
        )

    @property
    def shortage(self) -> str:
        return ""

    def count(self, text: str) -> int:
        del text
        raise UsageError("tokens cannot be counted", "the server has the vocabulary")

    def close(self) -> None:
        pass

    def prompt(self, request: Request) -> tuple[Prompt, int]:
        """A prompt without tokens, which only the server knows: none is left out.

        Raises:
            UsageError: the server is not known to take such a request.
        """
        if request.draft is not None:
            raise UsageError("there is nothing to compare", SERVER_DRAFTS)
        if isinstance(request.text, Infill):
            raise UsageError("gaps are not filled by a server elsewhere")
        if request.partial and self.kind.continues is None:
            what = f"{self.kind.name} is not known to continue an answer"
            raise UsageError(what, "it would begin a new one", "Ask for the rest, or /again.")
        if request.partial and split(request.partial).is_thinking:
            raise UsageError("a server does not go on with a thought", "", "/again asks anew.")
        grammar_fields(request.options.grammar, self.kind)
        form = ReplyForm(ToolForm.HERMES) if request.tools else PLAIN_FORM
        note = "; ".join(self._limits(request))
        return Prompt([], note=note, form=form, is_conversation=request.text is None), 0

    def check(self, prompt: Prompt, request: Request, *, is_quick: bool) -> None:
        """Nothing more is known before the server is asked."""

    def _limits(self, request: Request) -> Generator[str]:
        """What a request asks for that the server does not do; settings are told of once."""
        settings, kind = request.settings, self.kind
        known, self._told_of = self._told_of, settings
        if (names := not_sent(settings, kind)) and (
            known is None or not_sent(known, kind) != names
        ):
            yield f"{kind.name} is not known to take {', '.join(names)}: they are not sent"
        if request.conversation.think != THINK_AUTO and not kind.thinks:
            yield f"{kind.name} is not known to choose how much it thinks"
        if request.options.think_budget:
            yield "no thinking budget is kept: only the server counts tokens"
        if settings.lossy_in_effect:
            yield "no lossy rule is kept: only the server drafts"

    def _body(self, request: Request) -> tuple[str, dict[str, Any]]:
        """The path of a request and its fields."""
        options, kind = request.options, self.kind
        body: dict[str, Any] = {
            "model": request.model or self.name,
            "stream": True,
            "stream_options": {"include_usage": True},
            **kind.asks,
            **sampling_fields(request.settings, kind),
            **grammar_fields(options.grammar, kind),
        }
        if request.max_tokens < _ANY_LENGTH:
            body["max_tokens"] = request.max_tokens
        if options.stops:
            body["stop"] = list(options.stops)
        if request.text is not None:
            return "/completions", {**body, "prompt": request.text}
        turns: Sequence[Message] = request.conversation.messages()
        if request.partial:
            turns = [*turns, Message("assistant", request.partial)]
            body |= kind.continues or {}
        body |= {"messages": list(messages_of(turns))}
        body |= thinking_fields(request.conversation.think, kind)
        if request.tools:
            from backends.chat.tools import tool_variables

            body["tools"] = tool_variables(request.tools)
        if kind.takes_prediction and (text := _predicted(request)):
            body["prediction"] = {"type": "content", "content": text}
        return "/chat/completions", body

    def stream(
        self, prompt: Prompt, reply: Reply, is_cancelled: Callable[[], bool]
    ) -> Generator[Event, None, None]:
        del prompt
        path, body = self._body(reply.request)
        told = self.told = RemoteText()
        reply.begun, statistics = (), reply.statistics
        chunks = self.connection.stream(path, body, is_cancelled)
        try:
            for chunk in chunks:
                known = len(told.text)
                told.feed(chunk)
                if len(told.text) > known:
                    at = time.perf_counter()
                    step = Step((), "", 0, 0, 0.0, 0.0, 0.0, at)
                    statistics.add(step)
                    self._take_in(reply, told)
                    yield step
        except ServerError:
            if not told.finish:
                self._take_in(reply, told)
                raise
        finally:
            chunks.close()
        told.end()
        self._take_in(reply, told)
        if is_cancelled() and not told.finish:
            reply.finish_reason = FinishReason.CANCELLED
        elif told.finish:
            reply.finish_reason = _FINISHED.get(told.finish, FinishReason.STOP)
        else:
            what = f"{self.connection.address.url} broke off"
            raise ServerError(what, "the answer has no end", "What was said so far is kept.")
        yield Finish(reply.finish_reason)

    def _take_in(self, reply: Reply, told: RemoteText) -> None:
        statistics = reply.statistics
        statistics.completion_tokens = told.completion_tokens or 0
        statistics.prompt_tokens = told.prompt_tokens or 0
        statistics.cached_prompt_tokens = told.cached_tokens or 0
        statistics.drafted = told.report.drafted or 0
        statistics.accepted = told.report.accepted or 0
        reply.text = told.text

    def metrics(self, reply: Reply) -> ReplyMetrics:
        """Figures of the latest reply: times as they are here, counts as the server tells them."""
        statistics, report = reply.statistics, self.told.report
        tokens, seconds = statistics.completion_tokens, statistics.decode_seconds
        drafter = DrafterStatistics(0, report.drafted or 0, report.accepted or 0)
        counts: dict[str, Any] = snapshot(statistics) | {
            "steps": 0,
            "by_drafter": {SERVER: drafter} if report.drafted else {},
        }
        return ReplyMetrics(
            model=self.info,
            context_used=statistics.prompt_tokens + tokens,
            context_size=self.context_size,
            state=State.ON if report.drafted else State.OFF,
            decode_tokens_per_second=(tokens - 1) / seconds if seconds and tokens > 1 else None,
            told_by_server=report.figures,
            server_ended=bool(self.told.finish),
            **counts,
        )

    def report(self, reply: Reply) -> dict[str, Any]:
        """As reply_report has it; what only a model here tells is None."""
        told, settings, metrics = self.told, reply.request.settings, self.metrics(reply)
        drafting, url = told.report, self.connection.address.url
        is_predicted = self.kind.takes_prediction and bool(_predicted(reply.request))
        predicted = PredictedTokens(*drafting.predicted) if drafting.predicted else None
        measured = ("ttft_seconds", "decode_seconds", "decode_tokens_per_second", "acceptance")
        known = {name: getattr(metrics, name) for name in measured} | {
            "prompt_tokens": told.prompt_tokens,
            "cached_prompt_tokens": told.cached_tokens,
            "completion_tokens": told.completion_tokens,
            "drafted": drafting.drafted,
            "accepted": drafting.accepted,
            "drafted_share": None if drafting.drafted is None else metrics.drafted_share,
        }
        sent = {"temperature", "top_p", "seed", *self.kind.sampling}
        return {
            "schema": SCHEMA,
            "text": reply.text,
            "token_ids": None,
            "finish_reason": reply.finish_reason,
            "lossless": verdict_of(self.paths, url, self.name, told.build),
            "lossy": None,
            "grammar": reply.grammar,
            "model": dict.fromkeys(MODEL)
            | {"ref": self.name, "name": told.model or self.name, "backend": REMOTE}
            | {"device": url, "context": self.context_size},
            "draft": dict.fromkeys(("requested", "state"))
            | {"reason": SERVER_DRAFTS, "drafters": [], "notes": []}
            | {"predicted": asdict(predicted) if predicted and is_predicted else None},
            "sampling": {
                name: getattr(settings, name) if name in sent else None for name in SAMPLED
            }
            | {"max_tokens": reply.request.max_tokens},
            "stats": {name: known.get(name) for name in STATISTICS},
            "server": {
                "kind": self.kind.name,
                "build": told.build or None,
                "drafting": dict(drafting.figures) or None,
            },
        }


def _predicted(request: Request) -> str:
    """What the reply may repeat, beside what is in its prompt, which the server has anyway."""
    text = request.options.prediction
    documents = request.documents() if request.documents is not None else ()
    for _, document in documents:
        if len(text) + len(document) <= MOST_PREDICTED:
            text = f"{text}\n\n{document}" if text else document
    return text
