"""Stage test: what a model keeps of a drafter's drafts, rolled out in the engine.

At each pass the drafter goes on from the text that the model has said and from what it drafted
itself, as in an answer. How often a head names the model's token while it is told all the text
before, as in training, is another and larger figure, which appears nowhere.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
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
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram, NgramStatistics, Passage
from decoding.drafters.predicted_text import PredictedText
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings

DEPTH = 3
"""Tokens of a draft: as many as heads learn to say one after another."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was kept. positions: passes before which DEPTH tokens could be drafted.

    silent: share of positions without a draft. cumulative: by place in the draft, from 0, share of
    positions that kept a token there, and so all before it. conditional: share that was kept of the
    tokens drafted there, where all before them were. tokens_per_pass: the model's own included.
    errors, pass_error: standard errors of cumulative and tokens_per_pass, by bootstrap over
    prompts.
    """

    prompts: int
    positions: int
    silent: float
    cumulative: tuple[float, ...]
    conditional: tuple[float, ...]
    errors: tuple[float, ...]
    tokens_per_pass: float
    pass_error: float


@dataclass(frozen=True, slots=True)
class Result:
    """Of a drafter at a temperature, of all prompts and by their kind."""

    name: str
    temperature: float
    overall: Acceptance
    by_kind: Mapping[str, Acceptance]


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """Answers that are done, of all drafters, and who drafts in the next one."""

    done: int
    total: int
    name: str
    temperature: float


Answer = Callable[[Drafter | None], Iterator[Step]]
"""Answers the prompt in question with a drafter."""

Maker = Callable[[Sequence[int], Answer], Drafter]
"""Makes the drafter for an answer to a prompt; it knows nothing of the answers before."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter to be tested. key: of what it was made from; stored results of others are void.

    opened: makes it ready on a session, until the block ends.
    """

    name: str
    key: str
    opened: Callable[[Session], AbstractContextManager[Maker]]


def by_spec(spec: str, key: str, name: str = "") -> Contender:
    """A head or another drafter by its word for `--draft`."""

    @contextmanager
    def opened(session: Session) -> Generator[Maker]:
        with TemporaryDirectory() as scratch:  # so that it has learned nothing
            own = Paths(session.paths.config, Path(scratch), session.paths.cache)
            environment = replace(session.environment(lambda _line: None), paths=own)
            with closing(build(session.spec(spec), environment)) as drafting:
                if not drafting.handles:
                    raise DraftUnavailableError(f"{spec} cannot be tested", drafting.missing)
                drafter = drafting.handles[0].member.drafter
                yield lambda _prompt, _answer: drafter

    return Contender(name or spec, key, opened)


def lookup() -> Contender:
    """Prompt lookup."""
    return Contender("lookup", "", lambda _: nullcontext(lambda _prompt, _answer: PromptLookup()))


def ngrams(key: str, passages: Callable[[], Iterable[Passage]]) -> Contender:
    """N-grams that learned what a head learned, and go on learning within each answer."""

    def taught(_session: Session) -> AbstractContextManager[Maker]:
        statistics = NgramStatistics()
        for passage in passages():
            statistics.learn(passage)
        known = statistics.table.contents, statistics.counts
        return nullcontext(lambda _prompt, _answer: Ngram(NgramStatistics.of(*known)))

    return Contender("ngram", key, taught)


def oracle() -> Contender:
    """Is told the answer beforehand: what it drafts is kept, or the test is wrong."""

    def told(prompt: Sequence[int], answer: Answer) -> Drafter:
        said = [token for step in answer(None) for token in step.tokens]
        return PredictedText(said, len(prompt))

    return Contender("oracle", "", lambda _: nullcontext(told))


def rolled_out(
    session: Session,
    contenders: Sequence[Contender],
    asked: Sequence[Asked],
    file: Path,
    *,
    most: int = 128,
    temperatures: Sequence[float] = (0.0, 0.8),
    stop: Callable[[], bool] = lambda: False,
) -> Generator[RolloutProgress, None, tuple[Result, ...]]:
    """Answer prompts in up to most tokens with each drafter; returns the results.

    What is done is in file, a line an answer, so that the same call goes on where another ended.
    Once stop says so, the results are of what is done.

    Raises:
        DraftUnavailableError: a contender cannot draft for the model.
        ModelError: the engine failed.
    """
    session.context.be_ready_to_draft()
    done = dict(_stored(file))
    results: list[Result] = []
    trials = [(contender, heat) for contender in contenders for heat in temperatures]
    for number, (contender, heat) in enumerate(trials):
        about = f"{contender.name} {contender.key} {heat:g} {most} {DEPTH}"
        counted: list[tuple[str, NDArray[np.int64]]] = []
        with ExitStack() as stack:
            make: Maker | None = None
            for place, one in enumerate(asked):
                digest = crc32(np.array(one.tokens, np.int64).tobytes())
                name = f"{about} {digest:08x}"
                if name not in done and not stop():
                    at = number * len(asked) + place
                    yield RolloutProgress(at, len(trials) * len(asked), contender.name, heat)
                    make = make or stack.enter_context(contender.opened(session))
                    settings = SamplingSettings(heat, seed=digest)
                    counts = _answered(session, make, one.tokens, settings, most, stop)
                    if not stop():
                        done[name] = counts
                        with file.open("a", encoding="utf-8") as stored:
                            stored.write(f"\n{json.dumps([name, counts.tolist()])}")
                if name in done:
                    counted.append((one.kind, done[name]))
        if counted:
            kinds = dict.fromkeys(kind for kind, _ in counted)
            by_kind = {
                of: _acceptance([one for kind, one in counted if kind == of]) for of in kinds
            }
            whole = _acceptance([one for _, one in counted])
            results.append(Result(contender.name, heat, whole, by_kind))
    return tuple(results)


def _stored(file: Path) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Counts of the answers in a file; a line that was cut off by a kill is none."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with suppress(ValueError):
            name, counts = json.loads(line)
            yield name, np.array(counts, np.int64)


def _answered(
    session: Session,
    make: Maker,
    prompt: Sequence[int],
    settings: SamplingSettings,
    most: int,
    stop: Callable[[], bool],
) -> NDArray[np.int64]:
    """Counts of an answer."""
    limits = Limits(most, session.model.tokenizer.end_tokens)

    def answer(drafter: Drafter | None) -> Iterator[Step]:
        provider = always(drafter)
        with session.context.use() as context:
            context.truncate(0)  # so that no answer depends on another
            yield from (
                event
                for event in generate(
                    context, prompt, settings, limits, drafters=provider, is_cancelled=stop
                )
                if isinstance(event, Step)
            )

    drafter = _OfDepth(make(prompt, answer))
    counts = np.zeros(_KEPT + DEPTH, np.int64)
    for step in answer(drafter):
        if drafter.room == DEPTH:
            counts += _counted(step)
        drafter.room = 0
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


_PASSES, _SILENT, _TOKENS, _JUDGED, _DRAFTED, _KEPT = 0, 1, 2, 3, 3 + DEPTH, 3 + 2 * DEPTH
"""Places in the counts of an answer; the last three begin DEPTH counts, by place in the draft."""

_KEPTS = [*range(_KEPT, _KEPT + DEPTH)]
_SHARES = [_SILENT, _TOKENS, *_KEPTS, *_KEPTS]
_WHOLES = [_PASSES, _PASSES, *range(_JUDGED, _KEPT)]
"""Of each figure what is counted, and in what: silent, tokens, cumulative, conditional."""


def _counted(step: Step) -> NDArray[np.int64]:
    """Counts of a pass before which DEPTH tokens could be drafted."""
    places = np.arange(DEPTH)
    kept = places < step.accepted
    has_ended = step.accepted == len(step.tokens)  # with a drafted token: nothing can follow it
    judged = kept if has_ended else np.ones(DEPTH, np.bool_)
    drafted = judged & (places < step.longest) & (places <= step.accepted)
    whole = [1, step.drafted == 0, len(step.tokens)]
    return np.concatenate([whole, judged, drafted, kept]).astype(np.int64)


def _acceptance(answers: Sequence[NDArray[np.int64]]) -> Acceptance:
    counts = np.array(answers, np.float64)
    number = len(counts)
    draws = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), 1000)
    silent, tokens, *shares = _figures(counts.sum(0)).tolist()
    _, pass_error, *errors = _figures(draws @ counts).std(0).tolist()
    positions = int(counts[:, _PASSES].sum())
    cumulative, conditional = tuple(shares[:DEPTH]), tuple(shares[DEPTH:])
    of_cumulative = tuple(errors[:DEPTH])
    return Acceptance(
        number, positions, silent, cumulative, conditional, of_cumulative, tokens, pass_error
    )


def _figures(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[..., _SHARES] / np.maximum(sums[..., _WHOLES], 1.0)


def table(results: Iterable[Result]) -> Iterator[str]:
    """Rows of a Markdown table."""
    yield "| drafter | T | positions | kept, with all before | kept if all before | tokens a pass |"
    yield "| --- " * 6 + "|"
    for result in results:
        for kind, found in {"": result.overall, **result.by_kind}.items():
            name = f"{result.name}, {kind}" if kind else result.name
            errors = zip(found.cumulative, found.errors, strict=True)
            cumulative = " ".join(f"{share:.2f}±{error:.2f}" for share, error in errors)
            conditional = " ".join(f"{share:.2f}" for share in found.conditional)
            tokens = f"{found.tokens_per_pass:.2f}±{found.pass_error:.2f}"
            row = (name, f"{result.temperature:g}", f"{found.positions:,}", cumulative, conditional)
            yield f"| {' | '.join((*row, tokens))} |"
