"""Stage test: what a model keeps of a drafter's drafts, rolled out in the engine.

At each pass the drafter goes on from the text that the model has said and from what it drafted
itself, as in an answer. How often a head names the model's token while it is told all the text
before, as in training, is another and larger figure, which appears nowhere.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from app.engine.session import Session
from app.engine.session_drafters import build
from app.paths import Paths
from app.training.answers import Asked
from backends.base import DraftUnavailableError
from decoding.draft import Draft, Drafter, KeepOn
from decoding.drafters.ngram import Ngram, NgramStatistics, Passage
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings

DEPTH = 3
"""Tokens of a draft: as many as heads learn to say one after another."""

USUAL = 0.8
"""The usual temperature."""

_TEMPERATURES, _MOST = (0.0, USUAL), 128


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was kept. positions: passes before which DEPTH tokens could be drafted.

    silent: share of positions without a draft. cumulative: by place in the draft, from 0, share of
    positions that kept a token there, and so all before it. conditional: share that was kept of the
    tokens drafted there, where all before them were. tokens_per_pass: the model's own included.
    errors, pass_error: standard errors of cumulative and tokens_per_pass, by bootstrap over
    prompts, of which one alone tells none.
    """

    prompts: int
    positions: int
    silent: float
    cumulative: tuple[float, ...]
    conditional: tuple[float, ...]
    errors: tuple[float, ...] | None
    tokens_per_pass: float
    pass_error: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """Of a drafter at a temperature, of all prompts and by their kind."""

    name: str
    temperature: float
    overall: Acceptance
    by_kind: Mapping[str, Acceptance]


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter to be tested.

    opened: until the block ends it makes drafters that know nothing of the answers before.
    """

    name: str
    opened: Callable[[Session], AbstractContextManager[Callable[[], Drafter]]]


def by_spec(spec: str, name: str = "") -> Contender:
    """A drafter that does not learn, by its word for `--draft`."""

    @contextmanager
    def opened(session: Session) -> Generator[Callable[[], Drafter]]:
        with TemporaryDirectory() as scratch:  # so that it has learned nothing
            own = Paths(session.paths.config, Path(scratch), session.paths.cache)
            environment = replace(session.environment(lambda _line: None), paths=own)
            with closing(build(session.spec(spec), environment)) as drafting:
                if not drafting.handles:
                    raise DraftUnavailableError(f"{spec} cannot be tested", drafting.missing)
                drafter = drafting.handles[0].member.drafter
                yield lambda: drafter

    return Contender(name or spec, opened)


def ngrams(passages: Callable[[], Iterable[Passage]]) -> Contender:
    """N-grams that learned what a head learned, and go on learning within each answer."""

    def opened(_session: Session) -> AbstractContextManager[Callable[[], Drafter]]:
        statistics = NgramStatistics()
        for passage in passages():
            statistics.learn(passage)
        known = statistics.table.contents, statistics.counts
        return nullcontext(lambda: Ngram(NgramStatistics.of(*known)))

    return Contender("ngram", opened)


def rolled_out(
    session: Session,
    contenders: Sequence[Contender],
    asked: Sequence[Asked],
    file: Path,
    *,
    most: int = _MOST,
    stop: Callable[[], bool] = bool,
) -> Iterator[tuple[int, int]]:
    """Answer prompts in up to most tokens with each drafter; what they keep is added to the file.

    Yields before each answer how many are done, and of how many. Each has a line in the file, so
    that the same call goes on where another ended.

    Raises:
        DraftUnavailableError: a contender cannot draft for the model.
        ModelError: the engine failed.
    """
    session.context.be_ready_to_draft()
    known = dict(_stored(file))
    trials = list(product(contenders, _TEMPERATURES, asked))
    left = [trial for trial in trials if _name(*trial, most) not in known]
    for contender in contenders:
        if not (own := [trial for trial in left if trial[0] is contender]):
            continue
        with contender.opened(session) as make:
            for trial in own:
                yield len(trials) - len(left), len(trials)
                counts = _answered(session, make(), *trial[1:], most, stop)
                if stop():
                    return
                with file.open("a", encoding="utf-8") as stored:
                    stored.write(f"\n{json.dumps([_name(*trial, most), counts.tolist()])}")
                left.remove(trial)


def results(
    contenders: Iterable[Contender], asked: Sequence[Asked], file: Path, most: int = _MOST
) -> Iterator[Result]:
    """Of what is done, as rolled_out has noted it."""
    done = dict(_stored(file))
    for contender, heat in product(contenders, _TEMPERATURES):
        counts = defaultdict[str, list[NDArray[np.int64]]](list)
        for one in asked:
            if (name := _name(contender, heat, one, most)) in done:
                counts[one.kind].append(done[name])
        if counts:
            overall = _acceptance([*chain.from_iterable(counts.values())])
            by_kind = {kind: _acceptance(found) for kind, found in counts.items()}
            yield Result(contender.name, heat, overall, by_kind)


def _name(contender: Contender, heat: float, asked: Asked, most: int) -> str:
    return f"{contender.name} {heat:g} {most} {_digest(asked):08x}"


def _digest(asked: Asked) -> int:
    return crc32(np.array(asked.tokens, np.int64).tobytes())


def _stored(file: Path) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Counts of the answers in a file; a line that was cut off by a kill is none."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with suppress(ValueError):
            name, counts = json.loads(line)
            yield name, np.array(counts, np.int64)


def _answered(
    session: Session,
    drafter: Drafter,
    heat: float,
    asked: Asked,
    most: int,
    stop: Callable[[], bool],
) -> NDArray[np.int64]:
    """Counts of an answer."""
    limits = Limits(most, session.model.tokenizer.end_tokens)
    settings, limited = SamplingSettings(heat, seed=_digest(asked)), _OfDepth(drafter)
    counts = np.zeros((4, DEPTH), np.int64)
    with session.context.use() as context:
        context.truncate(0)  # so that no answer depends on another
        for event in generate(
            context, asked.tokens, settings, limits,
            drafters=always(limited), is_cancelled=stop,
        ):  # fmt: skip
            if isinstance(event, Step):
                if limited.room == DEPTH:
                    counts += _counted(event)
                limited.room = 0
    return counts


class _OfDepth(Drafter):
    """Another drafter, asked for DEPTH tokens at most. room: for how many it was asked last."""

    def __init__(self, drafter: Drafter) -> None:
        self.name, self.room = drafter.name, 0
        self._drafter = drafter
        self.begin, self.read = drafter.begin, drafter.read
        self.commit, self.observe = drafter.commit, drafter.observe

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.room = min(limit, DEPTH)
        return self._drafter.propose(history, self.room, keep_on)


def _counted(step: Step) -> NDArray[np.int64]:
    """Counts (4, DEPTH) of a pass before which DEPTH tokens could be drafted.

    1, whether nothing was drafted, and tokens; then by place what was judged, drafted and kept.
    """
    places = np.arange(DEPTH)
    kept = places < step.accepted
    has_ended = step.accepted == len(step.tokens)  # with a drafted token: nothing can follow it
    judged = kept if has_ended else np.ones(DEPTH, np.bool_)
    drafted = judged & (places < step.longest) & (places <= step.accepted)
    return np.array([[1, step.drafted == 0, len(step.tokens)], judged, drafted, kept], np.int64)


def _acceptance(answers: Sequence[NDArray[np.int64]]) -> Acceptance:
    counts, number = np.array(answers, np.float64), len(answers)
    draws = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), 1000)
    silent, tokens, *shares = _figures(counts.sum(0)).tolist()
    _, pass_error, *errors = _figures(np.tensordot(draws, counts, 1)).std(0).tolist()
    return Acceptance(
        number, int(counts[:, 0, 0].sum()), silent, tuple(shares[:DEPTH]), tuple(shares[DEPTH:]),
        tuple(errors[:DEPTH]) if number > 1 else None, tokens, pass_error if number > 1 else None,
    )  # fmt: skip


def _figures(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Silent, tokens of a pass, cumulative, conditional. sums: of counts, (..., 4, DEPTH)."""
    whole, judged, drafted, kept = np.moveaxis(sums, -2, 0)
    parts = np.concatenate([whole[..., 1:], kept, kept], axis=-1)
    wholes = np.concatenate([whole[..., :1], whole[..., :1], judged, drafted], axis=-1)
    return parts / np.maximum(wholes, 1.0)
