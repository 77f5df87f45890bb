"""Token counts of what is typed, shown before it is sent."""

from collections.abc import Sequence
from concurrent.futures import Future

from app.chat.attachment import Attachment, AttachmentKind
from app.chat.named_files import read_files, without_begun_name
from app.engine.token_counts import CountTokens
from app.printable import one_line
from app.tui.prompt.prompt_text import PromptText
from app.tui.wording import SEPARATOR, tokens_in_words

_FEW = 100
"""Tokens below which a text without attachments is not worth a figure."""

_MOST_COUNTED = 2_000_000
"""Characters above which a text is not counted, as that would hold up the model."""

_Count = Future[int] | str
"""A count under way, or a size instead."""


class TokenCounts:
    """Counts each file and paste once, and the typed text after each pause, in the background."""

    def __init__(self, count_tokens: CountTokens) -> None:
        self._count_tokens = count_tokens
        self._written = PromptText()
        self._faults: list[str] = []
        self.attachments: tuple[Attachment, ...] = ()
        """What a question would be sent along with: pastes, and files as they were read last."""
        self._counts: dict[Attachment, _Count] = {}
        self._typed: Future[int] | None = None
        self._typed_text = ""
        self._typed_tokens = 0
        """The last finished count of the typed text."""

    @property
    def is_counting(self) -> bool:
        """Whether a count is still missing."""
        attached = (one for one in self._counts.values() if not isinstance(one, str))
        is_behind = self._typed is not None and self._typed_text != self._written.text
        return is_behind or any(not one.done() for one in (*attached, *self._typed_counts))

    def update(self, written: PromptText) -> None:
        """Count what is new in a text; typed text as soon as its count before is finished."""
        if written != self._written:
            self._written = written
            self.attachments, self._faults = _examined(written)
            before = self._counts
            self._counts = {
                one: before.get(one) or self._of_text(one.text) for one in self.attachments
            }
        self._count_typed(written.text)

    def _count_typed(self, text: str) -> None:
        if len(text) < _FEW:
            self._typed, self._typed_text, self._typed_tokens = None, "", 0
        elif self._typed is None or self._typed.done():
            if self._typed is not None:
                self._typed_tokens = _tokens(self._typed) or 0
            if text != self._typed_text:
                self._typed, self._typed_text = self._count_tokens(text), text

    def summaries(self, context_size: int | None) -> list[str]:
        """One line about the tokens, in ever shorter versions; empty if there is nothing to say.

        context_size: in tokens, None while no model is loaded.
        """
        if self._faults:
            return [f"✕ {text}" for text in in_short(self._faults)]
        known = [_tokens(count) for count in self._counts.values()]
        attached = sum(count or 0 for count in known)
        typed = (_tokens(self._typed) if self._typed else None) or self._typed_tokens
        verdict = _verdict(attached + typed, context_size)
        if not self._counts:
            if typed < _FEW:
                return []
            return [f"{typed:,} tokens{verdict}", f"{typed:,} tokens"]
        if len(self._counts) == 1:
            one, count = next(iter(self._counts.items()))
            name = _shown_name(one)
            counted = _in_words(count)
        else:
            name = f"{len(self._counts)} attachments"
            counted = "…" if None in known else tokens_in_words(attached)
        names = [name, name.rpartition("/")[2]]
        if not verdict:
            return [*(f"{name} · {counted}" for name in names), counted]
        return [
            *(f"{name} · {counted}{verdict}" for name in names),
            f"{names[1]}{verdict}",
            verdict.removeprefix(" · "),
        ]

    @property
    def _typed_counts(self) -> list[Future[int]]:
        return [] if self._typed is None else [self._typed]

    def _of_text(self, text: str) -> _Count:
        if len(text) > _MOST_COUNTED:
            return f"{len(text) / 1e6:.0f} MB"
        return self._count_tokens(text)


def in_short(faults: Sequence[str]) -> list[str]:
    """Faults in one line, in ever shorter versions."""
    shown = [one_line(fault) for fault in faults]
    return [
        SEPARATOR.join(shown),
        *([f"{shown[0]} and {len(shown) - 1} more"] if shown[1:] else []),
    ]


def _examined(written: PromptText) -> tuple[tuple[Attachment, ...], list[str]]:
    """What a text has attached, and why files that it names cannot be."""
    if "@" not in written.text:
        return written.attachments, []
    known = {one.name for one in written.attachments}
    files, faults = read_files(without_begun_name(written.text), known.__contains__)
    return (*written.attachments, *files), faults


def _shown_name(one: Attachment) -> str:
    return one_line(one.name.strip("[]") if one.kind is AttachmentKind.PASTE else one.name)


def _tokens(count: _Count) -> int | None:
    """A finished count."""
    if isinstance(count, str) or not count.done() or count.cancelled() or count.exception():
        return None
    return count.result()


def _in_words(count: _Count) -> str:
    if isinstance(count, str):
        return count
    tokens = _tokens(count)
    return "…" if tokens is None else tokens_in_words(tokens)


def _verdict(tokens: int, context_size: int | None) -> str:
    does_not_fit = context_size is not None and tokens >= context_size
    return " · does not fit the context" if does_not_fit else ""
