"""Replies of a model with the inputs of its layers at every position."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from app.bench.suite import SUITES, tasks
from backends.base import Model
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from backends.llamacpp import LlamaContext, LlamaModel
from backends.llamacpp.heads.opening import add_layer_states
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampling.settings import SamplingSettings

_TOPICS = (
    "the sea", "bread", "a lost key", "computers", "winter", "bees", "an old train", "music",
    "the moon", "a small village", "money", "sleep", "horses", "the first day at school", "rain",
    "paper", "a garden", "the human heart", "mountains", "a friendly robot",
)  # fmt: skip
_OTHER_TOPICS = ("a bicycle", "the weather")
_REQUESTS = (
    "Explain {} to a child.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "Write a polite letter to a friend about {}.",
    "What are the advantages and disadvantages of {}?",
    "Write a Python function about {}, with a docstring.",
    "Write a JavaScript function that prints a sentence about {} ten times.",
    "Translate into French: I have been thinking about {} all day.",
    "A book about {} costs 12 dollars. How much do seven of them cost? Explain step by step.",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt and its greedy reply. inputs: of layers, side by side, for all tokens but the last.

    first: number of tokens of the prompt.
    """

    tokens: NDArray[np.int32]
    first: int
    inputs: NDArray[np.float32]


def prompts(model: Model, count: int) -> list[list[int]]:
    """Tokens of up to count prompts: those of the bench, then requests about topics, mixed."""
    random = np.random.default_rng(0)
    made = [request.format(topic) for request, topic in product(_REQUESTS, _TOPICS)]
    texts = [task.text for task in tasks(SUITES["full"])]
    texts += [made[number] for number in random.permutation(len(made))]
    return _tokenized(model, texts[:count])


def similar_prompts(model: Model) -> list[list[int]]:
    """Tokens of the same requests about other topics."""
    pairs = product(_REQUESTS, _OTHER_TOPICS)
    return _tokenized(model, [request.format(topic) for request, topic in pairs])


def _tokenized(model: Model, texts: Sequence[str]) -> list[list[int]]:
    process = TemplateProcess()
    try:
        template = ChatTemplate(model.tokenizer, process)
        return [list(template.prompt([Message("user", text)]).tokens) for text in texts]
    finally:
        process.close()


def replies(
    model: LlamaModel, asked: Sequence[Sequence[int]], layers: Sequence[int], most: int, width: int
) -> Iterator[Reply]:
    """Let a model answer in up to most tokens each; width: of a layer's input."""
    context = model.open(max(map(len, asked)) + most + 1)
    assert isinstance(context, LlamaContext)
    limits = Limits(most, model.tokenizer.end_tokens)
    for prompt in asked:
        context.truncate(0)
        with ExitStack() as resources:
            states = add_layer_states(context, layers, width, resources)
            events = generate(context, prompt, SamplingSettings(temperature=0.0), limits)
            said = [token for event in events if isinstance(event, Step) for token in event.tokens]
            tokens = np.array([*prompt, *said], np.int32)
            yield Reply(tokens, len(prompt), states.rows(0, len(tokens) - 1))
    context.close()
