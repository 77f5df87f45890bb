"""Choosing model and drafter; what is not on this machine is downloaded in the background."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app import draft_spec
from app.model_list import offered
from app.tui.screens.drafters_screen import DraftersScreen
from app.tui.screens.models_screen import ModelsScreen
from backends.base import UsageError
from backends.choice import forms
from models.hub import HubSettings
from models.reference import HubReference, resolve

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen

_CYCLE = ("auto", "lookup", "self")


async def _model(screen: "ChatScreen", argument: str) -> None:
    engine = screen.engine
    loaded = engine.status.loaded
    if argument:
        _choose(screen, argument)
        return

    async def picked(name: str | None) -> None:
        if name:
            await screen.action_perform("model", name)

    folder = engine.paths.models
    bandwidth = loaded.bandwidth if loaded else None
    running = loaded.name if loaded else ""
    models = offered(folder)
    screen.app.push_screen(
        ModelsScreen(models, running, str(folder), lambda: screen.downloads.lines, bandwidth),
        picked,
    )


def _choose(screen: "ChatScreen", name: str) -> None:
    """Load a model, or download it, or stop that."""
    engine = screen.engine
    if screen.downloads.stop(name):
        return
    # A wrong name leaves the model as it is.
    reference = resolve(name, engine.paths.models, forms=forms(engine.options.backend))

    def load() -> None:
        if screen.work is None:
            engine.load(name)
        else:
            screen.notify(f"{name} is here: /model {name} loads it.")

    if isinstance(reference, HubReference):
        _download(screen, reference, load)
    else:
        engine.load(name)


def _download(screen: "ChatScreen", reference: HubReference, then: Callable[[], None]) -> None:
    engine = screen.engine
    settings = HubSettings.of_environment(engine.paths.downloads, engine.options.offline)
    screen.downloads.start(reference, settings, then)
    screen.notify(f"Downloading {reference.name}; you can go on meanwhile.")


async def _cycle_draft(screen: "ChatScreen", argument: str) -> None:
    given = screen.engine.options.draft
    specs = [*_CYCLE, *([given] if given not in (*_CYCLE, "off") else []), "off"]
    now = screen.engine.draft
    place = specs.index(now) if now in specs else -1
    await _draft(screen, specs[(place + 1) % len(specs)])


async def _draft(screen: "ChatScreen", argument: str) -> None:
    if not argument:
        raise UsageError("which drafter?", "", "Example: /draft lookup")
    argument = argument.strip("\"'")  # as a shell wants it
    engine = screen.engine
    loaded = engine.status.loaded
    spec = draft_spec.parse(argument, engine.paths, loaded.reference if loaded else None)
    if loaded is not None:
        spec.check(loaded.name, loaded.info.n_layers, loaded.info.active_experts)
    wanted = [reference for link in spec.links for reference in link.references]
    missing = [one for one in wanted if isinstance(one, HubReference)]
    if not missing:
        engine.set_draft(argument)
        screen.notify(f"Drafter: {argument}")
        return

    def again() -> None:
        screen.call_later(screen.action_perform, "draft", argument)

    _download(screen, missing[0], again)


async def _drafters(screen: "ChatScreen", argument: str) -> None:
    async def picked(name: str | None) -> None:
        if name:
            await screen.action_perform("draft", name)

    screen.app.push_screen(DraftersScreen(screen.engine.rank()), picked)


COMMANDS: dict[str, Callable[["ChatScreen", str], Awaitable[None]]] = {
    "model": _model,
    "cycle_draft": _cycle_draft,
    "draft": _draft,
    "drafters": _drafters,
}
