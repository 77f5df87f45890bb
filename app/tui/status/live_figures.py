"""The figures of the answer at work on the screen: the panel and the line above the prompt."""

import time
from collections import deque

from textual.screen import Screen

from app.answer import Answer, Stage
from app.engine_status import Loaded
from app.live import Live
from app.tui import wording
from app.tui.status.figure_text import FigureText
from app.tui.status.panel import Panel

_BETWEEN_SECONDS = 0.35
"""Between a picture of the panel and one of the line: painting takes time from the model, and
two places at once take Textual as long as all that lies between them."""

_RATE_SECONDS = 3.0
"""What the present rate is taken over: tokens come in bursts."""


class Figures:
    """Writes figures when they changed, and no more often than the machine can afford."""

    def __init__(self, screen: Screen[None]) -> None:
        self._screen = screen
        self._rates: deque[tuple[float, int]] = deque()
        self._sampled_at = 0.0
        self._shown_at = 0.0
        self._shown: object = ""
        self._is_panels_turn = True
        self._loaded: Loaded | None = None
        """What was loaded when an answer was last at work."""

    def begin(self) -> None:
        """A new answer: what came before says nothing of its rate."""
        self._rates.clear()

    def refresh(self) -> None:
        """Write the figures again at the next chance, whether they changed or not."""
        self._shown = ""

    def show(self, answer: Answer | None, loaded: Loaded | None, *, is_at_work: bool) -> None:
        """Show the figures of an answer; call it on a timer."""
        live = answer.live if answer is not None else None
        if live is not None and (loaded is None or loaded.info != live.model):
            answer = live = None  # of a model that is gone
        now_rate = self._now_rate(live.tokens) if is_at_work and live else None
        if is_at_work:
            self._loaded = loaded
        now = time.monotonic()
        panel = self._screen.query_one(Panel)
        if now - self._sampled_at >= 1.0:
            self._sampled_at = now
            panel.sample(now_rate or 0.0)
        rest = (id(answer), id(loaded))
        if now - self._shown_at < _BETWEEN_SECONDS if is_at_work else self._shown == rest:
            return
        self._shown_at = now
        self._shown = "" if is_at_work else rest
        state = wording.state(live if loaded is self._loaded else None, loaded)
        if live is not None and loaded is not self._loaded:  # its figures are of other drafters
            state = f"next answer: {state}"
        self._is_panels_turn = not self._is_panels_turn
        if self._is_panels_turn or not is_at_work:
            panel.show(live, state, now_rate)
        if not self._is_panels_turn or not is_at_work:
            line = state_line(answer, state, now_rate)
            self._screen.query_one("#state", FigureText).write(line)

    def _now_rate(self, tokens: int) -> float | None:
        now = time.monotonic()
        self._rates.append((now, tokens))
        while now - self._rates[0][0] > _RATE_SECONDS:
            self._rates.popleft()
        then, before = self._rates[0]
        return (tokens - before) / (now - then) if now - then > 0.2 else None


def state_line(answer: Answer | None, state: str, now_rate: float | None) -> str:
    """One line of what happens; now_rate is None where nothing is being said."""
    live = answer.live if answer else None
    parts = [state]
    if answer is not None and answer.stage is Stage.QUEUED:
        parts.insert(0, "waiting for the model")
    elif answer is not None and answer.stage is Stage.READING:
        done, total = answer.read
        parts.insert(0, f"prefill: {done:,} of {total:,} tokens" if total else "prefill")
    elif live is not None:
        parts = [*_rates(live, now_rate), *parts]
    return " · ".join(filter(None, parts))


def _rates(live: Live, now_rate: float | None) -> list[str]:
    shown = [wording.rate(now_rate or live.rate)]
    if live.drafted:
        shown.append(wording.against_plain(live.speedup))
        shown.append(f"{wording.percent(live.acceptance)} of drafted accepted")
    shown.append(live.lossy)
    shown.append(f"context {live.context_used:,}/{live.context_size:,}")
    return shown
