"""Commands that choose model and drafter; missing ones are downloaded in the background."""

from dataclasses import dataclass
from typing import Any

from textual.app import App

from app.drafting.spec import draft_spec
from app.engine.engine import Engine
from app.loading.model_list import offered
from app.tui.commands.command import Perform
from app.tui.conversation.chat_view import ChatView
from app.tui.screens.drafters_screen import DraftersScreen
from app.tui.screens.models_screen import ModelsScreen
from app.tui.status.download_list import DownloadList
from backends.base import UsageError
from backends.engines.backend_selection import forms
from models.hub import HubSettings
from models.reference import HubReference, resolve

_CYCLE = ("auto", "lookup", "self")


@dataclass(frozen=True, slots=True)
class ModelCommands:
    """Choosing the model and its drafter, by name or from a list."""

    app: App[Any]
    engine: Engine
    view: ChatView
    downloads: DownloadList
    perform: Perform

    def model(self, name: str) -> None:
        """Load a model, download a missing one, or stop its download; no name: show the list.

        Raises:
            SpecchatError: there is no such model.
        """
        if not name:
            self._list_models()
        elif not self.downloads.stop(name):
            self._load_or_download(name)

    def draft(self, text: str) -> None:
        """Switch drafters, after the download of missing ones.

        Raises:
            SpecchatError: it is no SPEC, or it does not fit the model.
        """
        if not text:
            raise UsageError("which drafter?", "", "Example: /draft lookup")
        text = text.strip("\"'")  # quoted as for a shell
        loaded = self.engine.status.loaded
        spec = draft_spec.parse(text, self.engine.paths, loaded.reference if loaded else None)
        if loaded is not None:
            spec.check(loaded.name, loaded.info.n_layers, loaded.info.active_experts)
        references = [reference for node in spec.nodes for reference in node.references]
        missing = [reference for reference in references if isinstance(reference, HubReference)]
        if missing:
            self._download(missing[0], text)
            return
        self.engine.set_draft(text)
        self.app.notify(f"Drafter: {text}")

    def _list_models(self) -> None:
        loaded = self.engine.status.loaded
        folder = self.engine.paths.models
        screen = ModelsScreen(
            offered(folder),
            loaded.name if loaded else "",
            str(folder),
            lambda: self.downloads.progress,
            loaded.bandwidth if loaded else None,
        )
        self.app.push_screen(screen, self._model_picked)

    async def _model_picked(self, name: str | None) -> None:
        if name:
            await self.perform("model", name)

    def _load_or_download(self, name: str) -> None:
        engine = self.engine
        reference = resolve(name, engine.paths.models, forms=forms(engine.options.backend))
        if not isinstance(reference, HubReference):
            engine.load(name)
            return

        def load() -> None:
            if self.view.pending is None:
                engine.load(name)
            else:
                self.app.notify(f"{name} is installed: /model {name} loads it.")

        self.downloads.start(reference, self._hub_settings, load)

    def _download(self, reference: HubReference, drafter: str) -> None:
        """Download a part of a drafter, then choose the drafter again."""

        def choose_again() -> None:
            self.app.call_later(self.perform, "draft", drafter)

        self.downloads.start(reference, self._hub_settings, choose_again)

    @property
    def _hub_settings(self) -> HubSettings:
        engine = self.engine
        return HubSettings.of_environment(engine.paths.downloads, engine.options.offline)

    def cycle_draft(self) -> None:
        initial = self.engine.options.draft
        specs = [*_CYCLE, *([initial] if initial not in (*_CYCLE, "off") else []), "off"]
        current = self.engine.draft
        index = specs.index(current) if current in specs else -1
        self.draft(specs[(index + 1) % len(specs)])

    def drafters(self) -> None:
        self.app.push_screen(DraftersScreen(self.engine.rank()), self._drafter_picked)

    async def _drafter_picked(self, spec: str | None) -> None:
        if spec:
            await self.perform("draft", spec)
