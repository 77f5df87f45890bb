"""The main screen: it writes the store, and has widgets' messages carried out."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import ClassVar

from textual import constants, events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen

from app.actions import ACTIONS, BY_NAME, Action
from app.chat.attachments import Attachment, with_pastes
from app.chat.named_files import begin_reading
from app.chat.sources import Source
from app.chat.unsent import ClearedTexts, ComposerDraft
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked
from app.dialogue.next_request import Typed, next_request
from app.dialogue.tree import Changes, Turn, path_to
from app.engine.engine import Engine
from app.engine.status import Phase
from app.loading.streaming import StreamOfferError
from app.settings.answering import Answering
from app.settings.in_effect import Preferences
from app.tui import wording
from app.tui.chat.answer import AnswerView
from app.tui.chat.find import FindBar
from app.tui.chat.lines import InstructionsLine
from app.tui.chat.messages import AttachmentRow, MessageView
from app.tui.chat.view import BUSY, ChatView
from app.tui.commands.app import AppCommands
from app.tui.commands.settings import SettingsCommands
from app.tui.commands.shell import ShellCommands
from app.tui.downloads import Downloads
from app.tui.header import FaultReports, Header
from app.tui.keys_bar import KeysBar
from app.tui.panel.panel import Panel
from app.tui.prompt.folding import PromptText
from app.tui.prompt.prompt import Prompt
from app.tui.store import Store
from app.tui.store_writer import StoreWriter
from app.tui.terminal import OutsideWindow, copy
from app.tui.text_fields import PrintableInput, typed
from app.tui.welcome import Welcome, WelcomeRows
from app.tui.widgets import Wanted, in_turn, typed_app
from backends.base import SpecchatError

_UPDATE_SECONDS = 1 / 6
"""Between two looks at the engine."""

_SAVE_DRAFT_SECONDS = 0.5

_LONG_ANSWER = 10.0
"""Seconds of answers whose end is told outside the terminal: who waits so long may look away."""

_PANEL_WIDTH = 110
"""Columns from which the panel is shown unless the user decides otherwise."""

_SELECTABLE = (
    (AttachmentRow, "attachment"),
    (InstructionsLine, "instructions"),
    (WelcomeRows, "welcome"),
    (Panel, "panel"),
    (PrintableInput, "find"),
)

_PANEL_HEIGHT = 16
"""Rows below which a panel that is not beside the conversation would leave none of it."""


def _of(action: Action) -> str:
    """What a key does; leaving comes before stopping."""
    return "leave" if action.name == "stop" else f"perform('{action.name}')"


class AllCommands(AppCommands, ShellCommands, SettingsCommands):
    """What the registered actions do, each by its name."""


class ChatScreen(Screen[None]):
    """Composes the widgets of a chat; what they show is in the store.

    notices: settings that cannot be used, a sentence or two each.
    """

    app = typed_app
    AUTO_FOCUS: ClassVar[str | None] = "PromptArea"
    BINDINGS: ClassVar = [
        *(
            Binding(action.keys, _of(action), action.title, id=action.name)
            for action in ACTIONS
            if action.keys
        ),
        Binding("ctrl+c", "interrupt", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ChatScreen > Horizontal { height: 1fr; layout: vertical; }
    ChatScreen.-wide > Horizontal { layout: horizontal; }
    ChatScreen { overflow: hidden; }
    ChatScreen.-short Horizontal, ChatScreen.-short Header { display: none; }
    """

    def __init__(
        self,
        engine: Engine,
        dialogue: Dialogue,
        defaults: Answering,
        store: Store,
        notices: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.store = store
        self.changes = Changes()
        self.view = ChatView(engine, dialogue, defaults, store, self.changes, self._take_question)
        self.prompt = Prompt(store, engine.count)
        self.panel = Panel(store)
        self.downloads = Downloads(store)
        self._engine = engine
        self.writer = StoreWriter(self.view)
        self._faults = FaultReports(self.view, notices)
        self._composer_draft = ComposerDraft(engine.paths)
        self._cleared = ClearedTexts(engine.paths.cleared)
        self._outside = OutsideWindow(self.app)
        self._answers_since: float | None = None
        self._has_asked = False
        """Whether there was an answer yet: before, the panel has no figures to show."""
        self._typed = Typed()
        self._found: tuple[object, tuple[Attachment, ...]] = (), ()
        """What folders add to what is typed, and what that was found for."""
        self._expected = next_request(dialogue, self._typed)
        self.commands = AllCommands(
            self.app, engine, self.view, self.prompt, self.changes, self.downloads, store
        )

    def compose(self) -> ComposeResult:
        yield Header(self.store)
        with Horizontal():
            yield self.view
            yield self.panel
        yield FindBar(self.view)
        yield self.prompt
        yield KeysBar(self.store)

    def on_mount(self) -> None:
        self.prompt.area.write(self._composer_draft.left, self._composer_draft.attachments)
        for text in (*self.view.dialogue.questions(), *self._cleared.texts()):
            self.prompt.area.remember(PromptText(text))
        self.watch(self.store, "preferences", self._apply_preferences)
        self.watch(self.store, "is_panel_shown", self._follow_panel)
        for attribute in ("title", "is_answering"):
            self.watch(self.store, attribute, self._tell_outside)
        self.watch(self.store, "is_answering", self._show_panel, init=False)
        self.watch(self.store, "edited", self.commands.attach_outputs, init=False)
        self.set_interval(_UPDATE_SECONDS, in_turn(self, self._update))
        save = self._composer_draft.keep_soon
        self.set_interval(_SAVE_DRAFT_SECONDS, lambda: save(*self._unsent))

    def _tell_outside(self) -> None:
        """Show title and state where the terminal has a title; tell that a long answer ended."""
        store, now = self.store, time.monotonic()
        self._outside.show_title(f"{'● ' * store.is_answering}{store.title or 'specchat'}")
        if store.is_answering:
            self._answers_since = self._answers_since or now
        elif self._answers_since is not None:
            took, self._answers_since = now - self._answers_since, None
            if took >= _LONG_ANSWER and not self.app.app_focus and store.preferences.notify:
                self._outside.notify(f"Answered: {store.title}")

    def on_unmount(self) -> None:
        self._outside.restore_title()
        self.view.abandon()
        self.view.toolbox.close()
        self.downloads.stop_all()
        self._keep_unsent()
        self._composer_draft.close()

    def _keep_unsent(self) -> None:
        """Save what is typed before going on: it is about to stand nowhere else."""
        self._composer_draft.keep(*self._unsent)

    @property
    def _unsent(self) -> tuple[str, tuple[Attachment, ...]]:
        """What is typed and not sent; several texts become one, with their pastes in full."""
        texts = (*self.commands.unsent, *self.prompt.area.unsent)
        unsent = [one for one in texts if one.text.strip()]
        if len(unsent) == 1:
            return unsent[0].text, unsent[0].attachments
        return "\n\n".join(with_pastes(one.text, one.attachments) for one in unsent), ()

    def on_screen_suspend(self) -> None:
        """What was just done here is no news on another screen, whose rows it would cover."""
        self.app.clear_notifications()

    def on_resize(self) -> None:
        self._show_panel()

    def _apply_preferences(self, preferences: Preferences) -> None:
        level = constants.TEXTUAL_ANIMATIONS if preferences.animations else "none"
        self.app.animation_level = level
        self.app.theme = preferences.theme
        self._show_panel()

    def _show_panel(self) -> None:
        how = self.store.preferences.panel
        is_wide = self.app.size.width >= _PANEL_WIDTH
        has_room = is_wide or self.app.size.height >= _PANEL_HEIGHT
        self._has_asked = self._has_asked or self.store.is_answering
        opens = how == "auto" and is_wide and self._has_asked
        self.store.is_panel_shown = opens or (how == "shown" and has_room)

    def _follow_panel(self, is_shown: bool) -> None:
        self.set_class(is_shown, "-with-panel")  # toasts stand beside it

    # Actions

    async def action_perform(self, name: str, argument: str = "") -> bool:
        """Run a registered action; False after an error, which is shown at the prompt."""
        self.prompt.area.clear_fault()
        try:
            command = getattr(self.commands, name)
            pending = command(argument) if BY_NAME[name].argument else command()
            if isawaitable(pending):
                await pending
        except SpecchatError as error:
            self.prompt.area.show_fault(wording.fault(error))
            return False
        return True

    async def action_begin(self, name: str) -> None:
        """Run an action that was picked from a list, or let the user type its argument."""
        action = BY_NAME[name]
        if not action.needs_argument:
            await self.action_perform(action.name)
            return
        self.prompt.area.end_edit()
        self.store.edited = None
        self.prompt.area.write(f"/{action.slash} ")
        self.prompt.area.focus()

    async def action_leave(self) -> None:
        """Return to the prompt; from there stop what runs, remove an error, or keep the demo."""
        if self.focused is not self.prompt.area:
            self.prompt.area.focus()
        elif not self.view.is_idle or self.commands.is_running:
            await self.action_perform("stop")
        elif self.view.asked is not None:
            await self.action_perform("allow", "no")
        elif not await self.view.dismiss_fault():
            kept = [welcome.keep_demo() for welcome in self.query(Welcome)]
            if not any(kept):
                await self.action_perform("stop")

    def action_interrupt(self) -> None:
        """Copy the text selected with the mouse; else do what Ctrl+C does in the prompt."""
        selected = self.get_selected_text()
        if selected is None:
            self.prompt.area.interrupt()
        else:
            self.app.notify(copy(self.app, selected, "the selection"))

    def action_copy_text(self) -> None:
        if self.get_selected_text() is None:
            raise SkipAction
        self.action_interrupt()

    # The prompt

    @on(Wanted)
    async def _do(self, event: Wanted) -> None:
        event.stop()
        done = getattr(self, f"action_{event.action}")(*event.arguments)
        if isawaitable(done):
            await done

    async def action_submit(self, written: PromptText, is_edit: bool) -> None:
        """Ask a question, or a changed one; its attachments are pastes, and files that are gone."""
        edited, self.store.edited = self.store.edited, None
        files, _ = await asyncio.wrap_future(begin_reading(written.text))
        attachments = (*written.attachments, *files)
        if is_edit and edited is None:  # another chat was opened meanwhile
            self.prompt.area.put_before(written)
        elif is_edit and edited is not None:
            await self.view.edit(edited, written.text, attachments)
        else:
            await self.view.send(written.text, attachments)
        self.prompt.area.kept(written)

    async def action_run_typed(self, action: Action, argument: str, text: str) -> None:
        """Run a slash command; its text is written back if it fails."""
        if not await self.action_perform(action.name, argument):
            area = self.prompt.area
            fault = area.fault
            chips, typed = area.split
            if not typed.text:
                area.rewrite(PromptText(chips.text + text, chips.attachments))
                area.show_fault(fault)

    def action_keep_cleared(self, written: PromptText) -> None:
        """Keep a text for the next start: it may have been cleared on the way out."""
        self._cleared.add(with_pastes(written.text, written.attachments))
        self.prompt.area.kept(written)

    def action_follow_text(self, typed: Typed) -> None:
        self._typed = typed
        if typed.text:  # else it may have been sent, and is on its way
            self._expect()

    def action_show_passage(self, source: Source) -> None:
        """Show a passage that was read, in its place."""
        from app.tui.screens.passage import PassageScreen

        file = self.view.libraries.path_of(source.path) or Path(source.path).expanduser()
        self.app.push_screen(PassageScreen(source, file))

    async def action_send_next(self) -> None:
        """Agree to what was asked, try again to load a model, or send the next queued question."""
        status = self._engine.status
        if isinstance(status.error, StreamOfferError) and self.view.is_idle:
            self._engine.stream(status.error)
        elif status.phase is Phase.FAILED and status.loaded is None:
            self._engine.retry()
        else:
            await self.view.send_next()

    async def action_take_back(self) -> None:
        queued = await self.view.take_back()
        if queued is not None:
            self.prompt.area.put_before(PromptText(queued.text, queued.attachments))
            self._keep_unsent()  # it leaves the history with the next save

    def action_select_last(self, role: str = "") -> None:
        self.view.select_last(role)

    async def action_show_version(self, step: int, turn: Turn | None = None) -> None:
        """Show the version after (1) or before (-1) that of a message.

        turn: the message; None for the last one that has several, while no answer is in progress.
        """
        if turn is None and not self.view.follows_answer:
            dialogue = self.view.dialogue
            several = (one for one in dialogue.turns[::-1] if len(dialogue.versions(one)) > 1)
            turn = next(several, None)
        if turn is not None:
            await self.view.show_version(turn, step)

    def action_edit_question(self, turn: Turn) -> None:
        self.view.edit_question(turn)

    async def action_look(self) -> None:
        await self.prompt.look()

    def action_focus_welcome(self) -> None:
        for welcome in self.query(Welcome):
            welcome.focus_rows()

    def action_focus_prompt(self) -> None:
        self.prompt.area.focus()

    def action_edit_ended(self) -> None:
        self.store.edited = None

    def action_scroll_page(self, pages: int) -> None:
        """Scroll the conversation, down if positive, while the prompt has the focus."""
        transcript = self.view.transcript
        scroll = transcript.scroll_page_up if pages < 0 else transcript.scroll_page_down
        scroll(animate=False)

    def on_key(self, event: events.Key) -> None:
        """Type into the prompt while something else has the focus."""
        area = self.prompt.area
        if text := typed(event):  # the prompt consumes its own keys
            event.stop()
            self.set_focus(area)
            area.insert(text)
        elif event.key == "enter" and self.focused is area:  # pressed before the focus came back
            event.stop()
            area.post_message(events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        """Paste into the prompt while something else has the focus."""
        event.stop()
        self.set_focus(self.prompt.area)
        self.prompt.area.post_message(events.Paste(event.text))

    # The chat

    def action_follow_chat(self) -> None:
        """Another chat is shown, or its title, its queue or the answer in progress has changed."""
        if self.store.edited is None:  # another chat was opened
            self.prompt.area.end_edit()
        self.commands.attach_outputs()
        self.writer.write_chat()
        self._write_selection()
        self._expect()

    def _take_question(self, question: Turn, edited: Turn | None) -> None:
        """Put a question that leaves the chat into the prompt, and keep it there.

        edited: what it is a version of, or itself; None if it is new.
        """
        area, typed = self.prompt.area, PromptText(question.text, question.attachments)
        if edited is None:
            area.put_before(typed)
        else:
            others = {*self.view.dialogue.versions(edited)} - {edited, question}
            area.begin_edit(PromptText(edited.text, edited.attachments), len(others) + 2, typed)
            area.focus()
            self.store.edited = edited
        self._keep_unsent()

    def on_descendant_focus(self) -> None:
        self._write_selection()
        if self.focused is not self.prompt.area:
            self.prompt.area.clear_fault()

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self._write_selection)

    def _expect(self) -> None:
        """Tell the engine what the next request will begin with, if that has changed.

        The engine forgets it as soon as it answers anything, also a race, and not before: what is
        on its way to it is still read.
        """
        view, (found_for, found) = self.view, self._found
        if not view.toolbox.is_ready(view.answering.tools):
            self._engine.expect(None)
        elif self._is_free and self._led_by(self._asked) == found_for:  # else it will be known soon
            typed = replace(self._typed, attachments=found or self._typed.attachments)
            expected = next_request(
                view.dialogue, typed, self.store.edited, view.answering.think, view.offered
            )
            if expected != self._expected:  # else the engine knows what it was told by identity
                self._expected = expected
            self._engine.expect(self._expected)

    @property
    def _is_free(self) -> bool:
        """Whether a question may come next, and the screen has heard of all that is typed."""
        is_idle = self.view.is_idle and not self._engine.is_answering
        return is_idle and self.prompt.is_followed

    @property
    def _asked(self) -> Asked:
        view, typed, edited = self.view, self._typed, self.store.edited
        turns = view.dialogue.turns if edited is None else path_to(edited)[:-1]
        return view.asked_with(typed.text, typed.attachments, tuple(turns))

    def _led_by(self, asked: Asked) -> tuple[object, ...]:
        """What decides on what is sent along; empty without folders and files."""
        state = self.view.libraries.state(asked)
        return (state, asked, asked.dialogue.dropped) if state or asked.files else ()

    async def _follow_folders(self) -> None:
        asked, libraries = self._asked, self.view.libraries
        led_by = self._led_by(asked)
        self.store.folder, self.store.named_folders = libraries.words, libraries.about(asked)
        if self._is_free and led_by != self._found[0]:
            found = ()
            if led_by:
                found, _ = await asyncio.to_thread(libraries.found, asked)
            self._found = led_by, found

    # The store

    def _write_selection(self) -> None:
        focused = self.focused
        kinds = (kind for widget, kind in _SELECTABLE if isinstance(focused, widget))
        is_message = isinstance(focused, MessageView)
        self.store.selected = focused.turn.role if is_message else next(kinds, "")
        self.store.has_versions = is_message and focused.has_versions
        self.store.has_citations = isinstance(focused, AnswerView) and focused.has_citations

    async def _update(self) -> None:
        view, area = self.view, self.prompt.area
        if area.fault.startswith(BUSY) and view.is_idle and not view.waits_for:
            area.clear_fault()
        await self._follow_folders()
        self._expect()
        self.store.runs_command = self.commands.is_running
        self.writer.write()
        await self._faults.report(self._engine.status)
        for name, error in self.downloads.update():
            await self.view.show_fault(f"{name}: {error.summary}", error.remedy)
