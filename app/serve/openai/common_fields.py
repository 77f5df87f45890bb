"""Fields that OpenAI's chat and completions share."""

from typing import Annotated, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.serve.asked_sampling import asked_sampling
from app.serve.limits import MOST_BIASES, MOST_CHOICES, MOST_STOP_CHARACTERS, MOST_STOPS
from app.serve.refusal import invalid
from app.serve.request_body import Fields, Items, Lenient
from app.settings.answering import Answering
from decoding.sampling.sampling_settings import SamplingSettings

_Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]


def _few(biases: object) -> object:
    """Refuse too many biases before each is checked."""
    if isinstance(biases, dict) and len(cast("dict[str, object]", biases)) > MOST_BIASES:
        raise PydanticCustomError("too_long", "at most {most} tokens", {"most": MOST_BIASES})
    return cast("object", biases)


class StreamOptions(Lenient):
    """What a stream tells beside the text."""

    include_usage: bool = False


class CommonFields(Fields):
    """What both ask for; fields of llama-server and vLLM that OpenAI does not have come last."""

    model: Annotated[str, Field(max_length=1024)] = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    seed: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    """-1 for any, as llama-server has it."""
    stop: _Stop | Annotated[Items[_Stop], Field(max_length=MOST_STOPS)] = Field(
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
    grammar: Annotated[str, Field(min_length=1, max_length=1 << 20)] | None = None

    user: object = None
    metadata: object = None
    store: object = None
    service_tier: object = None
    safety_identifier: object = None
    prompt_cache_key: object = None
    prompt_cache_options: object = None
    prompt_cache_retention: object = None
    cache_prompt: object = None
    timings_per_token: object = None

    @property
    def form_field(self) -> str:
        """The field that limits the form of the replies, if any does."""
        return "response_format" if self.grammar is None else "grammar"

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end a reply."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self, defaults: Answering, n_vocab: int) -> SamplingSettings:
        """Sampling settings of the first choice.

        Raises:
            RefusedError: a value is out of range.
        """
        if any(token >= n_vocab for token in self.logit_bias):
            raise invalid(f"the model has tokens 0 to {n_vocab - 1:,}", "logit_bias")
        return asked_sampling(
            defaults,
            seed=None if self.seed == -1 else self.seed,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty or self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple(self.logit_bias.items()) or None,
        )
