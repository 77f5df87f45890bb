"""Words and figures that screens and files share."""

import datetime
import time

SEPARATOR = " · "
"""Between the parts of a line of figures."""

CONTINUES = "Ctrl+T continues"


def without_continuation(line: str) -> str:
    """The line below an answer without the key that continues it."""
    return line.removesuffix(CONTINUES).removesuffix(SEPARATOR)


def percentage(count: int, total: int) -> str:
    """Rounded per cent of count in a positive total, without the sign."""
    if count and 200 * count <= total:
        return "<1"
    return f"{100 * count / total:.0f}"


def counted(count: int, word: str) -> str:
    """A number with its noun, such as 1 token or 2,048 tokens."""
    return f"{count:,} {word}{'s' * (count != 1)}"


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MINUTE, _HOUR = 60.0, 3600.0


def relative_time(then: float, now: float | None = None) -> str:
    """A moment, such as 2 h ago, yesterday, 3 Mar, or 3 Mar 2024 in another year.

    then, now: seconds since 1970; now: by default the present. A moment in the future is now; 0
    means unknown, and gives no text.
    """
    if then <= 0.0:
        return ""
    now = time.time() if now is None else now
    passed = max(now - then, 0.0)
    if passed < _MINUTE:
        return "now"
    if passed < _HOUR:
        return f"{passed // _MINUTE:.0f} min ago"
    day, today = _date(then), _date(now)
    if day == today:
        return f"{passed // _HOUR:.0f} h ago"
    if (today - day).days == 1:
        return "yesterday"
    text = f"{day.day} {_MONTHS[day.month - 1]}"
    return text if day.year == today.year else f"{text} {day.year}"


def _date(seconds: float) -> datetime.date:
    return datetime.datetime.fromtimestamp(seconds).astimezone().date()
