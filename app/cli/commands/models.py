"""`specchat models`: what is on this machine, getting more, and what drafts for what."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.commands.model_info import as_json, in_words, model_info
from app.cli.commands.pair import pair
from app.cli.commands.tune import tune
from app.cli.pulling import pull_model
from app.cli.terminal import stderr, stdout
from app.model_list import Offered, offered
from app.obtaining import request_for
from app.paths import Paths
from backends.base import HubUnreachableError, SpecchatError, UsageError
from backends.choice import forms
from models.hub import HubSettings
from models.hub.settings import hub_cache
from models.hub.unfinished import discard, unfinished
from models.installed import installed
from models.reference import on_hub
from models.removal import remove as remove_model
from models.size_text import size_text
from models.stores.found import Installed
from models.stores.installed import nearest_names

models = typer.Typer(
    help="List, download, remove and describe models, and find drafters for one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="JSON in place of text.")]
NameOrPath = Annotated[
    str, typer.Argument(metavar="NAME", help="As `specchat models list` shows it, or a path.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `specchat models list` shows it.")]


@models.command("list")
def list_models(json: Json = False) -> None:
    """Models on this machine, and those of the catalogue; with size, and whether they fit."""
    found, parts = offered(Paths.of_this_user().models), unfinished(hub_cache())
    if json:
        here = [_offered_here(one) for one in found if one.is_installed]
        more = [_offered_there(one) for one in found if not one.is_installed]
        stdout.write_json(
            {"schema": 1, "models": here, "catalogue": more, "unfinished_bytes": parts}
        )
        return
    width = max(len(model.name) for model in found)
    for is_installed, title in ((True, "on this machine"), (False, "`specchat models pull NAME`")):
        stdout.write(f"{title}\n")
        for model in (one for one in found if one.is_installed is is_installed):
            size = size_text(model.size_bytes) if model.size_bytes else "?"
            line = f"  {model.name:<{width}}  {size:>10}  {model.fit or '?':7}  {model.about}"
            stdout.write_line(line)
    for repository, size in parts.items():
        stderr.note(f"unfinished: {repository}, {size_text(size)}")


@models.command()
def pull(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="REF", help="A name of the catalogue, or ORG/NAME[:CHOICE].")
    ],
    offline: options.Offline = False,
    json: Json = False,
) -> None:
    """Download a model. CHOICE is a quantization (Q4_K_M unless given) or a file's name.

    Ctrl-C stops it; the same command goes on where it stopped.
    """
    paths = Paths.of_this_user()
    settings = HubSettings.of_environment(paths.downloads, options.is_offline(context, offline))
    preferred = forms(options.session_options(context).backend)
    try:
        done = pull_model(request_for(on_hub(model, paths.models, preferred)), settings)
    except HubUnreachableError as error:
        names = ", ".join(one.name for one in _installed())
        at_hand = f"On this machine: {names}" if names else ""
        remedy = "\n".join(filter(None, (error.remedy, at_hand)))
        raise HubUnreachableError(error.what, error.why, remedy) from error
    name = next((one.name for one in _installed() if one.path == done.path), done.repository)
    if json:
        stdout.write_json({"schema": 1, "name": name, **asdict(done), "path": str(done.path)})
    else:
        stdout.write_line(f"{name}  {size_text(done.size_bytes)}  {done.path}")


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
        stdout.write_json({"schema": 1, "removed": as_json(model)})
    else:
        stderr.note(f"removed {model.name}, {size_text(model.size_bytes)}")


@models.command()
def info(name: NameOrPath, json: Json = False) -> None:
    """What a model's file, or its folder, says of it; what the catalogue says of one not here."""
    facts = model_info(name, Paths.of_this_user())
    if json:
        stdout.write_json({"schema": 1, **facts})
        return
    for label, value in in_words(facts):
        stdout.write_line(f"{label:<17} {value}")


models.command()(pair)
models.command()(tune)


def _discard(repository: str, json: bool) -> None:
    try:
        discard(repository, hub_cache())
    except OSError as error:
        raise SpecchatError(f"cannot discard {repository}", str(error)) from error
    if json:
        stdout.write_json({"schema": 1, "discarded": repository})
    else:
        stderr.note(f"discarded what came of {repository}")


def _installed() -> list[Installed]:
    return installed(Paths.of_this_user().models)


def _named(name: str) -> Installed:
    found = _installed()
    for model in found:
        if name.lower() == model.name.lower() or name == str(model.path):
            return model
    near = nearest_names(name, found)
    raise UsageError(
        f"there is no model called {name!r} on this machine",
        f"nearest: {', '.join(near)}" if near else "",
        "`specchat models list` names all of them.",
    )


def _offered_here(model: Offered) -> dict[str, Any]:
    facts = {"name": model.name, "path": str(model.path), "size_bytes": model.size_bytes}
    return {**facts, "origin": model.about, "fit": model.fit}


def _offered_there(model: Offered) -> dict[str, Any]:
    facts = {"name": model.name, "size_bytes": model.size_bytes, "fit": model.fit}
    return {**facts, "about": model.about}
