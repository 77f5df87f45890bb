"""A request as a server reads it, and the text that its answer adds up to."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from app.remote.kinds import Kind
from app.values import count_of, items, mapping, part_of, text_of
from backends.base import UsageError
from backends.base.images import Image, with_images
from backends.chat.message import Message
from backends.chat.reply_form import (
    CLOSE,
    OPEN,
    THINK_AUTO,
    THINK_OFF,
    THINK_ON,
    split,
    thinking_variables,
)
from backends.chat.tools import as_object, message_variables
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings

MOST_PREDICTED = 200_000
"""Characters of a prediction: more takes longer to send than it can save. A guess."""

_KIND_IMAGES = {"JPEG": "jpeg", "PNG": "png", "GIF": "gif", "WEBP": "webp"}
_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}


def messages_of(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Turns as OpenAI's protocol has them; an answer goes without what was thought before it."""
    told = [
        Message(one.role, split(one.content).answer, one.calls, one.answers)
        if one.role == "assistant"
        else one
        for one in messages
    ]
    for turn in message_variables(told, arguments_as_text=True):
        turn.pop("name", None)
        pieces = with_images(str(turn["content"]))
        if len(pieces) > 1:
            turn["content"] = [*_parts(pieces)]
        yield turn


def _parts(pieces: Iterable[str | Image]) -> Iterator[dict[str, Any]]:
    from base64 import b64encode

    for piece in pieces:
        if isinstance(piece, Image):
            kind = f"image/{_KIND_IMAGES.get(piece.kind, piece.kind.lower())}"
            url = f"data:{kind};base64,{b64encode(piece.data).decode()}"
            yield {"type": "image_url", "image_url": {"url": url}}
        elif piece:
            yield {"type": "text", "text": piece}


def sampling_fields(settings: SamplingSettings, kind: Kind) -> dict[str, Any]:
    """Settings by the server's names, of those that it is known to take."""
    names = {name: name for name in ("temperature", "top_p", "seed")} | dict(kind.sampling)
    values = {theirs: getattr(settings, ours) for ours, theirs in names.items()}
    if "top_k" in values and not settings.top_k:
        values["top_k"] = kind.all_tokens
    return values


def not_sent(settings: SamplingSettings, kind: Kind) -> list[str]:
    """Settings that a server is not known to take, where they would change an answer."""
    names = (name for name in _NEUTRAL if name not in kind.sampling)
    return [name for name in names if getattr(settings, name) != _NEUTRAL[name]]


def thinking_fields(think: str, kind: Kind) -> dict[str, Any]:
    if think == THINK_AUTO or not kind.thinks:
        return {}
    if kind.thinks == "template":
        return {"chat_template_kwargs": thinking_variables(think, "'none'")}
    return {"reasoning_effort": {THINK_OFF: "none", THINK_ON: "medium"}.get(think, think)}


def grammar_fields(grammar: Grammar | None, kind: Kind) -> dict[str, Any]:
    """Fields for what an answer must match.

    Raises:
        UsageError: the server takes no such grammar.
    """
    if grammar is None:
        return {}
    if grammar.kind is GrammarKind.JSON_OBJECT:
        return {"response_format": {"type": "json_object"}}
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        schema = {"name": "answer", "strict": True, "schema": as_object(grammar.text) or {}}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if grammar.kind is GrammarKind.GBNF and kind.takes_gbnf:
        return {"grammar": grammar.text}
    what = f"{kind.name} is not known to take a grammar of this kind"
    raise UsageError(what, "", "Use --schema, or --backend auto.")


# What servers tell of drafting beside an answer, as they name it.

_DRAFTED_AND_ACCEPTED = (
    ("timings", "draft_n", "draft_n_accepted"),  # llama-server, specchat, mlx-vlm
    ("metrics.speculative_decoding", "num_draft_tokens", "num_accepted_draft_tokens"),  # vLLM
    ("sglext.spec_tokens_details", "spec_num_proposed_drafts", "spec_num_correct_drafts"),  # SGLang
    ("meta_info", "spec_draft_token_num", "spec_accept_token_num"),  # SGLang, older
    ("stats", "total_draft_tokens_count", "accepted_draft_tokens_count"),  # LM Studio
    ("usage", "total_draft_tokens_count", "accepted_draft_tokens_count"),  # LM Studio's own API
)
"""Where the counts of drafted and of accepted tokens are: vLLM's pull request 48915, SGLang's 33518
and 13754, LM Studio's changelog of 0.3.10, mlx-vlm's 1788."""

_OF_DRAFTING = ("draft", "spec", "accept", "num_")
_PREDICTED = "usage.completion_tokens_details"


@dataclass(frozen=True, slots=True)
class DraftReport:
    """figures: all that was told, by its path; drafted, accepted: None where it is not told.

    predicted: accepted and rejected tokens of a predicted text, None where it is not told.
    """

    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    drafted: int | None = None
    accepted: int | None = None
    predicted: tuple[int, int] | None = None

    def with_chunk(self, chunk: Mapping[str, Any]) -> "DraftReport":
        """The report with what a further part of the answer tells; the last one counts."""
        figures, drafted, accepted = dict(self.figures), self.drafted, self.accepted
        for path, drafted_name, accepted_name in _DRAFTED_AND_ACCEPTED:
            part = part_of(chunk, path)
            if (told := count_of(part.get(drafted_name))) is not None:
                drafted, accepted = told, count_of(part.get(accepted_name))
                figures |= dict(_figures(path, part))
        details = part_of(chunk, _PREDICTED)
        pair = [
            count_of(details.get(f"{one}_prediction_tokens")) for one in ("accepted", "rejected")
        ]
        predicted = cast("tuple[int, int]", tuple(pair)) if None not in pair else self.predicted
        return DraftReport(figures, drafted, accepted, predicted)


def _figures(path: str, part: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in part.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and any(word in name for word in _OF_DRAFTING):
            yield f"{path}.{name}", value


@dataclass(slots=True)
class RemoteText:
    """What a server has sent of one answer, in the form in which replies are read here.

    Thinking is between <think> and </think>, and calls are JSON between <tool_call> and
    </tool_call>, whatever the model itself writes. Counts are None until the server tells them.
    """

    text: str = ""
    finish: str = ""
    """Why it ended, as the server has it; "" while it has not."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    model: str = ""
    build: str = ""
    """What tells one build of a server, or configuration, from another; "" if nothing does."""
    report: DraftReport = field(default_factory=DraftReport)
    _is_thinking: bool = False
    _calls: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Take in one object of a stream, or a whole answer."""
        self.model = text_of(chunk.get("model")) or self.model
        self.build = text_of(chunk.get("system_fingerprint")) or self.build
        self.report = self.report.with_chunk(chunk)
        self._count(chunk)
        choice = mapping(next(iter(items(chunk.get("choices"))), None))
        delta = mapping(choice.get("delta")) or mapping(choice.get("message"))
        self._think(text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning")))
        self._say(text_of(delta.get("content")) or text_of(choice.get("text")))
        for place, call in enumerate(items(delta.get("tool_calls"))):
            self._call(mapping(call), place)
        self.finish = text_of(choice.get("finish_reason")) or self.finish

    def _count(self, chunk: Mapping[str, Any]) -> None:
        usage, timings = mapping(chunk.get("usage")), mapping(chunk.get("timings"))
        read, cached = count_of(timings.get("prompt_n")), count_of(timings.get("cache_n"))
        told = count_of(usage.get("completion_tokens"))
        told = count_of(timings.get("predicted_n")) if told is None else told
        self.completion_tokens = self.completion_tokens if told is None else told
        prompt = count_of(usage.get("prompt_tokens"))
        prompt = read + (cached or 0) if prompt is None and read is not None else prompt
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        of_usage = count_of(part_of(usage, "prompt_tokens_details").get("cached_tokens"))
        cached = cached if of_usage is None else of_usage
        self.cached_tokens = self.cached_tokens if cached is None else cached

    def _think(self, thought: str) -> None:
        if thought and not self.text:
            self.text, self._is_thinking = f"{OPEN}\n", True
        self.text += thought

    def _say(self, content: str) -> None:
        if content:
            self._end_thinking()
            self.text += content

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self.text, self._is_thinking = f"{self.text}\n{CLOSE}\n\n", False

    def _call(self, call: Mapping[str, Any], place: int) -> None:
        index = count_of(call.get("index"))
        kept = self._calls.setdefault(place if index is None else index, {})
        for name in ("name", "arguments"):
            value = mapping(call.get("function")).get(name)
            told = value if isinstance(value, str) else json.dumps(value) if value else ""
            kept[name] = kept.get(name, "") + told

    def end(self) -> None:
        """Write the calls, which are complete only now."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        if calls:
            self._end_thinking()
        for call in calls:
            name, arguments = json.dumps(call["name"]), call["arguments"] or "{}"
            if as_object(arguments) is None:
                arguments = json.dumps(arguments)
            arguments = arguments.replace("</", "<\\/")  # the same in JSON, and no mark
            told = f'{{"name": {name}, "arguments": {arguments}}}'
            self.text += f"{chr(10) * bool(self.text)}<tool_call>\n{told}\n</tool_call>"
