"""The live panel: the speedup by drafting, and the figures behind it."""

from collections import deque
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Sparkline

from app.live import DrafterFigures, Live
from app.shapes import shape_shares
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

    def show(self, live: Live | None, state: str, now_rate: float | None) -> None:
        """Show the figures; now_rate is None unless text is being generated."""
        if not self.display:
            return
        self.query_one(".speed", FigureText).write(_speed(live, now_rate))
        now = _now(live) if live and now_rate is not None else ""
        self.query_one(".figures", FigureText).write(_figures(live, state, now))


def _speed(live: Live | None, now_rate: float | None) -> str:
    if live is None:
        return "no answer yet"
    speedup = wording.against_plain(live.speedup) if live.drafted else "plain decoding"
    rates = f"{wording.rate(live.rate)} · now {wording.rate(now_rate)}"
    return "\n".join(filter(None, [speedup, rates, live.lossy]))


def _figures(live: Live | None, state: str, now: str) -> str:
    blocks = [state, now]
    if live is not None:
        blocks += [_drafting(live), _positions(live), _lengths(live), _drafters(live)]
        blocks += [_wall(live), _time(live), _context(live), _memory(live)]
    return "\n\n".join(filter(None, blocks))


def _now(live: Live) -> str:
    """The decision of the last step; empty without a controller, which makes them."""
    if not live.choice:
        return ""
    return f"now: {live.choice}\nshape: {live.shape}"


def _drafting(live: Live) -> str:
    per_step = wording.NONE if live.tokens_per_step is None else f"{live.tokens_per_step:.2f}"
    plain = wording.rate(live.plain_rate)
    return "\n".join(
        [
            f"acceptance {wording.percent(live.acceptance)} of drafted",
            f"           {live.accepted} of {live.drafted} tokens",
            f"tokens per step {per_step}",
            f"plain {plain}" + (f"\n  {live.plain_source}" if live.plain_source else ""),
        ]
    )


def _positions(live: Live) -> str:
    if not live.accepted_by_position:
        return ""
    rows = [
        f"{position:2} {bar(share)} {wording.percent(share):>5} of {drafted}"
        for position, (share, drafted) in enumerate(
            zip(live.accepted_by_position[:8], live.drafted_at_position, strict=False), 1
        )
    ]
    return "\n".join(["accepted by position in a draft", *rows])


def _lengths(live: Live) -> str:
    drafts = sum(live.accepted_lengths)
    if not drafts:
        return ""
    shares = shape_shares(live.steps_by_shape)
    rows = [f"accepted length of {drafts:,} drafts, %", *histogram(live.accepted_lengths)]
    return "\n".join([*rows, f"steps: {shares}"] if shares else rows)


def _drafters(live: Live) -> str:
    rows = [_drafter(figures) for figures in live.by_drafter]
    return "\n".join(["accepted by drafter", *rows]) if rows else ""


def _drafter(figures: DrafterFigures) -> str:
    """One line; a long name is on lines of its own."""
    counts = f"{figures.accepted:5} of {figures.drafted:5}"
    if len(figures.name) > _NAME_WIDTH:
        return f"{figures.name}\n{'':{_NAME_WIDTH}} {counts}"
    return f"{figures.name:{_NAME_WIDTH}} {counts}"


def _wall(live: Live) -> str:
    if live.wall is None or live.bandwidth is None or live.times_wall is None:
        return ""
    return (
        f"wall {bar(live.times_wall / 2)} {live.times_wall:.2f}×\n"
        f"  {wording.rate(live.wall)} at {wording.size(live.bandwidth)}/s\n"
        f"  {live.bandwidth_source}"
    )


def _time(live: Live) -> str:
    total = live.draft_seconds + live.verify_seconds + live.other_seconds
    if total <= 0.0:
        return ""
    shares = [
        f"{name} {wording.percent(seconds / total)}"
        for name, seconds in (
            ("draft", live.draft_seconds),
            ("verify", live.verify_seconds),
            ("other", live.other_seconds),
        )
    ]
    return "time " + " · ".join(shares)


def _context(live: Live) -> str:
    share = live.context_used / live.context_size
    return f"context {bar(share)} {live.context_used:,} / {live.context_size:,}"


def _memory(live: Live) -> str:
    parts = [f"model {wording.size(live.target_bytes)}"]
    if live.drafter_bytes:
        parts.append(f"drafter {wording.size(live.drafter_bytes)}")
    parts.append(f"KV {wording.size(live.kv_bytes)}")
    return "memory " + " · ".join(parts)
