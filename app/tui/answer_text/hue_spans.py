"""Spans of hue laid over text that is styled already."""

from collections.abc import Mapping, Sequence

from textual.content import Content, Span

Hues = Mapping[int, Sequence[Span]]
"""Spans by index of a part of the text: a line of code, a cell of a table."""

CURSOR = "█"
_CURSOR_STYLE = "$text-muted not underline"


def is_hue(span: Span) -> bool:
    """Whether a span was laid over the text here."""
    style = span.style
    return isinstance(style, str) and style.startswith(("$drafted-", "$fading-"))


def without_hues(content: Content) -> Content:
    """The text as it was before hues and cursor were added."""
    spans = list(content.spans)
    if not spans:
        return content
    plain = content.plain
    if spans[-1].style == _CURSOR_STYLE:
        plain = plain[:-1]
        spans.pop()
    return Content(plain, [span for span in spans if not is_hue(span)])


def with_hues(content: Content, hues: Sequence[Span], *, has_cursor: bool = False) -> Content:
    """The text with spans laid over it, and the cursor of a growing answer behind it."""
    coloured = content.add_spans(hues) if hues else content
    return coloured.append_text(CURSOR, _CURSOR_STYLE) if has_cursor else coloured
