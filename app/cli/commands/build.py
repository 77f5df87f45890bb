"""`specchat build`: a build of the engine that is faster on this machine."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from app.cli import option_values
from app.cli.command import Command, Group
from app.cli.options import OFFLINE, with_options
from app.cli.terminal import stderr, stdout
from app.paths import Paths
from app.tui.wording import seconds
from backends.base import ModelError, UsageError
from backends.engines.cuda_build import (
    DISK_BYTES,
    DOWNLOAD_BYTES,
    PACKAGES,
    CudaBuild,
    install,
    remove,
    usual_jobs,
)
from backends.hardware.nvidia import NvidiaCards, cuda_libraries, nvidia_cards

_ARCHITECTURE = re.compile(r"\d{2,3}[af]?")

build = typer.Typer(
    cls=Group,
    help="Build llama.cpp for a graphics card.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@build.command(cls=Command)
@with_options(OFFLINE)
def cuda(
    context: typer.Context,
    architecture: Annotated[
        str | None,
        typer.Option(metavar="N", help="For a card that is elsewhere, such as 89 or 90."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Files compiled at a time.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Go back to the build for the processor.")
    ] = False,
) -> None:
    """Build llama.cpp for the NVIDIA card that is here, with compilers from PyPI.

    It takes 15 minutes to an hour at the lowest priority. Ctrl-C stops it; the same command goes
    on. The build for the processor stays, and is used where the card is missing.
    """
    if undo:
        told = "the build for the processor is in use" if remove() else "no build for CUDA is here"
        stderr.note(told)
        return
    if architecture is not None and not _ARCHITECTURE.fullmatch(architecture):
        raise UsageError(f"--architecture cannot be {architecture}", "it is a number, such as 89")
    cards = nvidia_cards()
    chosen = (architecture,) if architecture else cards.architectures if cards else ()
    plan = CudaBuild(Paths.of_this_user().cuda_build, chosen, jobs or usual_jobs())
    problems = plan.problems(cards, is_offline=option_values.is_offline(context))
    if dry_run:
        stdout.write("".join(f"{line}\n" for line in _lines(plan, cards, problems)))
    if problems:
        raise ModelError("llama.cpp cannot be built for CUDA here", "; ".join(problems))
    if not dry_run:
        _make(plan, elsewhere=cards is None or not set(chosen) <= set(cards.architectures))


def _make(plan: CudaBuild, *, elsewhere: bool) -> None:
    if sys.platform != "win32":
        os.nice(19)
    try:
        made = plan.run(_show)
    except KeyboardInterrupt:
        stderr.note("stopped: the same command goes on from here")
        raise
    stderr.clear_status()
    if elsewhere:
        stderr.note(f"built in {made}; on the machine with the card it belongs into the package")
        stderr.note(f"llama_cpp, as {getattr(cuda_libraries(), 'name', 'lib-cuda')}")
        return
    stderr.note(f"llama.cpp now runs on the card, from {install(made)}")


def _show(done: int, steps: int, what: str, left: float | None) -> None:
    if left is None:
        stderr.status(what)
    else:
        stderr.progress(done, steps, f"{done} of {steps}, {seconds(left)} left  {what}")


def _lines(plan: CudaBuild, cards: NvidiaCards | None, problems: list[str]) -> Iterator[str]:
    yield f"card            {', '.join(cards.names) if cards else 'none'}"
    yield f"architecture    {', '.join(plan.architectures) or 'unknown'}"
    yield f"from PyPI       {', '.join(PACKAGES)} ({DOWNLOAD_BYTES / 1e6:.0f} MB)"
    yield f"built in        {plan.folder} ({DISK_BYTES / 1e9:.0f} GB, {plan.jobs} at a time)"
    yield f"libraries       {cuda_libraries() or 'llama.cpp is not installed'}"
    for problem in problems:
        yield f"missing         {problem}"
