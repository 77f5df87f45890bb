"""What a run does in each of its stages, and the minute of measuring before."""

import datetime
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from app.drafting.gain import Cost
from app.engine.session import Session
from app.engine.session_drafters import build
from app.engine.session_opening import open_session
from app.history.store import open_history
from app.learned.calibrations import Calibrations
from app.learned.registered import register
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.training.answers import (
    MOST,
    N_CTX,
    Asked,
    Harvest,
    answer,
    best_width,
    mixed,
    open_harvest,
    taps_of,
    to_ask,
)
from app.training.learners import Learner, drafting_file, learner_of, settings_of, spec_of
from app.training.plan import Method, Plan, Rates, Room, planned
from app.training.prompts import (
    TrainingPrompt,
    check_public,
    overlapping,
    prompts_of_chats,
    prompts_of_file,
    training_prompts,
    unseen_prompts,
)
from app.training.rollout import (
    DEPTH,
    Result,
    RolloutProgress,
    by_spec,
    lookup,
    ngrams,
    rolled_out,
)
from app.training.run import Progress, Run, Stage
from backends.base import DraftUnavailableError, Model, Rollback
from backends.hardware.host import available_memory
from decoding.drafters.ngram import Passage
from decoding.estimation.cost import CostModel
from decoding.sampling.settings import SamplingSettings
from models.bounded_files import read_object
from models.metadata.identity import fingerprint
from training.arrays import Arrays
from training.libraries import open_arrays
from training.samples import CacheFacts, SampleCache
from training.settings import TrainSettings
from training.trainer import BEST, DivergedError, train, weights_of

_CONTEXT = 1024
"""Of the test's session, in tokens."""

_WIDTHS = (8, 16, 32)
"""Answers at once that are timed: processors make no more of wider passes (data.md)."""

_TIMED_PROMPTS, _TIMED_TOKENS = 16, 48
_TIMED_STEPS, _TIMED_BATCH, _BATCH = 3, 512, 512

_AN_ANSWER = 120
"""Tokens of an answer, in the mean over our prompts (135M, 48 answers: 119)."""

_MOST_BYTES = 20_000_000_000
"""Of samples, however large the disk is."""

_DRAWS = 2
"""Answers to each prompt."""

TRAINED = "trained"
"""Name of what was trained, in the test."""

_COPIES = 8
"""Of all weights on disk: a checkpoint has three, twice while it is written."""

_HOT = 0.8
"""The usual temperature, for which what was trained is registered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the test found.

    draft: the word for `--draft`. rates: tokens a second by drafter, plain decoding included, that
    acceptance and costs, both measured here, lead to. private: whether it learnt from chats.
    """

    name: str
    draft: str
    results: tuple[Result, ...]
    rates: dict[str, float]
    private: bool


class Stages:
    """Of one run. notify: gets a line on each phase of loading and measuring."""

    def __init__(
        self, options: SessionOptions, paths: Paths, run: Run, notify: Callable[[str], None]
    ) -> None:
        self._options = replace(options, draft="off", ctx=None)
        self._paths, self._run, self._order, self._notify = paths, run, run.order, notify
        self.outcome: Outcome | None = None
        """None until the last stage has ended."""

    def measured(self) -> Plan:
        """Plan a run by stages like its own, on a few answers that are discarded.

        Raises:
            SpecchatError: the model cannot be trained for, nothing here can train, or there is too
                little room.
        """
        self._of_file()  # a file that cannot be read is told before a model is loaded
        scratch, arrays = self._run.folder / "measured", open_arrays()
        shutil.rmtree(scratch, ignore_errors=True)
        with closing(self._session()) as session:
            info = session.model.info
            if info.rollback is Rollback.NONE:
                what = f"{info.name} cannot be drafted for"
                raise DraftUnavailableError(what, f"it {info.rollback_refusal}")
            costs = self._costs(session)
            self._notify("measuring answers side by side")
            taps, n_vocab = self._taps(session), info.n_vocab
            width, rate = best_width(
                lambda width: _harvest(session.model, width, taps), n_vocab, _WIDTHS
            )
            self._notify("answering a few prompts, to train on")
            asked = list(self._to_ask(session, training_prompts(_TIMED_PROMPTS), 1))
            for _ in self._answers(session, asked, scratch, width, bool, _TIMED_TOKENS):
                pass
            free = available_memory() + info.weight_bytes
        settings = self._settings(_TIMED_STEPS, _TIMED_BATCH)
        cache = _opened(scratch)
        learner = self._learner(scratch, cache, settings, arrays)
        seconds, began = list[float](), time.perf_counter()
        for _ in train(learner.net, cache, settings, scratch, arrays):
            self._notify("timing training")
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        learner.write(weights_of(scratch), scratch / _RESULT)
        with closing(self._session()) as session:
            file = drafting_file(scratch / _RESULT, session.model.info.backend)
            draw = self._draft_cost(session, spec_of(self._order.method, file), costs)
        prompt = round(fmean(len(one.tokens) for one in asked))
        batch = _BATCH
        share = _AN_ANSWER / (prompt + _AN_ANSWER)
        rates = Rates(
            rate, width, min(seconds) * batch / _TIMED_BATCH, round(batch * share),
            1.0 / costs.seconds(1), draw.draw,
        )  # fmt: skip
        room = Room(
            cache.facts.n_bytes(prompt + _AN_ANSWER, prompt) // _AN_ANSWER,
            _COPIES * learner.weight_bytes,
            learner.peak_bytes,
            shutil.disk_usage(scratch).free,
            free,
        )
        shutil.rmtree(scratch, ignore_errors=True)
        return planned(self._order.method, self._order.minutes, rates, room, costs)

    def left(self, stop: Callable[[], bool]) -> Generator[Progress]:
        """Go through the stages that have not ended; once stop says so it ends early."""
        works = (self._generated, self._trained, self._tested)
        for stage, work in zip(Stage, works, strict=True):
            if stage is self._run.stage:
                yield from self._run.followed(work(stop), stop)
                if stop():
                    return
                self._run.end(stage)

    def _generated(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        plan = self._plan
        with closing(self._session()) as session:
            asked = self._asked(session, plan.tokens)
            done = self._answers(
                session, asked, self._run.folder, plan.width, stop, most_tokens=plan.tokens
            )
            for tokens in done:
                yield Progress(Stage.GENERATE, tokens, plan.tokens)

    def _trained(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        settings, arrays = self._settings(self._plan.steps), open_arrays()
        self._notify("reading the answers")
        cache = _opened(self._run.folder)
        learner = self._learner(self._run.folder, cache, settings, arrays)
        try:
            for one in train(learner.net, cache, settings, self._run.folder, arrays, stop):
                yield Progress(Stage.TRAIN, one.step, one.steps)
        except DivergedError as error:
            if not (self._run.folder / BEST).exists():
                raise
            self._notify(error.summary)  # what was best before is tested
        if not stop():
            learner.write(weights_of(self._run.folder), self._run.folder / _RESULT)

    def _tested(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        folder = self._run.folder
        with closing(self._session()) as session:
            file = drafting_file(folder / _RESULT, session.model.info.backend)
            spec = spec_of(self._order.method, file)
            costs = self._costs(session)
            cost = self._draft_cost(session, spec, costs)
            key = fingerprint(file)
            contenders = [by_spec(spec, key, TRAINED), lookup(), ngrams(key, self._passages)]
            asked = self._to_test(session)
            results = yield from _shown(
                rolled_out(session, contenders, asked, folder / "test.jsonl", stop=stop)
            )
            if not stop():
                self.outcome = self._registered(session, results, _rates(results, costs, cost))

    def _registered(
        self, session: Session, results: tuple[Result, ...], rates: dict[str, float]
    ) -> Outcome:
        """Keep what was trained, for as long as its model's file is the same."""
        stem = re.sub(r"[^a-z0-9.-]+", "-", session.model.info.name.lower()).strip("-.")
        own = next(one for one in results if one.name == TRAINED and one.temperature == _HOT)
        entry = register(
            self._paths,
            f"{stem[:40]}-{self._order.method}",
            sorted((self._run.folder / _RESULT).iterdir()),
            method=self._order.method,
            target=self._run.target,
            engine=session.model.info.backend,
            template=_template(session),
            sampler=str(SamplingSettings()),
            acceptance=own.overall.conditional,
            made=datetime.datetime.now().astimezone().date().isoformat(),
            chats=self._marks(),
        )
        draft = spec_of(self._order.method, entry.path)
        return Outcome(entry.name, draft, results, rates, bool(entry.taught_by))

    @property
    def _plan(self) -> Plan:
        assert self._run.plan is not None, "a run that has begun"
        return self._run.plan

    def _session(self) -> Session:
        return open_session(self._options, self._paths, self._notify, _CONTEXT)

    def _costs(self, session: Session) -> CostModel:
        return Calibrations(self._paths, self._notify).target(session.model, session.context)

    def _draft_cost(self, session: Session, spec: str, costs: CostModel) -> Cost:
        """Of what was trained, measured here."""
        with closing(build(session.spec(spec), session.environment(self._notify))) as drafting:
            if not drafting.handles:
                raise DraftUnavailableError(f"{spec} cannot draft", drafting.missing)
            measured = drafting.handles[0].member.cost
        assert measured is not None, "it is a model"
        return Cost.of(measured, costs.seconds(1))

    def _learner(
        self, folder: Path, cache: SampleCache, settings: TrainSettings, arrays: Arrays
    ) -> Learner:
        order, target = self._order, self._run.target
        return learner_of(order, target, self._paths, folder, cache, settings, arrays)

    def _settings(self, steps: int, batch: int = 0) -> TrainSettings:
        order = self._order
        usual = TrainSettings(
            method=order.method, steps=steps, batch_tokens=batch or _BATCH, seed=order.seed
        )
        return settings_of(order, usual)

    def _taps(self, session: Session) -> tuple[int, ...]:
        return taps_of(session.model) if self._order.method is Method.EAGLE3 else ()

    def _answers(
        self,
        session: Session,
        asked: Iterable[Asked],
        folder: Path,
        width: int,
        stop: Callable[[], bool],
        most: int = MOST,
        most_tokens: int | None = None,
    ) -> Iterator[int]:
        """Fill the samples of a folder; yields the tokens of all answers after each pass."""
        model, taps = session.model, self._taps(session)
        with closing(_harvest(model, width, taps)) as harvest:
            facts = CacheFacts(
                fingerprint(model.info.path), model.info.backend, _template(session), taps,
                harvest.begin(()).shape[-1], model.info.n_vocab,
            )  # fmt: skip
            cache = SampleCache.open(folder / _SAMPLES, facts, _MOST_BYTES)
            for one in answer(
                harvest, asked, cache, model.tokenizer.end_tokens,
                sampling=SamplingSettings(), stop=stop, most=most, most_tokens=most_tokens,
            ):  # fmt: skip
                yield one.tokens

    def _asked(self, session: Session, tokens: int) -> Iterator[Asked]:
        """Prompts for so many tokens of answers, some more; with the user's chats if told to."""
        count = tokens // (_DRAWS * _AN_ANSWER // 2) + 1
        own, seed = self._own(is_test=False), self._order.seed
        public = [*self._of_file(), *training_prompts(count, seed)]
        check_public([*public, *own])
        return mixed(self._to_ask(session, public), self._to_ask(session, own))

    def _to_test(self, session: Session) -> list[Asked]:
        """Prompts that nothing was trained on, nor anything that shares 13 words with them."""
        count = self._plan.tokens // (_DRAWS * _AN_ANSWER // 2) + 1
        seed, own = self._order.seed, self._own(is_test=True)
        trained = [
            *self._of_file(), *training_prompts(count, seed), *self._own(is_test=False)
        ]  # fmt: skip
        tested = [*unseen_prompts(self._plan.tested, seed), *own[: self._plan.tested]]
        known = overlapping(trained, tested)
        new = [one for one in tested if one not in known]
        return list(self._to_ask(session, new, 1))

    def _to_ask(
        self, session: Session, prompts: Sequence[TrainingPrompt], draws: int = _DRAWS
    ) -> Iterator[Asked]:
        system, seed = self._order.system, self._order.seed
        return to_ask(prompts, session.template, system=system, draws=draws, seed=seed)

    def _of_file(self) -> list[TrainingPrompt]:
        return prompts_of_file(Path(self._order.prompts)) if self._order.prompts else []

    def _own(self, *, is_test: bool) -> list[TrainingPrompt]:
        if not self._order.chats or not self._paths.history.exists():
            return []
        with closing(open_history(self._paths, repairs=False)) as history:
            return prompts_of_chats(history, is_test=is_test)

    def _marks(self) -> list[str]:
        if not self._order.chats or not self._paths.history.exists():
            return []
        with closing(open_history(self._paths, repairs=False)) as history:
            return history.marks()

    def _passages(self) -> Iterator[Passage]:
        """What the model said, for n-grams that learn the same."""
        cache = _opened(self._run.folder)
        for number in range(len(cache)):
            sample = cache.sample(number)
            yield Passage(sample.tokens.tolist(), sample.first)


_SAMPLES, _RESULT = "samples", "result"


def _harvest(model: Model, width: int, taps: tuple[int, ...]) -> Harvest:
    return open_harvest(model, min(N_CTX, model.info.context_limit), width, taps)


def _opened(folder: Path) -> SampleCache:
    """Samples that are there."""
    kept = read_object(folder / _SAMPLES / "facts.json")
    known: dict[str, Any] = {field.name: kept[field.name] for field in fields(CacheFacts)}
    known["taps"] = tuple(known["taps"])
    return SampleCache.open(folder / _SAMPLES, CacheFacts(**known))


def _template(session: Session) -> str:
    text = session.model.tokenizer.chat_template or ""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _shown(
    progress: Generator[RolloutProgress, None, tuple[Result, ...]],
) -> Generator[Progress, None, tuple[Result, ...]]:
    while True:
        try:
            one = next(progress)
        except StopIteration as ended:
            return ended.value
        yield Progress(Stage.TEST, one.done, one.total)


def _rates(results: Iterable[Result], costs: CostModel, cost: Cost) -> dict[str, float]:
    """Tokens a second at the usual temperature, each with the length of draft that is best."""
    plain = 1.0 / costs.seconds(1)
    rates = {"plain": plain}
    for one in results:
        if one.temperature == _HOT:
            found, of = one.overall, cost if one.name == TRAINED else Cost(0.0)
            rates[one.name] = plain * max(
                (1.0 + sum(found.cumulative[:length]))
                / (
                    1.0
                    + (1.0 - found.silent) * (costs.of_draft(length) + of.start + length * of.draw)
                )
                for length in range(1, min(DEPTH + 1, costs.largest))
            )
    return rates
