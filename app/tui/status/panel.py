"""The live panel: the speedup by drafting, and the figures behind it."""

from collections import deque
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Sparkline

from app.engine.reply_metrics import DrafterMetrics, ReplyMetrics
from app.engine.shapes import shape_shares
from app.tui import wording
from app.tui.status.figure_text import FigureText
from app.tui.status.histogram import histogram

_SAMPLES = 60
_BAR_WIDTH = 10
_NAME_WIDTH = 18
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int = _BAR_WIDTH) -> str:
    """A horizontal bar of a share between 0 and 1."""
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


class Panel(VerticalScroll):
    """Figures of the answer in progress, or of the last one."""

    DEFAULT_CSS: ClassVar[str] = """
    Panel { width: 38; padding: 0 1; border-left: solid $surface-lighten-2; }
    Panel Static { height: auto; margin: 0 0 1 0; }
    Panel Sparkline { height: 2; margin: 0 0 1 0; }
    Panel .speed { text-style: bold; }
    """
    can_focus = False

    def __init__(self) -> None:
        super().__init__()
        self._samples: deque[float] = deque([0.0] * _SAMPLES, maxlen=_SAMPLES)

    def compose(self) -> ComposeResult:
        yield FigureText(classes="speed")
        yield Sparkline(list(self._samples))
        yield FigureText(classes="figures")

    def sample(self, rate: float) -> None:
        """Append the rate of one second to the chart of the last minute."""
        self._samples.append(rate)
        if self.display:
            self.query_one(Sparkline).data = list(self._samples)

    def show(self, metrics: ReplyMetrics | None, state: str, now_rate: float | None) -> None:
        """Show the figures; now_rate is None unless text is being generated."""
        if not self.display:
            return
        self.query_one(".speed", FigureText).write(_speed(metrics, now_rate))
        now = _now(metrics) if metrics and now_rate is not None else ""
        self.query_one(".figures", FigureText).write(_figures(metrics, state, now))


def _speed(metrics: ReplyMetrics | None, now_rate: float | None) -> str:
    if metrics is None:
        return "no answer yet"
    speedup = wording.against_plain(metrics) if metrics.drafted else "plain decoding"
    rates = f"{wording.rate(metrics.decode_tokens_per_second)} · now {wording.rate(now_rate)}"
    return "\n".join(filter(None, [speedup, rates, metrics.lossy]))


def _figures(metrics: ReplyMetrics | None, state: str, now: str) -> str:
    blocks = [state, now]
    if metrics is not None:
        blocks += [_drafting(metrics), _positions(metrics), _lengths(metrics), _drafters(metrics)]
        blocks += [_wall(metrics), _time(metrics), _context(metrics), _memory(metrics)]
    return "\n\n".join(filter(None, blocks))


def _now(metrics: ReplyMetrics) -> str:
    """The decision of the last step; empty without a controller, which makes them."""
    if not metrics.decision:
        return ""
    return f"now: {metrics.decision}\nshape: {metrics.shape}"


def _drafting(metrics: ReplyMetrics) -> str:
    per_step = wording.NONE if metrics.tokens_per_step is None else f"{metrics.tokens_per_step:.2f}"
    plain = wording.rate(metrics.plain_tokens_per_second)
    return "\n".join(
        [
            f"acceptance {wording.percent(metrics.acceptance)} of drafted",
            f"           {metrics.accepted} of {metrics.drafted} tokens",
            f"tokens per step {per_step}",
            f"plain {plain}" + (f"\n  {metrics.plain_source}" if metrics.plain_source else ""),
        ]
    )


def _positions(metrics: ReplyMetrics) -> str:
    if not metrics.accepted_by_position:
        return ""
    rows = [
        f"{position:2} {bar(share)} {wording.percent(share):>5} of {drafted}"
        for position, (share, drafted) in enumerate(
            zip(metrics.accepted_by_position[:8], metrics.drafted_at_position, strict=False), 1
        )
    ]
    return "\n".join(["accepted by position in a draft", *rows])


def _lengths(metrics: ReplyMetrics) -> str:
    drafts = sum(metrics.accepted_lengths)
    if not drafts:
        return ""
    shares = shape_shares(metrics.steps_by_shape)
    rows = [f"accepted length of {drafts:,} drafts, %", *histogram(metrics.accepted_lengths)]
    return "\n".join([*rows, f"steps: {shares}"] if shares else rows)


def _drafters(metrics: ReplyMetrics) -> str:
    rows = [_drafter(name, figures) for name, figures in metrics.by_drafter.items()]
    return "\n".join(["accepted by drafter", *rows]) if rows else ""


def _drafter(name: str, figures: DrafterMetrics) -> str:
    """One line; a long name is on lines of its own."""
    counts = f"{figures.accepted:5} of {figures.drafted:5}"
    if len(name) > _NAME_WIDTH:
        return f"{name}\n{'':{_NAME_WIDTH}} {counts}"
    return f"{name:{_NAME_WIDTH}} {counts}"


def _wall(metrics: ReplyMetrics) -> str:
    wall, bandwidth = metrics.wall_tokens_per_second, metrics.bandwidth_bytes_per_second
    if wall is None or bandwidth is None or metrics.times_wall is None:
        return ""
    return (
        f"wall {bar(metrics.times_wall / 2)} {metrics.times_wall:.2f}×\n"
        f"  {wording.rate(wall)} at {wording.size(bandwidth)}/s\n"
        f"  {metrics.bandwidth_source}"
    )


def _time(metrics: ReplyMetrics) -> str:
    other = metrics.overhead_seconds or 0.0
    total = metrics.draft_seconds + metrics.verify_seconds + other
    if total <= 0.0:
        return ""
    shares = [
        f"{name} {wording.percent(seconds / total)}"
        for name, seconds in (
            ("draft", metrics.draft_seconds),
            ("verify", metrics.verify_seconds),
            ("other", other),
        )
    ]
    return "time " + " · ".join(shares)


def _context(metrics: ReplyMetrics) -> str:
    share = metrics.context_used / metrics.context_size
    return f"context {bar(share)} {metrics.context_used:,} / {metrics.context_size:,}"


def _memory(metrics: ReplyMetrics) -> str:
    parts = [f"model {wording.size(metrics.memory.target_bytes)}"]
    if metrics.memory.drafter_bytes:
        parts.append(f"drafter {wording.size(metrics.memory.drafter_bytes)}")
    parts.append(f"KV {wording.size(metrics.memory.kv_bytes)}")
    return "memory " + " · ".join(parts)
