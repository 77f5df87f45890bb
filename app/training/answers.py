"""Stage generate: the target answers prompts in batches, and what it computes is kept.

Prompts come in segments, each of which begins with an empty context: what lies beside an answer in
its passes, and so how these round, is the same after a run was killed, whatever was done by then.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.training.prompts import TrainingPrompt
from backends.base import Context, Logits, Model, OutOfMemoryError
from backends.chat.chat_template import ChatTemplate, PromptFrame
from backends.chat.message import Message
from decoding.sampling.distribution import uniform, warp
from decoding.sampling.settings import SamplingSettings
from training.samples import LIKELY, Sample, SampleCache

MOST = 180
"""Tokens of an answer."""

_MOST_PROMPT = 400
"""Tokens of a prompt; longer ones are left out."""

N_CTX = _MOST_PROMPT + MOST
"""Tokens of a sequence."""

WIDTHS = (8, 16, 32, 48)
"""Answers at once that are timed."""

_SEGMENT = 256
"""Prompts that begin together: what a killed run does again at most. The last ones of a segment
are few, which costs some 5 % of its time with 16 at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt by the target's template, and how its answer is drawn. id: of prompt and draw."""

    id: str
    kind: str
    tokens: tuple[int, ...]
    temperature: float
    seed: int
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class AnswerProgress:
    """After a pass: answers in the cache, and their tokens; is_full: no further one has room."""

    answers: int
    tokens: int
    is_full: bool = False


_FEWEST_LAYERS = 6
"""With fewer the taps would be the same."""

_TEMPERATURES = (0.7, 0.8, 0.9, 1.0)


def to_ask(
    prompts: Sequence[TrainingPrompt],
    template: ChatTemplate,
    *,
    system: str = "",
    draws: int = 2,
    most_tokens: int = _MOST_PROMPT,
    seed: int = 0,
) -> Iterator[Asked]:
    """Prompts in the target's template, those of up to most_tokens, each drawn so many times.

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
            if len(tokens) <= most_tokens:
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


OWN_SHARE = 0.3
"""Most of all tokens that may be of the user's chats."""


def mixed(public: Iterable[Asked], own: Iterable[Asked]) -> Iterator[Asked]:
    """Prompts of both, as evenly as they last; of the user's no more than their share of tokens."""
    chats = iter(own)
    waiting, private, whole = next(chats, None), 0, 0
    for one in public:
        yield one
        whole += _size(one)
        while waiting and private + _size(waiting) <= OWN_SHARE * (whole + _size(waiting)):
            yield waiting
            private, whole = private + _size(waiting), whole + _size(waiting)
            waiting = next(chats, None)


def _size(asked: Asked) -> int:
    return len(asked.tokens) + MOST


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


def taps_of(model: Model) -> tuple[int, ...]:
    """Layers whose inputs heads read: EAGLE-3's choice; none where the engine leaves only the last.

    An early one, the middle and a late one (arXiv 2503.01840; its code counts outputs).
    """
    layers = _engine(model).layers(model)
    return (2, layers // 2, layers - 3) if layers >= _FEWEST_LAYERS else ()


def open_harvest(model: Model, n_ctx: int, width: int, taps: Sequence[int]) -> Harvest:
    """Open a context of this width, or of the widest that the model allows.

    Raises:
        DraftUnavailableError: the architecture hands out no states.
        OutOfMemoryError: it does not fit.
    """
    return _engine(model).Harvest(model, n_ctx, width, taps)


def _engine(model: Model) -> Any:
    """The module of the engine."""
    return import_module(f"backends.{model.info.backend}.harvest")


def answer(
    harvest: Harvest,
    asked: Iterable[Asked],
    cache: SampleCache,
    end_tokens: frozenset[int],
    *,
    sampling: SamplingSettings,
    stop: Callable[[], bool],
    most: int = MOST,
    most_tokens: int | None = None,
) -> Iterator[AnswerProgress]:
    """Add answers to the prompts that the cache lacks, until it has most_tokens or is full.

    sampling: as the target will be used, but for temperature and seed. stop: asked before each
    pass, which waits for it.

    Raises:
        DiskFullError: the disk is full.
        ModelError: the engine failed, or the context is too small.
    """
    rest = iter(asked)
    enough = math.inf if most_tokens is None else most_tokens
    while cache.tokens < enough and not stop() and (segment := tuple(islice(rest, _SEGMENT))):
        if all(one.id in cache.done for one in segment):
            continue
        for sample in _answers(harvest, segment, end_tokens, sampling, most, stop):
            is_full = sample is not None and sample.id not in cache.done and not cache.add(sample)
            yield AnswerProgress(len(cache), cache.tokens, is_full)
            if is_full:
                return
            if cache.tokens >= enough:
                break


@dataclass(slots=True)
class _Growing:
    """An answer that grows. The last of tokens is not read yet."""

    asked: Asked
    context: Context
    generator: np.random.Generator
    tokens: list[int]
    states: list[NDArray[np.float32]]
    likely: list[NDArray[np.int32]] = field(default_factory=list[NDArray[np.int32]])
    logs: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])

    def keep(self, states: NDArray[np.float32], likely: "_Likely", row: int) -> None:
        self.states.append(states)
        self.likely.append(likely[0][row])
        self.logs.append(likely[1][row])

    def draw(self, logits: NDArray[np.float32], sampling: SamplingSettings) -> None:
        number = uniform(self.generator)
        settings = replace(sampling, temperature=self.asked.temperature)
        self.tokens.append(warp(logits, settings).draw(number))

    def sample(self) -> Sample:
        length, first = len(self.tokens), len(self.asked.tokens)
        likely, logs = np.zeros((length, LIKELY), np.int32), np.zeros((length, LIKELY), np.float32)
        likely[first - 1 :], logs[first - 1 :] = self.likely, self.logs
        return Sample(
            self.asked.id, self.asked.kind, self.asked.temperature,
            np.array(self.tokens, np.int32), first, np.concatenate(self.states),
            likely, logs, self.asked.is_private,
        )  # fmt: skip


def _answers(
    harvest: Harvest,
    segment: Sequence[Asked],
    end_tokens: frozenset[int],
    sampling: SamplingSettings,
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
                growing.append(_begun(harvest, waiting.popleft(), len(prefix), shared, sampling))
                yield None
                continue
            logits, states = harvest.run([(one.context, one.tokens[-1:]) for one in growing])
            likely = _likely(logits)
            ended = list[_Growing]()
            for row, one in enumerate(growing):
                one.keep(states[row : row + 1], likely, row)
                said = len(one.tokens) - len(one.asked.tokens)
                if said == most or one.tokens[-1] in end_tokens:
                    ended.append(one)
                else:
                    one.draw(logits[row], sampling)
            for one in ended:
                growing.remove(one)
                harvest.close_sequence(one.context)
                yield one.sample()
            if not ended:
                yield None
    finally:
        for one in growing:
            harvest.close_sequence(one.context)


def _begun(
    harvest: Harvest,
    asked: Asked,
    shared: int,
    states: NDArray[np.float32],
    sampling: SamplingSettings,
) -> _Growing:
    """Read a prompt behind the shared tokens, whose states are known, and draw the first token."""
    generator = np.random.default_rng(asked.seed)
    one = _Growing(asked, harvest.open(), generator, list(asked.tokens), [states])
    unread = asked.tokens[shared:]
    while unread:
        logits, read = harvest.run([(one.context, unread[: harvest.most])])
        unread = unread[harvest.most :]
        if unread:
            one.states.append(read)
        else:
            one.keep(read, _likely(logits[-1:]), 0)
            one.draw(logits[-1], sampling)
    return one


def _common(segment: Sequence[Asked]) -> tuple[int, ...]:
    """What all prompts begin with, and none consists of."""
    first, last = min(one.tokens for one in segment), max(one.tokens for one in segment)
    most = min(len(one.tokens) for one in segment) - 1
    ends = (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    return first[: min(next(ends, most), most)]


_Likely = tuple[NDArray[np.int32], NDArray[np.float32]]


def _likely(logits: Logits) -> _Likely:
    """The likeliest tokens of each row, the likeliest first, and their log-probabilities."""
    ids = np.argpartition(logits, -LIKELY, axis=1)[:, -LIKELY:]
    values = np.take_along_axis(logits, ids, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    highest = values[:, :1]
    totals = np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    return np.take_along_axis(ids, order, axis=1).astype(np.int32), values - highest - totals


_TIMED_PASSES, _TIMED_TOKENS = 6, 48


def best_width(
    make: Callable[[int], Harvest], n_vocab: int, widths: Sequence[int] = WIDTHS
) -> tuple[int, float]:
    """How many answers at once make the most tokens a second on this machine, and how many.

    make: opens a harvest of a width.

    Raises:
        OutOfMemoryError: there is no room for the narrowest.
    """
    random, rates = np.random.default_rng(0), dict[int, float]()
    for width in widths:
        try:
            harvest = make(width)
        except OutOfMemoryError:
            if not rates:
                raise
            break
        with closing(harvest):
            if harvest.width in rates:  # no wider one is possible
                break
            harvest.begin(())
            opened = [harvest.open() for _ in range(harvest.width)]
            for one in opened:
                harvest.run([(one, random.integers(0, n_vocab, _TIMED_TOKENS).tolist())])
            seconds: list[float] = []
            for _ in range(_TIMED_PASSES):
                passes = [(one, [int(random.integers(n_vocab))]) for one in opened]
                began = time.perf_counter()
                logits, _ = harvest.run(passes)
                _likely(logits)
                seconds.append(time.perf_counter() - began)
            rates[harvest.width] = harvest.width / statistics.median(seconds)
            for one in opened:
                harvest.close_sequence(one)
    best = max(rates, key=lambda one: rates[one])
    return best, rates[best]
