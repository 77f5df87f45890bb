"""`specchat models`: what is on this machine, and getting more."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from app.cli import options, terminal
from app.cli.model_facts import facts_of
from app.cli.printable import printable, say_json
from app.cli.pulling import pull_model
from app.paths import Paths
from backends.base import HubUnreachableError, SpecchatError, UsageError
from models.hub import DownloadRequest, HubSettings
from models.hub.settings import hub_cache
from models.hub.unfinished import discard, unfinished
from models.removal import remove as remove_model
from models.size_text import size_text
from models.stores.found import Installed
from models.stores.installed import installed_models, nearest_names
from models.stores.places import Places

models = typer.Typer(
    help="List, download, remove and describe models.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="JSON in place of text.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `specchat models list` shows it.")]


@models.command("list")
def list_models(json: Json = False) -> None:
    """Every model on this machine, with its size and whose folder it lies in."""
    found, parts = _installed(), unfinished(hub_cache())
    if json:
        listed = [_as_json(model) for model in found]
        say_json({"schema": 1, "models": listed, "unfinished_bytes": parts})
        return
    width = max((len(model.name) for model in found), default=0)
    for model in found:
        size = size_text(model.size_bytes)
        terminal.say(printable(f"{model.name:<{width}}  {size:>10}  {model.origin}") + "\n")
    if not found:
        terminal.note("there are no models yet; `specchat models pull` downloads one")
    for repository, size in parts.items():
        terminal.note(f"unfinished: {printable(repository)}, {size_text(size)}")


@models.command()
def pull(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="REPOSITORY[:CHOICE]", help="organization/name on the hub.")
    ],
    offline: options.Offline = False,
    json: Json = False,
) -> None:
    """Download a model. CHOICE is a quantization (Q4_K_M unless given) or a file's name.

    Ctrl-C stops it; the same command goes on where it stopped.
    """
    paths = Paths.of_this_user()
    settings = HubSettings.of_environment(paths.downloads, options.is_offline(context, offline))
    try:
        done = pull_model(_request(model), settings)
    except HubUnreachableError as error:
        names = ", ".join(one.name for one in _installed())
        at_hand = f"On this machine: {printable(names)}" if names else ""
        remedy = "\n".join(filter(None, (error.remedy, at_hand)))
        raise HubUnreachableError(error.what, error.why, remedy) from error
    name = next((one.name for one in _installed() if one.path == done.path), done.repository)
    if json:
        say_json({"schema": 1, "name": name, **asdict(done), "path": str(done.path)})
    else:
        terminal.say(printable(f"{name}  {size_text(done.size_bytes)}  {done.path}") + "\n")


@models.command()
def remove(name: Name, json: Json = False) -> None:
    """Delete a model that specchat downloaded, or one in its models folder.

    The name of a repository alone discards what came of an unfinished download.
    """
    paths = Paths.of_this_user()
    if name in unfinished(hub_cache()):
        _discard(name, json)
        return
    model = _named(name)
    remove_model(model, HubSettings.of_environment(paths.downloads))
    if json:
        say_json({"schema": 1, "removed": _as_json(model)})
    else:
        terminal.note(printable(f"removed {model.name}, {size_text(model.size_bytes)}"))


@models.command()
def info(name: Name, json: Json = False) -> None:
    """What a model's file says of it."""
    model = _named(name)
    facts = {**_as_json(model), **facts_of(model.path)}
    if json:
        say_json({"schema": 1, **facts})
        return
    for key, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        if value is not None:
            terminal.say(printable(f"{key.replace('_', ' '):<16} {shown}") + "\n")


def _discard(repository: str, json: bool) -> None:
    try:
        discard(repository, hub_cache())
    except OSError as error:
        raise SpecchatError(f"cannot discard {repository}", str(error)) from error
    if json:
        say_json({"schema": 1, "discarded": repository})
    else:
        terminal.note(f"discarded what came of {printable(repository)}")


def _request(text: str) -> DownloadRequest:
    repository, _, wanted = text.partition(":")
    organization, slash, name = repository.partition("/")
    if not (organization and slash and name) or "/" in name:
        raise UsageError(
            f"{text!r} names no repository",
            "it has the form organization/name, and :Q4_K_M or a file's name after it",
        )
    return DownloadRequest(repository, wanted or None)


def _installed() -> list[Installed]:
    return installed_models(Places.of_environment(Paths.of_this_user().models))


def _named(name: str) -> Installed:
    found = _installed()
    for model in found:
        if name.lower() == model.name.lower() or name == str(model.path):
            return model
    near = nearest_names(name, found)
    raise UsageError(
        f"there is no model called {name!r} on this machine",
        f"nearest: {printable(', '.join(near))}" if near else "",
        "`specchat models list` names all of them.",
    )


def _as_json(model: Installed) -> dict[str, Any]:
    return {**asdict(model), "path": str(model.path), "origin": model.origin.value}
