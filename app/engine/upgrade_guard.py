"""Whether a model became slower, or answers otherwise, as its engine, driver or file changed."""

import math
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple, Self

from app.builtin_prompts import built_in_prompts
from app.engine.jobs import LOOK_AGAIN_SECONDS, MEASURE_AFTER_SECONDS
from app.engine.session import Session
from app.learned.calibrations import ProcessorTimes
from app.learned.speeds import PlainReplies
from app.learned.store import Store, latest, loaded_key, number
from app.paths import Paths
from backends.base import Context, ModelInfo, PassStoppedError
from backends.base.model import stopping_passes
from backends.chat.message import Message
from backends.engines.engine_facts import quantized
from backends.hardware.nvidia import driver_version
from decoding.prefill import prefill
from models.metadata.identity import fingerprint

_CONTEXT, _PROMPTS, _TOKENS = 512, 2, 48
_LAPS = 6
"""Answers to each prompt, of which the first tells the text."""

_SECONDS = 12.0
"""Longest answer, and the time from which no other is timed: half a minute in all."""

_NEAR = 1.0
"""Logits: kernels that round otherwise moved one by 0.97 after 272 tokens, and two may move
(docs/reference/measurements.md)."""

_MOST_MODELS, _MOST_SETUPS = 64, 4
_PACKAGE = re.compile(r"(?:^|, )([\w-]+) (\d[\w.]*)")
"""In an engine's build."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What may change under a model: build of the engine, device, driver, fingerprint of files."""

    engine: str
    device: str
    driver: str
    file: str

    @classmethod
    def of(cls, info: ModelInfo) -> Self:
        """Raises OSError: the model's files cannot be read."""
        is_on_processor = info.device.startswith("CPU")
        driver = "" if is_on_processor else driver_version() or platform.mac_ver()[0]
        return cls(info.engine, info.device, driver, fingerprint(info.path))

    def changes(self, before: "Setup") -> tuple[str, str]:
        """What is other than before, and how to go back, both in words."""
        old, new = (_PACKAGE.findall(each.engine) for each in (before, self))
        pairs = zip(new, old, strict=False)
        rows = [(name, now, was) for (name, now), (_, was) in pairs if now != was]
        back = ""
        if rows:
            packages = " ".join(f"{name}=={version}" for name, version in old).lower()
            back = f" To go back: uv pip install {packages}, then uv run --no-sync specchat."
        told = [] if rows or self.engine == before.engine else ["another build of the engine"]
        rows += [("device", self.device, before.device), ("driver", self.driver, before.driver)]
        told += [
            f"{what} {now} in place of {was or 'none'}" for what, now, was in rows if now != was
        ]
        told += ["another file in its place"] if self.file != before.file else []
        return ", ".join(told), back


@dataclass(frozen=True, slots=True)
class Measured:
    """What a setup reached on a date: plain tokens a second, and greedy replies to our prompts.

    noise: relative standard error of the rate within that time. run: key of its plain replies.
    finding: what was told of it, "" for nothing.
    """

    setup: Setup
    run: str
    date: str
    rate: float
    noise: float
    replies: tuple[tuple[int, ...], ...]
    finding: str = ""

    def words(self, spread: float) -> str:
        return f"{self.rate:.3g} ± {2 * math.hypot(self.noise, spread) * self.rate:.1g}"


class _Reply(NamedTuple):
    """Greedy tokens, and seconds after the first.

    place: of the first token, from 1 on, that is not as before, 0 for none; margin: in logits.
    """

    tokens: list[int]
    seconds: float
    margin: float
    place: int


class Guarding:
    """Looks once whether a change made the loaded model slower, or its answers others.

    may_measure: why nothing may be measured now, "" if it may. tell: is told what was found.
    """

    def __init__(
        self,
        session: Session,
        may_measure: Callable[[], str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session, self._may_measure, self._tell = session, may_measure, tell
        self._clock, self._not_before, info = clock, 0.0, session.model.info
        is_elsewhere = info.host or info.device.startswith("RPC")
        self._is_due = not (is_elsewhere or info.streamed_bytes_per_token)

    def due_in(self, idle: float) -> float | None:
        if not self._is_due:
            return None
        return max(MEASURE_AFTER_SECONDS - idle, self._not_before - time.monotonic())

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Measure for half a minute, unless it was, until is_wanted, asked at each token, is False.

        A busy machine is looked at again later.
        """
        try:
            before = ProcessorTimes.now()
            is_done = not self._may_measure() and self._check(before, is_wanted)
            self._not_before = time.monotonic() + LOOK_AGAIN_SECONDS
        except PassStoppedError:
            return
        except Exception:  # such as short memory, of which answers tell
            is_done = True
        self._is_due = not is_done

    def _check(self, started: ProcessorTimes, is_wanted: Callable[[], bool]) -> bool:
        """Compare with what was measured before; False if the machine was busy meanwhile."""
        info, store = self._session.model.info, _store(self._session.paths)
        layers = f"{self._session.options.local_layers} {info.gpu_layers}"
        chosen = f"{info.threads} {layers} {quantized(info.cache_type)}"
        key, setup = f"{info.path} {info.variant} {info.backend} {chosen}", Setup.of(info)
        kept = (store.read() or {}).get(key, [])
        now = next((one for one in kept if one.setup == setup), None)
        if now is None:
            now = self._measured(setup, kept[-1] if kept else None, is_wanted)
            if started.load_until(ProcessorTimes.now()) > 0.0:
                return False
            if now is not None and now.finding:
                self._tell(now.finding)
        if now is not None and (not kept or kept[-1] != now):
            store.change(lambda others: _added(others or {}, key, now))
        return True

    def _measured(
        self, setup: Setup, before: Measured | None, is_wanted: Callable[[], bool]
    ) -> Measured | None:
        """What is measured, compared with before; None if no answer has two tokens."""
        begun, replies, template = self._clock(), list[_Reply](), self._session.template
        asked = [Message("user", one.text) for one in built_in_prompts()[:_PROMPTS]]
        with self._session.context.second(_CONTEXT) as context:
            for lap, (place, message) in product(range(_LAPS), enumerate(asked)):
                if not lap or self._clock() - begun < _SECONDS:
                    prompt = template.prompt([message]).tokens
                    earlier = before.replies[place] if before else ()
                    replies.append(self._reply(context, prompt, earlier, is_wanted))
        rates = [math.log((len(one.tokens) - 1) / one.seconds) for one in replies if one.seconds]
        if len(rates) < 2:
            return None
        noise, texts = statistics.stdev(rates), replies[:_PROMPTS]
        now = Measured(
            setup, loaded_key(self._session.model.info), f"{datetime.now(UTC):%Y-%m-%d}",
            math.exp(statistics.mean(rates)), noise / math.sqrt(len(rates)),
            tuple(tuple(one.tokens) for one in texts),
        )  # fmt: skip
        worst = max(texts, key=lambda one: (one.margin, one.place))
        return replace(now, finding=self._finding(before, now, worst)) if before else now

    def _reply(
        self,
        context: Context,
        prompt: Sequence[int],
        before: Sequence[int],
        is_wanted: Callable[[], bool],
    ) -> _Reply:
        context.truncate(0)
        with stopping_passes(lambda: not is_wanted()):
            *_, (_, rows) = prefill(context, prompt)
        begun, tokens, margin, differs = self._clock(), list[int](), 0.0, 0
        while True:
            place, row, token = len(tokens), rows[-1], int(rows[-1].argmax())
            if not differs and place < len(before) and token != before[place]:
                is_known = before[place] < len(row)  # another file may have fewer tokens
                margin = float(row[token] - row[before[place]]) if is_known else math.inf
                differs = place + 1
            tokens.append(token)
            seconds = self._clock() - begun
            is_over = token in self._session.model.tokenizer.end_tokens or len(tokens) == _TOKENS
            if is_over or seconds > _SECONDS:
                return _Reply(tokens, seconds if place else 0.0, margin, differs)
            if not is_wanted():
                raise PassStoppedError
            rows = context.forward([token], 1)

    def _finding(self, before: Measured, now: Measured, text: _Reply) -> str:
        """What is worse or other than before, "" for nothing. text: the one that differs most."""
        spread = PlainReplies.at(self._session.paths.plain_replies / f"{before.run}.json").spread
        error, found = math.hypot(before.noise, now.noise, spread, spread), list[str]()
        if math.log(before.rate / now.rate) > 2.0 * error:
            rates = f"{now.words(spread)} tok/s, not {before.words(spread)} as on {before.date}"
            found.append(f"plain decoding has {rates}")
        if text.place:
            why = "a near-tie" if text.margin <= _NEAR else "more than rounding explains"
            where = f"from token {text.place} by {text.margin:.2g} logits, {why}"
            found.append(f"an answer at temperature 0 is another, {where}")
        if not found:
            return ""
        changes, back = now.setup.changes(before.setup)
        return f"{self._session.model.info.name}, since {changes}: {'; '.join(found)}.{back}"


def findings(paths: Paths) -> list[str]:
    """What was found of the setups that were used last, by model."""
    kept = (_store(paths).read() or {}).values()
    return [one[-1].finding for one in kept if one and one[-1].finding]


_Kept = dict[str, list[Measured]]
"""Setups of each model, the one used last at the end."""


def _added(before: _Kept, key: str, new: Measured) -> _Kept:
    others = [one for one in before.pop(key, []) if one.setup != new.setup]
    return {**before, key: [*others, new][-_MOST_SETUPS:]}


def _store(paths: Paths) -> Store[_Kept]:
    def text(kept: _Kept) -> dict[str, Any]:
        return {key: [asdict(one) for one in kept[key]] for key in [*kept][-_MOST_MODELS:]}

    def parse(found: Any) -> list[Measured]:
        return [_parsed(**one) for one in found]

    return Store(paths.upgrades, 1, lambda value: latest(parse, value, _MOST_MODELS), text)


def _parsed(setup: Any, rate: Any, noise: Any, replies: Any, **words: Any) -> Measured:
    return Measured(
        setup=Setup(**{key: str(value) for key, value in setup.items()}),
        rate=number(rate, is_positive=True),
        noise=number(noise),
        replies=tuple(tuple(map(int, replies[place])) for place in range(_PROMPTS)),
        **{key: str(value) for key, value in words.items()},
    )
