"""Stage generate: the target answers prompts in batches, and what it computes is kept.

Prompts come in segments, each of which begins with an empty context: what lies beside an answer in
its passes, and so how these round, is the same after a run was killed, whatever was done by then.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.training.prompts import TrainingPrompt
from backends.base import Context, Logits, Model
from backends.chat.chat_template import ChatTemplate, PromptFrame
from backends.chat.message import Message
from decoding.sampling.distribution import uniform, warp
from decoding.sampling.settings import SamplingSettings
from training.heads.eagle3 import taps_of
from training.samples import LIKELY, Sample, SampleCache

MOST = 180
"""Tokens of an answer."""

_MOST_PROMPT = 400
"""Tokens of a prompt; longer ones are left out."""

N_CTX = _MOST_PROMPT + MOST
"""Tokens of a sequence."""

_SEGMENT = 256
"""Prompts that begin together: what a killed run does again at most. The last ones of a segment
are few, which costs some 5 % of its time with 16 at once."""

_TEMPERATURES = (0.7, 0.8, 0.9, 1.0)

OWN_SHARE = 0.3
"""Most of all tokens that may be of the user's chats."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt by the target's template, and how its answer is drawn. id: of prompt and draw."""

    id: str
    kind: str
    tokens: Sequence[int]
    temperature: float
    seed: int
    is_private: bool = False


def to_ask(
    prompts: Sequence[TrainingPrompt],
    template: ChatTemplate,
    *,
    system: str = "",
    draws: int = 2,
    seed: int = 0,
) -> Iterator[Asked]:
    """Prompts in the target's template, those that are not too long, each drawn so many times.

    system: instructions before those that have none of their own, as in chats to come.
    Half of the draws are greedy: of the first round those of every other prompt, then the others.
    """
    random = np.random.default_rng(seed)
    frames = dict[tuple[Message, ...], PromptFrame | None]()
    for draw in range(draws):
        for number, prompt in enumerate(prompts):
            hot, own = float(random.choice(_TEMPERATURES)), int(random.integers(1 << 31))
            messages = prompt.messages
            if system and messages[0].role != "system":
                messages = (Message("system", system), *messages)
            tokens = _rendered(template, frames, messages)
            if len(tokens) <= _MOST_PROMPT:
                temperature = hot if (number + draw) % 2 else 0.0
                name, secret = f"{prompt.id}-{draw}", prompt.is_private
                yield Asked(name, prompt.kind, tuple(tokens), temperature, own, secret)


def _rendered(
    template: ChatTemplate,
    frames: dict[tuple[Message, ...], PromptFrame | None],
    messages: tuple[Message, ...],
) -> list[int]:
    """Tokens of a prompt. The template's child, which takes 50 ms, is asked once a beginning."""
    *before, last = messages
    begun = tuple(before)
    if begun not in frames:
        frames[begun] = template.frame(before)
    frame = frames[begun]
    return template.prompt(messages).tokens if frame is None else frame.whole(last.content)


def mixed(public: Iterable[Asked], own: Iterable[Asked]) -> Iterator[Asked]:
    """Prompts of both, as evenly as they last; of the user's no more than their share of tokens."""
    chats = iter(own)
    waiting, private, whole = next(chats, None), 0, 0
    for one in public:
        yield one
        whole += len(one.tokens) + MOST
        while waiting:
            size = len(waiting.tokens) + MOST
            if private + size > OWN_SHARE * (whole + size):
                break
            yield waiting
            private, whole = private + size, whole + size
            waiting = next(chats, None)


class Harvest(Protocol):
    """Passes that leave states; backends.llamacpp.harvest describes them."""

    width: int
    most: int
    shares: bool

    def begin(self, prefix: Sequence[int]) -> NDArray[np.float32]: ...
    def open(self) -> Context: ...
    def close_sequence(self, context: Context) -> None: ...
    def run(
        self, passes: Sequence[tuple[Context, Sequence[int]]]
    ) -> tuple[Logits, NDArray[np.float32]]: ...
    def close(self) -> None: ...


def taps_here(model: Model) -> tuple[int, ...]:
    """Layers whose inputs heads can read; none where the engine leaves only the last state."""
    return taps_of(_engine(model).layers(model))


def open_harvest(model: Model, n_ctx: int, width: int, taps: Sequence[int]) -> Harvest:
    """Open a context of this width and length, or of the largest that the model allows.

    Raises:
        DraftUnavailableError: the architecture hands out no states.
        OutOfMemoryError: it does not fit.
    """
    return _engine(model).Harvest(model, min(n_ctx, model.info.context_limit), width, taps)


def _engine(model: Model) -> Any:
    """The module of the engine."""
    return import_module(f"backends.{model.info.backend}.harvest")


def answer(
    harvest: Harvest,
    asked: Iterable[Asked],
    cache: SampleCache,
    end_tokens: frozenset[int],
    *,
    stop: Callable[[], bool],
    most: int = MOST,
    most_tokens: float = math.inf,
) -> Iterator[int]:
    """Add answers to the prompts that the cache lacks, until it has most_tokens or is full.

    stop: asked before each pass, which waits for it. Yields the tokens of all answers after each.

    Raises:
        DiskFullError: the disk is full.
        ModelError: the engine failed, or the context is too small.
    """
    rest = iter(asked)
    while cache.tokens < most_tokens and not stop() and (segment := tuple(islice(rest, _SEGMENT))):
        if all(one.id in cache.done for one in segment):
            continue
        for sample in _answers(harvest, segment, end_tokens, most, stop):
            is_full = sample is not None and sample.id not in cache.done and not cache.add(sample)
            yield cache.tokens
            if is_full:
                return
            if cache.tokens >= most_tokens:
                break


_Likely = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Tokens, the likeliest first, and their log-probabilities."""


@dataclass(slots=True)
class _Growing:
    """An answer that grows. The last of tokens is not read yet."""

    asked: Asked
    context: Context
    generator: np.random.Generator
    tokens: list[int]
    states: list[NDArray[np.float32]]
    likely: list[_Likely] = field(default_factory=list[_Likely])

    def draw(self, logits: NDArray[np.float32]) -> None:
        settings = replace(SamplingSettings(), temperature=self.asked.temperature)
        self.tokens.append(warp(logits, settings).draw(uniform(self.generator)))

    def sample(self) -> Sample:
        length, first = len(self.tokens), len(self.asked.tokens)
        likely, logs = np.zeros((length, LIKELY), np.int32), np.zeros((length, LIKELY), np.float32)
        likely[first - 1 :], logs[first - 1 :] = zip(*self.likely, strict=True)
        return Sample(
            self.asked.id, self.asked.temperature,
            np.array(self.tokens, np.int32), first, np.concatenate(self.states),
            likely, logs, self.asked.is_private,
        )  # fmt: skip


def _answers(
    harvest: Harvest,
    segment: Sequence[Asked],
    end_tokens: frozenset[int],
    most: int,
    stop: Callable[[], bool],
) -> Iterator[Sample | None]:
    """Answers in the order in which they end; None after a pass in which none did."""
    prefix = _common(segment) if harvest.shares else ()
    shared = harvest.begin(prefix)
    waiting, growing = deque(segment), list[_Growing]()
    try:
        while (waiting or growing) and not stop():
            if waiting and len(growing) < harvest.width:
                growing.append(_begun(harvest, waiting.popleft(), len(prefix), shared))
                yield None
                continue
            logits, states = harvest.run([(one.context, one.tokens[-1:]) for one in growing])
            rows = zip(tuple(growing), states, *_likely(logits), logits, strict=True)
            for one, state, likely, logs, row in rows:
                one.states.append(state[None])
                one.likely.append((likely, logs))
                if len(one.likely) <= most and one.tokens[-1] not in end_tokens:
                    one.draw(row)
                    continue
                growing.remove(one)
                harvest.close_sequence(one.context)
                yield one.sample()
            yield None
    finally:
        for one in growing:
            harvest.close_sequence(one.context)


def _begun(harvest: Harvest, asked: Asked, shared: int, states: NDArray[np.float32]) -> _Growing:
    """Read a prompt behind the shared tokens, whose states are known, and draw the first token."""
    generator = np.random.default_rng(asked.seed)
    one = _Growing(asked, harvest.open(), generator, list(asked.tokens), [states])
    logits = np.empty((0, 0), np.float32)
    for at in range(shared, len(asked.tokens), harvest.most):
        unread = asked.tokens[at : at + harvest.most]
        logits, read = harvest.run([(one.context, unread)])
        one.states.append(read)
    ((likely,), (logs,)) = _likely(logits[-1:])
    one.likely.append((likely, logs))
    one.draw(logits[-1])
    return one


def _common(segment: Sequence[Asked]) -> Sequence[int]:
    """What all prompts begin with, and none consists of."""
    prompts = [list(one.tokens) for one in segment]
    first, last, most = min(prompts), max(prompts), min(map(len, prompts)) - 1
    ends = (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    return first[: min(next(ends, most), most)]


def _likely(logits: Logits) -> _Likely:
    """Of each row."""
    ids = np.argpartition(logits, -LIKELY, axis=1)[:, -LIKELY:]
    values = np.take_along_axis(logits, ids, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    highest = values[:, :1]
    totals = np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    return np.take_along_axis(ids, order, axis=1).astype(np.int32), values - highest - totals
