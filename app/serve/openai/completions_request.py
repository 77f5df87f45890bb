"""What OpenAI's completions ask for."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation
from app.chat.question import Infill, RawText
from app.chat.reply_options import ReplyOptions
from app.engine.asking.answer import Request
from app.engine.engine_status import Loaded
from app.serve.asked_sampling import seeds
from app.serve.limits import MOST_CHOICES, MOST_TOP_LOGPROBS
from app.serve.openai.common_fields import CommonFields
from app.serve.openai.response_format import ResponseFormat, asked_grammar
from app.serve.refusal import invalid
from app.serve.request_body import Items
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
