"""Commands on a chat: its answers, its versions, its instructions, and other chats.

Screens are imported when they are opened: the first paint waits for none.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import folder_path
from app.dialogue.tree import ASSISTANT, USER, called
from app.engine.reply import Request
from app.engine.status import Phase
from app.history import HistoryError
from app.history.records import title_of
from app.printable import one_line
from app.structured_output import read_grammar
from app.tools.toolbox import for_server, is_allowed
from app.tui.chat.find import FindBar
from app.tui.chat.markdown import Document
from app.tui.commands.app import Commands, words
from app.tui.keymap import sending_key
from app.tui.lists import PickScreen
from app.tui.terminal import copy
from app.tui.welcome import Welcome
from app.tui.wording import counted, quoted_title
from backends.base import UsageError
from backends.chat.reply_form import split
from decoding.constraint.grammar import Grammar, GrammarKind

_OFF = "off"

_MOST_ANSWERS = 4
"""Answers side by side: more would be narrower than thirty columns."""


class ChatCommands(Commands):
    def stop(self) -> None:
        if self.engine.status.phase is Phase.LOADING:
            self.engine.stop_loading()
        self.view.stop()

    async def regenerate(self, wanted: str = "") -> None:
        """Add another answer, or several side by side; wanted: how many, or who writes them."""
        self._require("there is no question to answer yet")
        models, was_idle = self._writers(self._names(wanted)), self.view.is_idle
        if await self.view.regenerate(models) and (several := self.view.several) is not None:
            from app.tui.screens.side_by_side import SideBySide

            question = self.view.last_turn(USER)
            title = title_of(question.text) if question is not None else ""
            self.app.push_screen(SideBySide(self.view, several, title))
            if not was_idle:  # told anew: another screen shows no news of before
                told = "Stopped the answer in progress: it stays a version."
                self.view.screen.call_later(self.app.notify, told)

    def _names(self, wanted: str) -> list[str]:
        """Names, quoted as for a shell; a single one with spaces needs no quotes, as for /model."""
        from models.stores.available_models import known_names

        if " " in wanted and wanted in known_names(self.engine.paths.models):
            return [wanted]
        try:
            return words(wanted)
        except ValueError as error:
            raise UsageError(f"{wanted}: a quote is not closed") from error

    def _writers(self, wanted: list[str]) -> list[str]:
        """Models that write an answer each, "" for the one in use; none if one answer is wanted."""
        is_count = len(wanted) == 1 and wanted[0].isdecimal()
        count = int(wanted[0][:9]) if is_count else len(wanted)
        if wanted and not 1 <= count <= _MOST_ANSWERS:
            raise UsageError(f"1 to {_MOST_ANSWERS} answers can be written side by side")
        models = [""] * count if is_count else [self._writer(name) for name in wanted]
        if len({*models}) < len(models) and not self.view.answering.sampling.temperature:
            what = "at temperature 0 a model's answers are all the same"
            raise UsageError(what, "", "Example: /set temperature 0.8")
        return [] if is_count and count == 1 else models

    def _writer(self, name: str) -> str:
        if self.engine.has_loaded(self.local(name).path):
            return ""
        if self.store.served_at is not None:
            raise UsageError("other programs use the model", "", "Start specchat without --serve.")
        return name

    async def go_on(self) -> None:
        self._require("there is no answer to continue yet")
        self.view.require_idle()
        asked = self.view.asked
        if asked is not None and not is_allowed(called(asked)[0], self.view.allowed):
            await self.allow()
            return
        await self.view.continue_answer()

    async def allow(self, how: str = "") -> None:
        """Decide on the call that waits; without a word how, from a list."""
        asked = self.view.asked
        if asked is None:
            raise UsageError("no tool call waits for you")
        name, arguments = called(asked)
        server, _, tool = name.partition(".")
        ways = {
            "once": ("Yes, once", one_line(arguments)),
            "tool": ("Yes, this tool", f"{tool} of {server}, in this chat"),
            "server": ("Yes, this server", f"every tool of {server}, in this chat"),
            "no": ("No", "the model is told; /allow no WHY tells it why"),
        }
        way, _, word = how.partition(" ")
        if not how:

            def decide(chosen: str | None) -> None:
                if chosen is not None and self.view.asked is asked:
                    self.perform("allow", chosen)

            self.app.push_screen(PickScreen(name, ways), decide)
        elif way == "no":
            await self.view.decide(None, word)
        elif word or way not in ways:
            raise UsageError(f"cannot allow {how!r}. Known: {', '.join(ways)}")
        else:
            self.view.require_model()
            await self.view.decide({"tool": name, "server": for_server(name)}.get(way, ""))

    def edit(self) -> None:
        if self.view.last_turn(USER) is None:
            raise UsageError("there is no question to edit yet")
        self.view.edit_question()

    async def compact(self) -> None:
        self._require("there is nothing to summarise yet")
        self.view.require_idle()
        await self.view.compact()

    def _require(self, missing: str) -> None:
        if not self.view.dialogue.turns:
            raise UsageError(missing)
        self.view.require_model()

    async def undo(self) -> None:
        self.app.notify(f"Undone: {await self._step(self.changes.undo, 'undo')}. Ctrl+Y redoes it.")

    async def redo(self) -> None:
        self.app.notify(f"Redone: {await self._step(self.changes.redo, 'redo')}.")

    async def _step(self, move: Callable[[], Awaitable[str]], verb: str) -> str:
        """Undo or redo; returns what, and whether that has stopped the answer in progress."""
        pending = self.view.pending
        name = await move()
        if not name:
            raise UsageError(f"there is nothing to {verb}")
        if pending is None or pending is self.view.pending or not pending.answer.is_stopped:
            return name
        return f"{name}, which stopped an answer; it is kept"

    def colours(self) -> None:
        self.store.keeps_colours = keeps = not self.store.keeps_colours
        self.app.notify("Drafted text stays coloured." if keeps else "Colours fade again.")

    # Races

    def race(self, draft: str) -> None:
        """Race the last question, or the built-in one if there is none; draft: empty for auto."""
        from app.tui.screens.race import RaceScreen, demonstration

        self.view.require_model()
        self.require_own_model()
        self.view.require_idle()
        if draft and (missing := self.missing_drafter(draft)) is not None:
            what = f"{missing.name} is not on this machine"
            raise UsageError(what, "", f"/draft {draft} downloads it")
        question = self.view.last_turn(USER)
        dialogue, answering = self.view.dialogue, self.view.answering
        title, request = demonstration()
        if question is not None:
            title, conversation = title_of(question.text), dialogue.conversation(question)
            conversation.think = answering.think
            request = Request(  # of this chat, so that its own answer is not retrieved
                conversation, answering.sampling, answering.max_tokens, chat=dialogue.chat
            )
        self.app.push_screen(RaceScreen(self.store, self.engine, title, request, draft or None))

    # Chats

    async def new(self) -> None:
        old = self.view.dialogue
        if not (old.turns or old.queue or old.own or old.system != old.default_system):
            return
        new = old.fresh()
        key = sending_key(self.store.preferences)
        queue = f" {key} there sends what is queued." if old.queue else ""
        await self.view.open(new, f"Ctrl+Z shows it.{queue}")
        self.changes.note("opened a new chat", self.view.reopen, old, new)

    async def find(self, text: str) -> None:
        if not self.view.dialogue.turns:
            raise UsageError("there is nothing to find yet")
        await self.view.screen.query_one(FindBar).open(text)

    async def chats(self, chosen: str = "") -> None:
        """Open a chat by its number, and find in it what follows that; nothing: show the list."""
        from app.tui.screens.chats import ChatsScreen

        history = self.view.dialogue.history
        if history is None:
            raise UsageError("chats are not saved in this session", self.view.dialogue.fault)
        number, _, text = chosen.partition(" ")
        if number.isdecimal():
            await self._open(int(number))
            if text:
                await self.find(text)
            return
        screen = ChatsScreen(history, self.engine.paths, self.changes, self._touched)
        self.choose(screen, "chats")

    async def _open(self, chat: int) -> None:
        if chat != self.view.dialogue.chat:
            if (growing := self.view.growing_chat(chat)) is not None:
                await self.view.reopen(growing)
                return
            dialogue = self.view.dialogue.fresh()
            dialogue.open(chat)
            await self.view.open(dialogue)

    def _touched(self, chat: int) -> None:
        for welcome in self.view.query(Welcome):
            welcome.renew()
        if chat == self.view.dialogue.chat:
            self.view.call_later(self.view.reload)
        elif (growing := self.view.growing_chat(chat)) and growing.history is not None:
            try:
                growing.history.chat(chat)
            except HistoryError:  # it was removed
                self.view.stop_in(growing)

    def rename(self, title: str) -> None:
        dialogue = self.view.dialogue
        if not dialogue.turns:
            raise UsageError("there is no chat to rename yet")
        if not title:
            raise UsageError("which title?", "", "Example: /rename Names for a boat")
        name, before = f"renamed {quoted_title(dialogue.title)}", dialogue.name
        dialogue.rename(title)
        self.changes.note(name, lambda one: self._same(dialogue).rename(one), before, title)

    def _same(self, dialogue: Dialogue) -> Dialogue:
        """The chat as it is shown, if it has been opened a second time since."""
        shown = self.view.dialogue
        return shown if shown.is_same_chat(dialogue) else dialogue

    def export(self, path: str) -> None:
        if not path:
            raise UsageError("which file?", "", "Example: /export chat.md")
        written = self.view.dialogue.export(Path(path).expanduser())
        self.app.notify(f"Exported to {written}")

    # Answers

    def copy_answer(self) -> None:
        self.app.notify(copy(self.app, self._last_answer(), "the answer"))

    def copy_code(self, number: str) -> None:
        blocks = Document(split(self._last_answer()).answer).codes
        chosen = int(number) if number.isdecimal() else 1
        if not 1 <= chosen <= len(blocks):
            raise UsageError(f"the last answer has {counted(len(blocks), 'code block')}")
        self.app.notify(copy(self.app, blocks[chosen - 1], f"code block {chosen}"))

    def _last_answer(self) -> str:
        turn = self.view.last_turn(ASSISTANT)
        if turn is None:
            raise UsageError("there is no answer in this chat yet")
        return turn.text

    async def read(self, what: str) -> None:
        if what.lower() != "all":
            raise UsageError("read what?", "", "/read all reads everything attached.")
        await self.view.read_all()

    # The folder

    def folder(self, wanted: str) -> None:
        """Have a folder read for the questions of this chat; off: none any more."""
        dialogue = self.view.dialogue
        before = dialogue.folder
        if not wanted:
            self.app.notify(before or "No folder: /folder FOLDER attaches one.", markup=False)
            return
        after = "" if wanted.lower() == _OFF else folder_path(wanted)
        dialogue.set_folder(after)
        told = f"Questions are answered with the files of {after}." if after else "No folder."
        self.app.notify(told, markup=False)
        if before != after:
            self.changes.note(
                "changed the folder",
                lambda one: self._same(dialogue).set_folder(one),
                before,
                after,
            )

    # Structured output

    def schema(self, path: str) -> None:
        if not path:
            raise UsageError("which file?", "", "Example: /schema person.json")
        if path.lower() == _OFF:
            self._match(None, "")
            self.app.notify("No schema.")
            return
        file = Path(path).expanduser()
        self._match(read_grammar(file, GrammarKind.JSON_SCHEMA), file.name)
        self.app.notify(f"The next answers match {one_line(file.name)}.")

    def _match(self, grammar: Grammar | None, name: str) -> None:
        view, store = self.view, self.store
        before, after = (view.grammar, store.schema), (grammar, name)

        def use(wanted: tuple[Grammar | None, str]) -> None:
            view.grammar, store.schema = wanted

        use(after)
        if before != after:
            self.changes.note("changed the schema", use, before, after)
