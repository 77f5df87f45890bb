"""The prompt: a framed text area with suggestions above it, and what concerns it in its frame."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea

from app.actions import awaiting_argument
from app.ahead.expected import ends_sentence
from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import Read, begin_reading, without_begun_name
from app.dialogue.next_request import Typed
from app.engine.prompt_builder import CountTokens
from app.printable import one_line
from app.tui import wording
from app.tui.chat.messages import AttachmentRow
from app.tui.keymap import sending_key
from app.tui.prompt.area import PromptArea
from app.tui.prompt.completion import Completion
from app.tui.prompt.folding import PromptText
from app.tui.store import Store
from app.tui.widgets import Wanted, clickable
from app.tui.wording import SEPARATOR, counted, longest_fitting

_FEW = 100
"""Tokens below which a text without attachments is not worth a figure."""

_MOST_COUNTED = 2_000_000
"""Characters above which a text is not counted, as that would hold up the model."""

_READ_SECONDS = 0.05
"""How long typing waits for a file: as a rule that is enough, so that no title flickers."""

_Count = Future[int] | str
"""A count under way, or a size instead."""


class TokenCounts:
    """Counts each file and paste once, and the typed text after each pause, in the background."""

    def __init__(self, count_tokens: CountTokens) -> None:
        self._count_tokens = count_tokens
        self._written = PromptText()
        self._faults: list[str] = []
        self._reading: Future[Read] | None = None
        """Of the files that the text names, until it is done."""
        self.attachments: tuple[Attachment, ...] = ()
        """What a question would be sent along with: pastes, and files as they were read last."""
        self._counts: dict[Attachment, _Count] = {}
        self._typed: Future[int] | None = None
        self._typed_text = ""
        self._typed_tokens = 0
        """The last finished count of the typed text."""

    @property
    def is_counting(self) -> bool:
        is_behind = self._typed is not None and self._typed_text != self._written.text
        counts = (*self._counts.values(), self._typed or "")
        is_under_way = any(not isinstance(one, str) and not one.done() for one in counts)
        return self.is_reading or is_behind or is_under_way

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def update(self, written: PromptText) -> None:
        """Count what is new in a text; typed text as soon as its count before is finished."""
        if written != self._written:
            self._written = written
            known = {one.name for one in written.attachments}
            named = without_begun_name(written.text)
            self._reading = begin_reading(named, known) if "@" in named else None
            if self._reading is None:
                self._attach((), [])
        if self._reading is not None:
            with suppress(TimeoutError):
                self._attach(*self._reading.result(_READ_SECONDS))
                self._reading = None
        self._count_typed(written.text)

    def _attach(self, files: tuple[Attachment, ...], faults: list[str]) -> None:
        self.attachments, self._faults = (*self._written.attachments, *files), faults
        before = self._counts
        self._counts = {one: before.get(one) or self._of(one) for one in self.attachments}

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
        if self._reading is not None:
            return ["reading a file"]
        if self._faults:
            return [f"✕ {text}" for text in in_short(self._faults)]
        if empty := [one.title for one in self._counts if not one.text.strip()]:
            return [f"▲ {SEPARATOR.join(f'{name} is empty' for name in empty)}"]
        known = [_tokens(count) for count in self._counts.values()]
        attached = sum(count or 0 for count in known)
        typed = (_tokens(self._typed) if self._typed else None) or self._typed_tokens
        has_file = any(one.kind is AttachmentKind.FILE for one in self._counts)
        verdict = _verdict(attached + typed, context_size, has_file=has_file)
        if not self._counts:
            if typed < _FEW:
                return []
            return [f"{counted(typed, 'token')}{verdict}", counted(typed, "token")]
        if len(self._counts) == 1:
            one, count = next(iter(self._counts.items()))
            name = one.title
            shown = _in_words(count)
        else:
            name = f"{len(self._counts)} attachments"
            shown = "…" if None in known else counted(attached, "token")
        names = [name, name.rpartition("/")[2]]
        if not verdict:
            return [*(f"{name} · {shown}" for name in names), shown]
        return [
            *(f"{name} · {shown}{verdict}" for name in names),
            f"{names[1]}{verdict}",
            verdict.removeprefix(" · "),
        ]

    def _of(self, one: Attachment) -> _Count:
        text = one.text
        if one.kind is AttachmentKind.IMAGE:
            return text
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


def _tokens(count: _Count) -> int | None:
    if isinstance(count, str) or not count.done() or count.cancelled() or count.exception():
        return None
    return count.result()


def _in_words(count: _Count) -> str:
    if isinstance(count, str):
        return count
    tokens = _tokens(count)
    return "…" if tokens is None else counted(tokens, "token")


def _verdict(tokens: int, context_size: int | None, *, has_file: bool) -> str:
    if context_size is None or tokens < context_size:
        return ""
    return " · read in passages" if has_file else " · does not fit the context"


_COUNT_SECONDS = 0.25
"""Between two updates of the token counts."""

_LONG_TEXT = 400
"""Characters, of about 100 tokens, from which it is told why they are not read ahead."""

_FRAME_CELLS = 6
"""Cells of the frame's rows that a title cannot use."""


class Prompt(VerticalGroup):
    """Where the user writes questions and slash commands.

    On a screen with the class -short it has no frame, with -low a few rows.
    """

    SCOPED_CSS = False
    DEFAULT_CSS: ClassVar[str] = """
    Prompt #fault { display: none; height: auto; max-height: 5; padding: 0 1; color: $text-error; }
    PromptArea {
        height: auto; max-height: 10; padding: 0 1; background: $background;
        border: round $foreground-muted; scrollbar-size-vertical: 1;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        border-subtitle-align: right;
        &:focus { border: round $primary; }
        & .text-area--placeholder { color: $text-muted; }
        &.-fault { border-title-color: $text-error; }
    }
    Prompt AttachmentRow { max-height: 12; overflow-y: auto; padding: 0 1; }
    .-low PromptArea { max-height: 4; }
    .-short PromptArea, .-short PromptArea:focus { border: none; max-height: 1; }
    """

    def __init__(self, store: Store, count_tokens: CountTokens) -> None:
        super().__init__()
        self._store = store
        self._completion = Completion(store)
        self._count_tokens = count_tokens
        self._counts = TokenCounts(count_tokens)
        self._fault = Static(id="fault")
        """An error that is too long for the frame."""
        self._shown_title = self._shown_drafting = self._shown_fault = ""
        self._changed_at = 0.0
        self._followed = PromptText()
        """The text that the screen has heard of."""
        self.area = PromptArea(store, self._completion)
        self.area.auto_links = False

    def compose(self) -> ComposeResult:
        yield self._fault
        yield self._completion
        yield self.area

    def on_mount(self) -> None:
        self._counting = self.set_interval(_COUNT_SECONDS, self._count, pause=True)
        for attribute in ("fault", "quits_next", "edited_version"):
            self.watch(self.area, attribute, self._show_title, init=False)
        for attribute in ("downloads", "status", "named_folders"):
            self.watch(self._store, attribute, self._show_title)
        for attribute in ("drafting", "schema", "folder", "ahead", "has_text"):
            self.watch(self._store, attribute, self._show_drafting)
        for attribute in ("is_answering", "preferences"):
            self.watch(self._store, attribute, self._follow_answer)

    def on_resize(self) -> None:
        self._show_title()
        self._show_drafting()

    @property
    def is_followed(self) -> bool:
        """Whether the screen has heard of the text as it now is."""
        return self.area.text == self._followed.text

    # The frame

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._changed_at = time.monotonic()
        self.area.text_changed()
        self._store.has_text = has_text = bool(self.area.text)
        if has_text:
            self._counting.resume()
        if not has_text or ends_sentence(self.area.text):  # Enter may follow
            self._count()

    async def look(self) -> None:
        """Show what is attached, in full, until another click or another text."""
        if shown := self.query(AttachmentRow):
            await shown.remove()
            return
        count, attached = self._count_tokens, self._counts.attachments
        rows = (AttachmentRow(one, count, is_unfolded=True) for one in attached)
        await self.mount(*rows, before=self.area)

    @on(OptionList.OptionSelected)
    def _complete(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.area.complete(self._completion.pick(event.option), run=True)

    def _count(self) -> None:
        written = self.area.written
        before = self._counts.attachments
        self._counts.update(written)
        if self._counts.attachments != before:
            self.query(AttachmentRow).remove()
        if written != self._followed and not self._counts.is_reading:
            self._followed = written
            typed = Typed(written.text, self._counts.attachments, self._changed_at)
            self.post_message(Wanted("follow_text", typed))
        if not self._counts.is_counting:
            self._counting.pause()
        self._show_title()
        self._show_drafting()

    def _show_title(self) -> None:
        width = self.size.width - _FRAME_CELLS
        titles = self._titles
        is_long = bool(self.area.fault) and cell_len(titles[-1]) > width
        self._show_fault(titles[-1] if is_long else "")
        title = "" if is_long else longest_fitting(titles, width)
        self.area.set_class(is_long or title.startswith("✕"), "-fault")
        if title != self._shown_title:
            self._shown_title = title
            self.area.border_title = Content(title).stylize(clickable("screen.look"))

    def _show_fault(self, whole: str) -> None:
        if whole != self._shown_fault:
            self._shown_fault = whole
            self._fault.update(Content(whole))
            self._fault.display = bool(whole)

    @property
    def _titles(self) -> list[str]:
        if self.area.quits_next:
            return ["Ctrl+C again quits"]
        if fault := self.area.fault:
            return [f"✕ {one_line(fault)}"]
        if (version := self.area.edited_version) is not None:
            adds = f"editing: {sending_key(self._store.preferences)} adds version {version}"
            return [f"{adds}, Esc changes nothing", adds]
        if action := awaiting_argument(self.area.text):
            command = f"/{action.slash} {action.argument}"
            return [f"{command} · {action.title}", command]
        loaded = self._store.status.loaded
        counts = self._counts.summaries(loaded.context_size if loaded else None)
        if folders := one_line(self._store.named_folders):
            return [*(f"{folders}{SEPARATOR}{one}" for one in counts[:1]), folders]
        return counts or [
            " · ".join(f"{one_line(name)}: {how}" for name, how in self._store.downloads.items())
        ]

    def _show_drafting(self) -> None:
        drafting = f"drafting: {one_line(self._store.drafting)}"
        short = drafting.partition(" (")[0]
        ahead = self._store.ahead
        marks = wording.read_ahead(ahead, is_typing=self._store.has_text)
        attached = sum(len(one.text) for one in self._counts.attachments)
        if len(self.area.text) + attached >= _LONG_TEXT:
            marks = marks or wording.not_read_ahead(ahead)
        choices = [*(f"{mark}{wording.SEPARATOR}{drafting}" for mark in marks), drafting, short]
        for what, name in (("schema", self._store.schema), ("folder", self._store.folder)):
            if name:
                first = f"{what}: {one_line(name)}"
                choices = [*(f"{first}{wording.SEPARATOR}{one}" for one in choices), first]
        shown = longest_fitting(choices, self.size.width - _FRAME_CELLS)
        if shown != self._shown_drafting:
            self._shown_drafting = shown
            opens = clickable("screen.perform('drafters')")
            self.area.border_subtitle = Content(shown).stylize(opens)

    def _follow_answer(self) -> None:
        """Tell what Enter does; the cursor blinks, but not while that takes time from the model."""
        store = self._store
        self.area.placeholder = "Ask anything" + ": it will be queued" * store.is_answering
        self.area.cursor_blink = store.preferences.animations and not store.is_answering
