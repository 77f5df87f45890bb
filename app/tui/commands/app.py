"""Commands on the app itself, and on its models: help, panel, palette, choices, training.

Screens, and what knows the models, are imported when they are needed: the first paint waits for
none.
"""

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import Screen

from app.actions import ACTIONS, Action
from app.dialogue.tree import Changes
from app.engine.engine import Engine
from app.history import HistoryError
from app.printable import one_line
from app.settings import file
from app.tui.chat.view import ChatView
from app.tui.downloads import Downloads
from app.tui.keymap import keys_of
from app.tui.keys_bar import shown_key
from app.tui.prompt.prompt import Prompt
from app.tui.store import Store
from app.tui.widgets import Wanted
from backends.base import SpecchatError, UsageError
from backends.base.safe_files import read_text

if TYPE_CHECKING:
    from models.reference import HubReference, Reference


_TRAINING = "drafter of your own"
"""Its name where downloads are shown."""

_MODELS_LISTED = "Ctrl+L lists them; you can also give a .gguf file or organization/name of the hub"

_DRAFTS_HERE = (
    "If the server is a specchat, start specchat anew with --draft lookup: it then drafts here."
)

_USUAL_EDITORS = ("sensible-editor", "nano", "micro", "nvim", "vim", "vi", "notepad")

_MOST_EDITED = 64 << 20
"""Bytes of a question; none is as long."""


def editor_command(editor: str, *, on_windows: bool = os.name == "nt") -> list[str]:
    """Words of a command line; on Windows the program may be a script.

    Raises:
        ValueError: a quote is not closed, or there is no word.
    """
    if Path(editor).is_file():
        return [editor]  # its folders may have spaces
    program, *options = words(editor, on_windows=on_windows)
    return [shutil.which(program) or program, *options]


def words(text: str, *, on_windows: bool = os.name == "nt") -> list[str]:
    r"""Words as a shell quotes them; on Windows `\` is no escape.

    Raises:
        ValueError: a quote is not closed.
    """
    lexer = shlex.shlex(text, posix=True)
    lexer.commenters, lexer.whitespace_split = "", True
    lexer.escape = "" if on_windows else lexer.escape
    return list(lexer)


@dataclass(frozen=True, eq=False)
class Commands:
    """What commands act on; each is a method with the name of its action.

    One that cannot be carried out raises a SpecchatError, which is shown at the prompt.
    """

    app: App[Any]
    engine: Engine
    view: ChatView
    prompt: Prompt
    changes: Changes
    downloads: Downloads
    store: Store
    warned_of: set[str] = field(default_factory=set[str])
    """Why chats were not saved when the user was asked to think again."""

    def perform(self, name: str, argument: str = "") -> None:
        """Have a command carried out after what is under way; its error is shown at the prompt."""
        self.view.post_message(Wanted("perform", name, argument))

    def choose(self, screen: Screen[Any], name: str = "") -> None:
        """Show a list, and give what is chosen from it to a command; "": it is a command itself."""

        def carry_out(chosen: object) -> None:
            if chosen is not None and name:
                self.perform(name, str(chosen))
            elif chosen is not None:
                self.view.post_message(Wanted("begin", chosen))

        self.app.push_screen(screen, carry_out)

    def resolved(self, name: str) -> "Reference | HubReference":
        """What a model's name means; a HubReference if it is not on this machine."""
        from backends.engines.backend_selection import forms
        from models.reference import UnknownNameError, resolve

        engine = self.engine
        try:
            return resolve(name, engine.paths.models, forms=forms(engine.options.backend))
        except UnknownNameError as error:
            raise UsageError(error.what, "", _MODELS_LISTED) from error

    def require_own_model(self, remedy: str = "") -> None:
        """Refuse what needs a model in this process, where a server elsewhere answers."""
        loaded = self.engine.status.loaded
        if loaded is not None and loaded.is_remote:
            what = f"{loaded.name} is on a server"
            why = "which alone knows what drafts, and how fast it is without"
            raise UsageError(what, why, remedy)

    def local(self, name: str) -> "Reference":
        """A model that must be on this machine."""
        from models.reference import Reference

        found = self.resolved(name)
        if isinstance(found, Reference):
            return found
        what = f"the model {name} is not on this machine"
        raise UsageError(what, "", f"/model {name} downloads it")

    def missing_drafter(self, text: str) -> "HubReference | None":
        """The first drafter of a SPEC that is not on this machine; all must fit the model."""
        self.require_own_model(_DRAFTS_HERE)
        from app.drafting import draft_spec
        from models.reference import HubReference, UnknownNameError

        loaded = self.engine.status.loaded
        target = loaded.reference if loaded else None
        try:
            spec = draft_spec.parse(text, self.engine.paths, target)
        except UnknownNameError as error:
            raise UsageError(error.what, "", "F3 lists the drafters") from error
        if loaded is not None:
            spec.check(loaded.name, loaded.info.n_layers, loaded.info.active_experts)
        references = (reference for node in spec.nodes for reference in node.references)
        return next((one for one in references if isinstance(one, HubReference)), None)


class AppCommands(Commands):
    def help(self) -> None:
        from app.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.store, self.app.focused))

    def panel(self) -> None:
        """Show the panel, then its details, then neither."""
        store = self.store
        shown = not store.is_panel_shown or not store.shows_details
        store.shows_details = store.is_panel_shown and not store.shows_details
        panel = "shown" if shown else "hidden"
        store.preferences = replace(store.preferences, panel=panel)
        store.is_panel_shown = shown

    def editor(self) -> None:
        usual = next(filter(None, map(shutil.which, _USUAL_EDITORS)), None)
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual
        if not editor:
            usual = ", ".join(_USUAL_EDITORS)
            raise UsageError(
                "no editor was found", f"$EDITOR is not set, nor is any of {usual} here"
            )
        written = self.prompt.area.written
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "question.md"
            file.write_text(written.text, encoding="utf-8")
            try:
                with self.app.suspend():
                    subprocess.run([*editor_command(editor), str(file)], check=False)
                text = read_text(file, _MOST_EDITED).rstrip("\n")
            except (OSError, ValueError) as error:
                raise UsageError(f"cannot run {editor}", str(error)) from error
        self.prompt.area.write(text, written.attachments)

    def commands(self) -> None:
        from app.tui.lists import PickScreen

        items = {action.name: (action.title, self._ways_to(action)) for action in ACTIONS}
        self.choose(PickScreen("Commands", items))

    def _ways_to(self, action: Action) -> str:
        """The key and the slash commands of an action, such as "Ctrl+N  /new /clear"."""
        key = shown_key(keys_of(action, self.store.preferences.keys))
        commands = " ".join([*action.commands, action.argument]).strip()
        return "  ".join(filter(None, [key, commands]))

    def quit(self) -> None:
        """Quit; what is not saved is given a second thought."""
        fault, typed = self.view.unsaved, self.prompt.area.unsent
        is_behind = self.view.is_behind or any(one.text.strip() for one in typed)
        if fault and is_behind and fault not in self.warned_of:
            self.warned_of.add(fault)
            raise UsageError(f"not saved: {fault}; quitting again loses what is not saved")
        self.app.exit()


_LOOK_SECONDS = 0.1
"""Between two looks whether an answer has ended."""


class ModelCommands(Commands):
    def model(self, name: str) -> None:
        """Use a model, download a missing one, or stop its download; no name: show the list."""
        from backends.engines.backend_selection import REMOTE

        options = self.engine.options
        if options.asks_server:
            self._use_remote(name)
        elif options.backend == REMOTE:  # drafts are made here
            remedy = "/model does not change it; its server is started with another"
            raise UsageError("the model of the server is in use", "", remedy)
        elif not name:
            self._list_models()
        elif not self.downloads.stop(name):
            self._use_or_download(name)

    def draft(self, text: str) -> None:
        """Switch drafters, after the download of missing ones, with an undo."""
        engine, before = self.engine, self.engine.draft
        self.use_draft(text)
        if engine.draft != before:  # else they are downloaded first, or were chosen already
            self.changes.note("changed the drafter", engine.set_draft, before, engine.draft)

    def use_draft(self, text: str) -> None:
        if not text:
            raise UsageError("which drafter?", "", "Example: /draft lookup")
        text = text.strip("\"'")  # quoted as for a shell
        if (missing := self.missing_drafter(text)) is None:
            self.engine.set_draft(text)
        else:
            self._download(missing, lambda: self.perform("draft", text))

    def _use_remote(self, name: str) -> None:
        from app.tui.lists import PickScreen

        if name:
            self._load(name)
            return
        loaded, names = self.engine.status.loaded, self.engine.remote_models
        rows = {one: (one_line(one), "") for one in names}
        self.choose(
            PickScreen("Models of the server", rows, loaded.name if loaded else ""), "model"
        )

    def _list_models(self) -> None:
        from app.tui.downloads import models_here
        from app.tui.screens.models import ModelsScreen

        engine, history = self.engine, self.view.dialogue.history
        used = dict[str, float]()
        with suppress(HistoryError):  # the header says that chats cannot be read
            used = history.used_models() if history is not None else {}
        screen = ModelsScreen(
            self.store,
            lambda: replace(models_here(engine), used=used),
            self.downloads.stop,
            lambda stars: self.perform("set", f"stars {stars}"),
        )
        self.choose(screen, "model")

    def _use_or_download(self, name: str) -> None:
        from models.reference import HubReference

        reference = self.resolved(name)
        if isinstance(reference, HubReference):
            self._download(reference, lambda: self.app.run_worker(self._take_over(name)))
        elif self.engine.has_loaded(reference.path):  # loading it again would stop every answer
            self.app.notify(f"{one_line(reference.name)} is loaded already.")
        else:
            self._load(name)

    def _load(self, name: str) -> None:
        self.view.stop()  # what it has said is kept
        self.engine.load(name)

    async def _take_over(self, name: str) -> None:
        """Use a model that has just arrived, between two answers, and at later starts.

        Answers to programs are stopped: they may follow each other without end.
        """
        while self.engine.is_answering_user or not self.view.is_idle:
            await asyncio.sleep(_LOOK_SECONDS)
        self.engine.load(name)
        try:
            file.save(self.engine.paths.settings, {"model": name})
        except SpecchatError as error:
            self.view.call_later(self.view.show_fault, str(error))

    def _download(self, reference: "HubReference", then: Callable[[], object]) -> None:
        from models.hub import HubSettings

        engine = self.engine
        settings = HubSettings.of_environment(engine.paths.downloads, engine.options.offline)
        self.downloads.start(reference, settings, then)

    def train(self, what: str) -> None:
        """Tell what a drafter of one's own would bring, or how its training goes; start or stop."""
        from app.tui.training import TrainingJob, TrainScreen, newest_run

        self.require_own_model()
        self.view.require_model()
        loaded = self.engine.status.loaded
        assert loaded is not None, "it was asked for"
        reference, paths = loaded.reference, self.engine.paths
        run = newest_run(paths, reference.path)
        if what == "stop":
            self.downloads.stop(_TRAINING)
        elif progress := self.store.downloads.get(_TRAINING):
            words = "Stop; what is done is kept" if "%" in progress else "Stop"
            self.choose(TrainScreen([progress], {"stop": words}), "train")
        elif run and run.is_held:
            told = f"under way in another specchat: {run.words}"
            self.app.push_screen(TrainScreen([told], {}))
        elif what != "start" and run:
            told = f"not finished: {run.words}"
            self.choose(TrainScreen([told], {"start": "Go on, in the background"}), "train")
        else:
            options = ["--anyway", *(run.options if run else ())]
            job = TrainingJob(paths, reference, options if what == "start" else ["--dry-run"])
            self.downloads.run(_TRAINING, job, lambda: self._tell_of_training(job.result()))

    def _tell_of_training(self, told: Mapping[str, Any]) -> None:
        """Show a plan, or what a drafter that was trained brings, with what to do next."""
        from app.tui.training import TrainScreen

        if draft := told.get("draft"):
            choices = {"": "Not now", draft: "Use it now"}
            self.choose(TrainScreen(told["lines"], choices), "draft")
            return
        plan = told["plan"]
        words = f"Train it{'' if plan['pays'] else ' all the same'}, in the background"
        # It opens by itself, perhaps under somebody's Enter: the first choice does nothing.
        choices = {"": "Not now", "start": words}
        self.choose(TrainScreen([*plan["lines"], *plan["instead"]], choices), "train")

    def drafters(self) -> None:
        from app.tui.screens.drafters import DraftersScreen

        self.require_own_model()
        screen = DraftersScreen(self.store, self.engine, is_measured=self.view.is_idle)
        self.app.push_screen(screen, lambda chosen: self.perform(*chosen) if chosen else None)
