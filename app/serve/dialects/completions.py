"""OpenAI's text completions, also into a gap."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation, Infill, ReplyOptions
from app.engine.reply import Request
from app.serve.dialect import AskedReply, Choose, Dialect, JsonObject
from app.serve.dialects import openai
from app.serve.refusal import invalid
from app.serve.request_body import Items, read_body, seeds
from app.serve.served_models import ServedModel
from app.serve.server_options import MOST_CHOICES, MOST_TOP_LOGPROBS
from app.settings.answering import Answering
from app.tools.events import Ended, ReplyEvent, TextDelta, TokenLogprob


class CompletionsRequest(openai.CommonFields):
    """The body of a request to /v1/completions; a prompt is text, not tokens."""

    prompt: str | Annotated[Items[str], Field(min_length=1, max_length=MOST_CHOICES)]
    suffix: str | None = None
    max_tokens: openai.Count | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    echo: Literal[False] = False
    best_of: Literal[1] = 1


class CompletionsWriter(openai.OpenAIWriter):
    def __init__(self, model: str, asked: CompletionsRequest) -> None:
        super().__init__(model, asked, "cmpl", "text_completion", "text_completion")
        self._has_logprobs = asked.logprobs is not None

    def choices(self, choice: int, event: ReplyEvent) -> Iterator[JsonObject]:
        if isinstance(event, TextDelta):
            yield self._choice(choice, event.text, event.logprobs)
        elif isinstance(event, Ended):
            yield self._choice(choice, "", (), openai.FINISH_REASONS[event.reason])

    def whole(self, choice: int, reply: openai.WholeReply) -> JsonObject:
        return self._choice(choice, reply.text, reply.logprobs, reply.reason)

    def _choice(
        self, index: int, text: str, tokens: Sequence[TokenLogprob], reason: str | None = None
    ) -> JsonObject:
        logprobs = _logprobs(tokens) if self._has_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    return {
        "tokens": [openai.token_text(token.data) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_by_text(token) for token in tokens],
        "text_offset": [token.begin for token in tokens],
    }


def _by_text(token: TokenLogprob) -> JsonObject:
    """Each alternative by its text; further ones of a text by their ids, as vLLM writes them."""
    found: JsonObject = {}
    for other in token.top:
        text = openai.token_text(other.data)
        found[f"token_id:{other.token}" if text in found else text] = other.logprob
    return found


def _read(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, CompletionsWriter]:
    asked = read_body(CompletionsRequest, body)
    model = choose(asked.model)
    return asked_reply(asked, defaults, model), CompletionsWriter(model.name, asked)


def asked_reply(asked: CompletionsRequest, defaults: Answering, model: ServedModel) -> AskedReply:
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    if asked.n * len(prompts) > MOST_CHOICES:
        raise invalid(f"at most {MOST_CHOICES} choices in all", "n")
    sampling = asked.sampling(defaults, model.n_vocab)
    suffix = asked.suffix
    requests = tuple(
        Request(
            Conversation(),
            replace(sampling, seed=seed),
            asked.max_tokens or defaults.max_tokens,
            options=ReplyOptions(asked.stops, asked.form, top_logprobs=asked.logprobs),
            text=prompt if suffix is None else Infill(prompt, suffix),
            may_drop=False,
        )
        for prompt in prompts
        for seed in seeds(sampling.seed, asked.n)
    )
    return AskedReply(
        model, requests, asked.stream, asked.n, prompt_field="prompt", form_field=asked.form_field
    )


COMPLETIONS = Dialect("/v1/completions", _read, openai.error_body)
