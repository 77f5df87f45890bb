"""What a run does in each of its stages, and the minute of measuring before."""

import datetime
import json
import math
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean

from app.drafting.gain import Cost
from app.engine.session import Session
from app.engine.session_drafters import build
from app.engine.session_opening import open_session
from app.learned.calibrations import Calibrations
from app.learned.registered import Registered, drafter_name, drafting_file, register
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.training.answers import (
    MOST,
    N_CTX,
    Asked,
    Harvest,
    answer,
    mixed,
    open_harvest,
    taps_here,
    to_ask,
)  # fmt: skip
from app.training.learners import net_of, settings_of, spec_of
from app.training.plan import TRAINED, Measured, Method, Plan, Stage, planned
from app.training.prompts import prompts_of
from app.training.rollout import (
    DEPTH,
    USUAL,
    Acceptance,
    Result,
    by_spec,
    ngrams,
    results,
    rolled_out,
)
from app.training.run import Progress, Run
from backends.base import DraftUnavailableError, OutOfMemoryError, Rollback
from backends.base.safe_files import read_bounded
from backends.hardware.host import available_memory
from decoding.drafters.ngram import Passage
from decoding.estimation.cost import CostModel
from models.metadata.identity import fingerprint
from training.arrays import Arrays
from training.files import write
from training.libraries import open_arrays
from training.net import Net
from training.samples import SampleCache
from training.trainer import BEST, DivergedError, train, weights_of

_CONTEXT = 1024
"""Of the test's session, in tokens."""

_WIDTHS = (8, 16, 32)
"""Answers at once that are timed: processors make no more of wider passes (data.md)."""

_TIMED_TOKENS = 24
"""Of each answer that is timed."""

_TIMED_STEPS, _BATCH = 3, 512

_AN_ANSWER = 120
"""Tokens of an answer, in the mean over our prompts (135M, 48 answers: 119)."""

_MOST_BYTES = 20_000_000_000
"""Of samples, however large the disk is."""

_MOST_ASKED = 1 << 30
"""Bytes of the prompts of a run."""

_COPIES = 8
"""Of all weights on disk: a checkpoint has three, twice while it is written."""

_SAMPLES, _RESULT = "samples", "result"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the test found.

    name: also the word for `--draft`. rates: tokens a second by drafter, plain decoding included,
    that acceptance and costs, both measured here, lead to. private: whether it learnt from chats.
    """

    name: str
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
        prompts = prompts_of(self._order, self._paths, sum(_WIDTHS), 0).public[-sum(_WIDTHS) :]
        scratch, arrays = self._run.folder / "measured", open_arrays()
        shutil.rmtree(scratch, ignore_errors=True)
        with closing(self._session()) as session:
            info = session.model.info
            if info.rollback is Rollback.NONE:
                what = f"{info.name} cannot be drafted for"
                raise DraftUnavailableError(what, f"it {info.rollback_refusal}")
            self._notify("timing answers side by side")
            asked = list(to_ask(prompts, session.template, system=self._order.system, draws=1))
            width, rate = self._timed(session, asked, scratch)
            free = available_memory() + info.weight_bytes
        cache = SampleCache(scratch / _SAMPLES)
        net = self._net(cache, _TIMED_STEPS, arrays)
        seconds, began = list[float](), time.perf_counter()
        for _ in train(net, cache, scratch):
            self._notify("timing training")
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        net.write(weights_of(scratch), scratch / _RESULT)
        with closing(self._session()) as session:
            costs, cost = self._costs(session, self._spec(session, scratch))
        prompt = round(fmean(len(one.tokens) for one in asked))
        per_token = cache.n_bytes // (cache.tokens + prompt * len(cache))
        here = Measured(
            answers=rate,
            width=width,
            step_seconds=min(seconds),
            step_tokens=round(_BATCH * _AN_ANSWER / (prompt + _AN_ANSWER)),
            plain=1.0 / costs.seconds(1),
            draw=cost.draw,
            token_bytes=per_token * (prompt + _AN_ANSWER) // _AN_ANSWER,
            kept_bytes=_COPIES * net.weight_bytes,
            memory_bytes=net.peak_bytes(),
            free_disk=shutil.disk_usage(scratch).free,
            free_memory=free,
        )
        shutil.rmtree(scratch, ignore_errors=True)
        return planned(self._order.method, self._order.minutes, here, costs)

    def _timed(
        self, session: Session, prompts: Sequence[Asked], scratch: Path
    ) -> tuple[int, float]:
        """How many answers at once make the most tokens a second, and how many.

        Raises:
            OutOfMemoryError: there is no room for the narrowest.
        """
        rates, rest = dict[int, float](), iter(prompts)
        for wanted in _WIDTHS:
            try:
                harvest = self._harvest(session, wanted)
            except OutOfMemoryError:
                if rates:
                    break
                raise
            with closing(harvest):
                if (width := harvest.width) in rates:  # no wider one is possible
                    break
                began, asked = time.perf_counter(), islice(rest, wanted)
                made = self._answers(session, harvest, scratch, asked, most=_TIMED_TOKENS)
                told = [(tokens, time.perf_counter()) for tokens in made]
            (before, read), (after, ended) = told[width - 1], told[-1]
            a_prompt, a_token = (read - began) / width, (ended - read) / (after - before)
            rates[width] = _AN_ANSWER / (a_prompt + _AN_ANSWER * a_token)
        best = max(rates, key=lambda width: rates[width])
        return best, rates[best]

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
        total, folder = self._plan.tokens, self._run.folder
        with closing(self._session()) as session:
            asked = self._asked(session)[0]
            with closing(self._harvest(session, self._plan.width)) as harvest:
                for tokens in self._answers(session, harvest, folder, asked, stop, total):
                    yield Progress(Stage.GENERATE, tokens, total)

    def _trained(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        folder, arrays = self._run.folder, open_arrays()
        self._notify("reading the answers")
        cache = SampleCache(folder / _SAMPLES)
        net = self._net(cache, self._plan.steps, arrays)
        try:
            for one in train(net, cache, folder, stop):
                yield Progress(Stage.TRAIN, one.step, one.steps)
        except DivergedError as error:
            if not (folder / BEST).exists():
                raise
            self._notify(error.summary)  # what was best before is tested
        if not stop():
            net.write(weights_of(folder), folder / _RESULT)

    def _tested(self, stop: Callable[[], bool]) -> Iterator[Progress]:
        folder, notes = self._run.folder, self._run.folder / "test.jsonl"
        with closing(self._session()) as session:
            spec = self._spec(session, folder)
            costs, cost = self._costs(session, spec)
            contenders = [by_spec(spec, TRAINED), by_spec("lookup"), ngrams(self._said)]
            _, asked, marks = self._asked(session)
            for done, total in rolled_out(session, contenders, asked, notes, stop=stop):
                yield Progress(Stage.TEST, done, total)
            if not stop():
                found = tuple(results(contenders, asked, notes))
                self.outcome = self._registered(session, found, _rates(found, costs, cost), marks)

    def _registered(
        self,
        session: Session,
        found: tuple[Result, ...],
        rates: dict[str, float],
        chats: Sequence[str],
    ) -> Outcome:
        """Keep what was trained, for as long as its model's file is the same."""
        info, method = session.model.info, self._order.method
        own = next(one for one in found if one.name == TRAINED and one.temperature == USUAL)
        made = Registered(
            name=drafter_name(self._options.model or info.name, method),
            method=method,
            target=fingerprint(self._run.target),
            model=self._run.target.name,
            engine=info.backend,
            acceptance=tuple(round(share, 4) for share in own.overall.conditional),
            made=datetime.datetime.now().astimezone().date().isoformat(),
        )
        entry = register(self._paths, made, (self._run.folder / _RESULT).iterdir(), chats)
        return Outcome(entry.name, found, rates, bool(entry.taught_by))

    @property
    def _plan(self) -> Plan:
        assert self._run.plan is not None, "a run that has begun"
        return self._run.plan

    def _session(self) -> Session:
        return open_session(self._options, self._paths, self._notify, _CONTEXT)

    def _spec(self, session: Session, folder: Path) -> str:
        """The word for `--draft` of what was trained, before it is registered."""
        file = drafting_file(folder / _RESULT, session.model.info.backend)
        return spec_of(self._order.method, file)

    def _costs(self, session: Session, spec: str) -> tuple[CostModel, Cost]:
        """Of passes, and of what was trained, measured here."""
        costs = Calibrations(self._paths, self._notify).target(session.model, session.context)
        session.context.be_ready_to_draft()
        with closing(build(session.spec(spec), session.environment(self._notify))) as drafting:
            if not drafting.handles:
                raise DraftUnavailableError(f"{spec} cannot draft", drafting.missing)
            measured = drafting.handles[0].member.cost
        assert measured is not None, "it is a model"
        return costs, Cost.of(measured, costs.seconds(1))

    def _net(self, cache: SampleCache, steps: int, arrays: Arrays) -> Net:
        order, target = self._order, self._run.target
        settings = settings_of(order, steps, _BATCH)
        return net_of(order, target, self._paths.models, cache, settings, arrays)

    def _harvest(self, session: Session, width: int) -> Harvest:
        model, is_tapped = session.model, self._order.method is Method.EAGLE3
        return open_harvest(model, N_CTX, width, taps_here(model) if is_tapped else ())

    def _answers(
        self,
        session: Session,
        harvest: Harvest,
        folder: Path,
        asked: Iterable[Asked],
        stop: Callable[[], bool] = bool,
        most_tokens: float = math.inf,
        most: int = MOST,
    ) -> Iterator[int]:
        """Fill the samples of a folder; yields the tokens of all answers after each pass."""
        cache = SampleCache(folder / _SAMPLES, _MOST_BYTES)
        ends = session.model.tokenizer.end_tokens
        return answer(harvest, asked, cache, ends, stop=stop, most=most, most_tokens=most_tokens)

    def _asked(self, session: Session) -> tuple[list[Asked], list[Asked], list[str]]:
        """Prompts to train and to test on, and marks of chats that are in the former.

        They are chosen once: what a run of days learns from, and what its test leaves out, is the
        same when chats were added, changed or removed meanwhile.
        """
        file, order = self._run.folder / "asked.json", self._order
        if not file.exists():
            count = self._plan.tokens // _AN_ANSWER + 1  # twice as many as are expected to do
            found = prompts_of(order, self._paths, count, self._plan.tested)
            ask = partial(to_ask, template=session.template, system=order.system, seed=order.seed)
            parts = mixed(ask(found.public), ask(found.own)), ask(found.tested, draws=1)
            asked = [[asdict(one) for one in part] for part in parts]
            write(file, json.dumps([*asked, found.marks]))
        *asked, marks = json.loads(read_bounded(file, _MOST_ASKED))
        trained, tested = ([Asked(**one) for one in part] for part in asked)
        return trained, tested, marks

    def _said(self) -> Iterator[Passage]:
        """What the model said, for n-grams that learn the same."""
        cache = SampleCache(self._run.folder / _SAMPLES)
        for number in range(len(cache)):
            sample = cache.sample(number)
            yield Passage(sample.tokens.tolist(), sample.first)


def _rates(found: Iterable[Result], costs: CostModel, cost: Cost) -> dict[str, float]:
    """Tokens a second at the usual temperature, each with the length of draft that is best."""
    plain, free = 1.0 / costs.seconds(1), Cost(0.0)
    rates = {"plain": plain}
    for one in found:
        if one.temperature == USUAL:
            of = cost if one.name == TRAINED else free
            rates[one.name] = plain * _speedup(one.overall, costs, of)
    return rates


def _speedup(found: Acceptance, costs: CostModel, of: Cost) -> float:
    drafting = 1.0 - found.silent
    return max(
        (1.0 + sum(found.cumulative[:length]))
        / (1.0 + drafting * (costs.of_draft(length) + of.start + length * of.draw))
        for length in range(1, min(DEPTH + 1, costs.largest))
    )
