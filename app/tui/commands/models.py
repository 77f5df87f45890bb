"""Commands that choose model and drafter; missing ones are downloaded in the background.

Screens, and what knows the models, are imported when they are needed: the first paint waits for
none.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from app.dialogue.changes import Change
from app.printable import one_line
from app.settings import file
from app.tui.commands.app import Commands
from backends.base import SpecchatError, UsageError

if TYPE_CHECKING:
    from models.hub import HubSettings
    from models.reference import HubReference, Reference

_LOOK_SECONDS = 0.1
"""Between two looks whether an answer has ended."""


class ModelCommands(Commands):
    def model(self, name: str) -> None:
        """Use a model, download a missing one, or stop its download; no name: show the list.

        Raises:
            SpecchatError: there is no such model.
        """
        if not name:
            self._list_models()
        elif not self.downloads.stop(name):
            self._use_or_download(name)

    def draft(self, text: str) -> None:
        """Switch drafters, after the download of missing ones, with an undo.

        Raises:
            SpecchatError: it is no SPEC, or it does not fit the model.
        """
        engine, before = self.engine, self.engine.draft
        self.use_draft(text)
        after = engine.draft
        if after != before:  # else they are downloaded first, or were chosen already
            self.changes.add(
                Change(
                    "changed the drafter",
                    lambda: engine.set_draft(before),
                    lambda: engine.set_draft(after),
                )
            )

    def use_draft(self, text: str) -> None:
        """Switch drafters, after the download of missing ones.

        Raises:
            SpecchatError: it is no SPEC, or it does not fit the model.
        """
        if not text:
            raise UsageError("which drafter?", "", "Example: /draft lookup")
        text = text.strip("\"'")  # quoted as for a shell
        missing = self.missing_drafter(text)
        if missing is not None:
            self._download(missing, text)
            return
        self.engine.set_draft(text)

    def _list_models(self) -> None:
        from app.tui.downloads import models_here
        from app.tui.screens.models import ModelsScreen

        engine, history = self.engine, self.view.dialogue.history
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
        if not isinstance(reference, HubReference):
            self._use(name, reference)
            return

        def use() -> None:
            self.app.run_worker(self._take_over(name))

        self.downloads.start(reference, self._hub_settings, use)

    def _use(self, name: str, reference: "Reference") -> None:
        if self.engine.has_loaded(reference.path):  # loading it again would stop every answer
            self.app.notify(f"{one_line(reference.name)} is loaded already.")
            return
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

    def _download(self, reference: "HubReference", drafter: str) -> None:
        settings = self._hub_settings
        self.downloads.start(reference, settings, lambda: self.perform("draft", drafter))

    @property
    def _hub_settings(self) -> "HubSettings":
        from models.hub import HubSettings

        engine = self.engine
        return HubSettings.of_environment(engine.paths.downloads, engine.options.offline)

    def drafters(self) -> None:
        from app.tui.screens.drafters import DraftersScreen

        screen = DraftersScreen(self.store, self.engine, is_measured=self.view.is_idle)
        self.app.push_screen(screen, lambda chosen: self.perform(*chosen) if chosen else None)
