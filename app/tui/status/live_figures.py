"""Live figures of an answer, in the panel and in the line above the prompt."""

import time
from collections import deque

from app.engine.answer import Answer, Stage
from app.engine.engine_status import Loaded
from app.engine.reply_metrics import ReplyMetrics
from app.tui import wording
from app.tui.status.figure_text import FigureText
from app.tui.status.panel import Panel

_UPDATE_SECONDS = 0.35
"""Between updates of panel and line, which alternate: painting takes time from the model, and
painting two places at once costs Textual as much as everything between them."""

_SAMPLE_SECONDS = 1.0

_RATE_SECONDS = 3.0
"""Window of the current rate: tokens arrive in bursts."""

_MIN_RATE_SECONDS = 0.2


class LiveFigures:
    """Updates panel and line when figures change, and no more often than is cheap."""

    def __init__(self, panel: Panel, line: FigureText) -> None:
        self._panel = panel
        self._line = line
        self._rate = CurrentRate()
        self._sampled_at = 0.0
        self._shown_at = 0.0
        self._shown: tuple[int, int] | None = None
        """Answer and model whose final figures are shown; None while they may change."""
        self._is_panels_turn = True
        self._loaded: Loaded | None = None
        """The model and drafters that the last answer used."""

    def restart_rate(self) -> None:
        """Measure the current rate anew, for a new answer."""
        self._rate = CurrentRate()

    def refresh(self) -> None:
        """Write the figures at the next update even if they have not changed."""
        self._shown = None

    def update(self, answer: Answer | None, loaded: Loaded | None, *, is_pending: bool) -> None:
        """Show an answer's figures if they are due; call it on a timer."""
        metrics = answer.metrics if answer is not None else None
        if metrics is not None and (loaded is None or loaded.info != metrics.model):
            answer = metrics = None  # another model has been loaded since
        now_rate = self._rate.after(metrics.completion_tokens) if is_pending and metrics else None
        if is_pending:
            self._loaded = loaded
        now = time.monotonic()
        if now - self._sampled_at >= _SAMPLE_SECONDS:
            self._sampled_at = now
            self._panel.sample(now_rate or 0.0)
        final = (id(answer), id(loaded))
        if now - self._shown_at < _UPDATE_SECONDS if is_pending else self._shown == final:
            return
        self._shown_at = now
        self._shown = None if is_pending else final
        self._write(answer, metrics, self._state(metrics, loaded), now_rate, is_pending=is_pending)

    def _state(self, metrics: ReplyMetrics | None, loaded: Loaded | None) -> str:
        if loaded is self._loaded:
            return wording.state(metrics, loaded)
        state = wording.state(None, loaded)
        return state if metrics is None else f"next answer: {state}"

    def _write(
        self,
        answer: Answer | None,
        metrics: ReplyMetrics | None,
        state: str,
        now_rate: float | None,
        *,
        is_pending: bool,
    ) -> None:
        self._is_panels_turn = not self._is_panels_turn
        if self._is_panels_turn or not is_pending:
            self._panel.show(metrics, state, now_rate)
        if not self._is_panels_turn or not is_pending:
            self._line.write(state_line(answer, state, now_rate))


class CurrentRate:
    """Tokens per second over the last few seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def after(self, tokens: int) -> float | None:
        """The rate now that an answer has so many tokens; None until it can be measured."""
        now = time.monotonic()
        self._counts.append((now, tokens))
        while now - self._counts[0][0] > _RATE_SECONDS:
            self._counts.popleft()
        then, before = self._counts[0]
        seconds = now - then
        return (tokens - before) / seconds if seconds > _MIN_RATE_SECONDS else None


def state_line(answer: Answer | None, state: str, now_rate: float | None) -> str:
    """One line on the answer and the drafters; now_rate is None unless text is being generated."""
    metrics = answer.metrics if answer else None
    parts = [state]
    if answer is not None and answer.stage is Stage.QUEUED:
        parts.insert(0, "waiting for the model")
    elif answer is not None and answer.stage is Stage.READING:
        done, total = answer.read
        parts.insert(0, f"prefill: {done:,} of {total:,} tokens" if total else "prefill")
    elif metrics is not None:
        parts = [*_figures(metrics, now_rate), *parts]
    return " · ".join(filter(None, parts))


def _figures(metrics: ReplyMetrics, now_rate: float | None) -> list[str]:
    figures = [wording.rate(now_rate or metrics.decode_tokens_per_second)]
    if metrics.drafted:
        figures.append(wording.against_plain(metrics))
        figures.append(f"{wording.percent(metrics.acceptance)} of drafted accepted")
    figures.append(metrics.lossy)
    figures.append(f"context {metrics.context_used:,}/{metrics.context_size:,}")
    return figures
