"""`specchat models`: lists, downloads, removes and describes models."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from app import completion
from app.cli import option_values, options
from app.cli.command import Command, Group
from app.cli.commands.model_info import as_json, as_rows, model_info, named, own_drafters
from app.cli.commands.pair import pair
from app.cli.commands.train import train
from app.cli.commands.tune import tune
from app.cli.output import Json, Output, write_result
from app.cli.session import phases
from app.cli.terminal import stderr
from app.drafting.choose.memory_choice import expected_streaming_rate
from app.history.store import open_history
from app.learned.registered import forget
from app.learned.registered import named as registered_drafter
from app.learned.speeds import processor_bandwidth, reach_here
from app.loading.model_list import (
    STAR,
    ListedModel,
    Order,
    Reach,
    Speed,
    Suggestion,
    about,
    arranged,
    drafters_in_short,
    offered,
    recommended,
    starred,
)
from app.loading.select import downloaded, request_for
from app.loading.streaming import streaming_rate
from app.paths import Paths
from app.settings.in_effect import settings_in_effect
from app.training.run import unfinished as unfinished_runs
from backends.base import HubUnreachableError, SpecchatError, UsageError
from backends.base.safe_files import explained
from backends.engines.backend_selection import LLAMACPP, REMOTE, forms
from backends.hardware.host import available_memory, physical_cores
from models.byte_sizes import size_text
from models.hub import HubSettings
from models.hub.progress import hub_cache
from models.hub.repository_cache import discard, unfinished
from models.metadata.memory_bill import Fit
from models.names import nearest
from models.reference import on_hub
from models.stores.available_models import installed
from models.stores.available_models import remove as remove_model
from models.stores.scan import Installed

models = typer.Typer(
    cls=Group,
    help="List, download, remove and describe models, and find drafters for one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameOrPath = Annotated[
    str,
    options.argument("NAME", "As `specchat models list` shows it, or a path.", completion.models),
]
Name = Annotated[
    str,
    options.argument("NAME", "As `specchat models list` shows it.", completion.installed_models),
]
_LEGEND = (
    "memory: for the model and a context of 8,192 tokens; tight: over 90 % of the free memory;",
    "streams: a part of its weights is read from disk for each token (--stream)",
)


@models.command("list", cls=Command)
@options.with_options(options.BACKEND, *options.REMOTE, options.OFFLINE)
def list_models(
    context: typer.Context,
    sort: Annotated[
        Order, typer.Option("--sort", help="Starred ones are first (Ctrl+L in the app).")
    ] = Order.CATALOGUE,
    json: Json = False,
    output: Output = None,
) -> None:
    """List installed models and available downloads, or a server's with --backend remote."""
    session_options = option_values.session_options(context)
    if session_options.backend == REMOTE:
        from app.engine.remote_session import listed_models

        found = listed_models(session_options)
        write_result({"models": found}, (str(one["id"]) for one in found), json, output)
        return
    paths = Paths.of_this_user()
    reach, parts, trainings = reach_here(paths), unfinished(hub_cache()), unfinished_runs(paths)
    found = offered(paths.models)
    best = recommended(found, reach)
    stars = starred(str(settings_in_effect(paths).values.get("stars", "")))
    listed = arranged(_with_rates(found, reach), sort, stars, _used(paths))
    facts = {
        "models": [_offered_here(model, paths) for model in listed if model.is_installed],
        "catalogue": [_offered_there(model) for model in listed if not model.is_installed],
        "unfinished_bytes": parts,
        "unfinished_trainings": [
            {"name": run.name, "model": run.model, "command": run.command, **asdict(run.progress)}
            for run in trainings
        ],
        "recommended": best.model.name if best else None,
    }
    lines = [*_listing(listed, paths), f"recommended: {_recommendation(best, reach)}"]
    write_result(facts, lines, json, output)
    if json:
        return
    for repository, size in parts.items():
        stderr.note(f"unfinished: {repository}, {size_text(size)}")
    for run in trainings:
        stderr.note(f"unfinished: {run.name}, training of a drafter ({run.words})")
        stderr.note(f"  to go on: {run.command}; to remove it: specchat models remove {run.name}")


def _recommendation(best: Suggestion | None, reach: Reach | None) -> str:
    if reach is None:
        return "known once specchat has answered here, which measures the speed"
    if best is None:
        return "none; each that fits would answer slower here than people read"
    name = best.model.name
    get = "which is here" if best.model.is_installed else f"specchat models pull {name}"
    return f"{name} ({about(best.rate)}; larger ones do not fit, or are slow here): {get}"


def _with_rates(models: Sequence[ListedModel], reach: Reach | None) -> Iterator[ListedModel]:
    for model in models:
        rate = reach.rate(model.read_bytes) if reach else None
        yield replace(model, speed=Speed(rate, is_measured=False) if rate else None)


def _used(paths: Paths) -> dict[str, float]:
    if not paths.history.exists():
        return {}
    with closing(open_history(paths)) as history:
        return history.used_models()


def _listing(listed: Sequence[ListedModel], paths: Paths) -> Iterator[str]:
    width = max(len(model.name) for model in listed)
    sections = ((True, "on this machine", "origin"), (False, "to download", "variant, licence"))
    for is_installed, title, origin in sections:
        models_in = [model for model in listed if model.is_installed is is_installed]
        if not models_in:
            continue
        yield f"{title:<{width + 2}}  {'size':>10}  memory   {origin}"
        for model in models_in:
            size = size_text(model.size_bytes) if model.size_bytes else "?"
            trained = f"{model.trained}: no model, but for --draft" if model.trained else ""
            drafters = drafters_in_short(model.drafters)
            rate = _streaming_rate(model)
            good = f"good at {', '.join(model.good_at)}" if model.good_at else ""
            parts = [model.about, good, trained, streaming_rate(rate) if rate else "", drafters]
            words = ", ".join(filter(None, parts))
            mark = STAR if model.is_starred else " "
            yield f"{mark} {model.name:<{width}}  {size:>10}  {model.fit or '?':7}  {words}"
            for own in own_drafters(model.path, paths) if model.path else ():
                told = filter(None, (own["kind"], own["misfit"], own["note"]))
                yield f"    --draft {own['alias']}: {'; '.join(told)}"
        yield ""
    yield from _LEGEND
    yield "download: specchat models pull NAME"


@models.command(cls=Command)
@options.with_options(options.OFFLINE)
def pull(
    context: typer.Context,
    model: Annotated[
        str,
        options.argument(
            "REF", "A name of the catalogue, or ORG/NAME[:CHOICE].", completion.catalogue_models
        ),
    ],
    json: Json = False,
    output: Output = None,
) -> None:
    """Download a model. CHOICE is a quantization (default: Q4_K_M) or a file name.

    Ctrl-C stops the download; the same command resumes it.
    """
    paths = Paths.of_this_user()
    settings = HubSettings.of_environment(paths.downloads, option_values.is_offline(context))
    preferred = forms(option_values.session_options(context).backend)
    request = request_for(on_hub(model, paths.models, preferred))
    try:
        with phases() as (notify, _):
            done = downloaded(request, settings, notify)
    except HubUnreachableError as error:
        names = ", ".join(model.name for model in _installed())
        at_hand = f"On this machine: {names}" if names else ""
        remedy = "\n".join(filter(None, (error.remedy, at_hand)))
        raise HubUnreachableError(error.what, error.why, remedy) from error
    name = next((model.name for model in _installed() if model.path == done.path), done.repository)
    facts = {"name": name, **asdict(done), "path": str(done.path)}
    write_result(facts, [f"{name}  {size_text(done.size_bytes)}  {done.path}"], json, output)


@models.command(cls=Command)
def remove(name: Name, json: Json = False, output: Output = None) -> None:
    """Delete a model that specchat downloaded, one in its models folder, or a trained drafter.

    The name of a repository alone discards its unfinished downloads, that of a drafter in training
    what was done of it.
    """
    paths = Paths.of_this_user()
    runs = (run for run in unfinished_runs(paths) if run.name == name.lower())
    if name in unfinished(hub_cache()):
        with explained(f"cannot discard {name}", SpecchatError):
            discard(name, hub_cache())
        facts, what = {"discarded": name}, f"discarded the unfinished download of {name}"
    elif run := next(runs, None):
        run.discard()
        facts, what = {"discarded": run.name}, f"discarded the unfinished training of {run.name}"
    elif (trained := registered_drafter(paths, name)) is not None:
        forget(paths, trained)
        facts, what = {"removed": trained.name}, f"removed {trained.name}, {trained.words}"
    else:
        model = _named(name)
        remove_model(model, HubSettings.of_environment(paths.downloads), paths.models)
        what = f"removed {model.name}, {size_text(model.size_bytes)}"
        facts = {"removed": as_json(model)}
    write_result(facts, [what], json, output, stderr.note)


@models.command(cls=Command)
def info(name: NameOrPath, json: Json = False, output: Output = None) -> None:
    """Show the metadata of a model: its file's if installed, else the catalogue's."""
    facts = model_info(name, Paths.of_this_user())
    lines = (f"{label:<17} {value}" for label, value in as_rows(facts))
    write_result(facts, lines, json, output)


models.command(cls=Command)(pair)
models.command(cls=Command)(tune)
models.command(cls=Command)(train)


def _installed() -> list[Installed]:
    return installed(Paths.of_this_user().models)


def _named(name: str) -> Installed:
    listed = _installed()
    if model := named(name, listed):
        return model
    near = nearest(name, [model.name for model in listed])
    what = f"no model {name or repr(name)} on this machine"
    if near:
        raise UsageError(f"{what}. Nearest: {', '.join(near)}.")
    raise UsageError(f"{what}. `specchat models list` lists all.")


def _streaming_rate(model: ListedModel) -> float | None:
    """Tokens a second to expect of a model that streams; None for others, and where unknown."""
    if model.fit is not Fit.STREAMS or model.path is None:
        return None
    paths = Paths.of_this_user()
    memory = processor_bandwidth(physical_cores(), paths)
    if memory is None:
        return None
    free = available_memory()
    return expected_streaming_rate(model.path, free, memory.bytes_per_second, paths)


def _offered_here(model: ListedModel, paths: Paths) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": model.name, "path": str(model.path), "size_bytes": model.size_bytes
    }  # fmt: skip
    rate = _streaming_rate(model)
    facts |= {"origin": model.about, "fit": model.fit, "streaming_tokens_per_second": rate}
    facts["own_drafters"] = own_drafters(model.path, paths) if model.path else []
    return {**facts, "trained_drafter": model.trained or None, **_of_catalogue(model)}


def _offered_there(model: ListedModel) -> dict[str, Any]:
    facts = {"name": model.name, "size_bytes": model.size_bytes, "fit": model.fit}
    return {**facts, "about": model.about, **_of_catalogue(model)}


def _of_catalogue(model: ListedModel) -> dict[str, Any]:
    """What the catalogue knows of a model, such as short names of what drafts for it."""
    known = model.drafters
    return {
        "starred": model.is_starred,
        "good_at": list(model.good_at),
        "drafters": [one.alias for one in known if one.runs_on(LLAMACPP)],
        "mlx_drafters": [one.alias for one in known if one.mlx],
    }
