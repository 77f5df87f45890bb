"""The `specchat` command."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import core
from typer import main as typer_main

from app.cli import options
from app.cli.command import Command, Group, OptionalJsonFile, keep_defaults
from app.cli.terminal import interrupt, process, stderr, stdout
from app.cli.terminal.process import EXIT_DONE, EXIT_ERROR, EXIT_INTERRUPTED, exit_code
from app.engine.status import crash_report
from app.paths import Paths, tighten
from app.process import code_after
from app.settings import file
from app.settings.catalogue import BY_NAME, Part
from backends.base import SpecchatError, UsageError

_COMMON = ("model", "draft", *(key.name for key in BY_NAME.values() if key.part is Part.START))
"""Settings that every command has a use for."""
_COMMANDS = (
    "ask", "batch", "bench", "chat", "doctor", "path", "serve", "acp", "verify", "build", "chats",
    "models", "rpc-server",
)  # fmt: skip
"""Commands and groups of commands, each in the module of its name."""


class _Commands(Group):
    """Leaves variables to the commands: an unusable one stops only the commands that read it.

    A command is imported when it is named: the app needs none, and they take long.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.params:
            option.value_from_envvar = lambda ctx: None  # noqa: ARG005 - as Typer calls it
        keep_defaults(self.params)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _imported(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS:  # Typer suggests one of those imported
            for name in _COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(_COMMANDS)


def _imported(name: str) -> Any:
    module = name.replace("-", "_")
    command = getattr(import_module(f"app.cli.commands.{module}"), module)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.callback()(lambda: None)  # so that it is a group, even of one command
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name)
    else:
        holder.command(cls=OptionalJsonFile if name == "bench" else Command)(command)
    group = typer_main.get_command(holder)
    assert isinstance(group, core.TyperGroup)
    return group.commands[name]


app = typer.Typer(
    cls=_Commands,
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        stdout.write(f"specchat {metadata.version('specchat')}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
@options.with_options(
    *options.SESSION, options.LOSSY_RULE, options.TOOLS_ON, *options.SERVER, options.PRESET
)
def start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    continues: Annotated[
        bool, typer.Option("--continue", help="Open the last chat, in the app.")
    ] = False,
    no_shell: Annotated[
        bool, typer.Option("--no-shell", help="Run no !COMMAND in the app.")
    ] = False,
    folder: options.Folder = None,
    serves: Annotated[
        bool, typer.Option("--serve", help="Answer other programs too, beside the app.")
    ] = False,
) -> None:
    """Chat with a local model, faster by exact speculative decoding.

    Without a command it opens the app. Every option can also be set by the variable shown with
    it, or under its name in config.toml (see `specchat path config`). `specchat chat --help`
    lists the sampling options; in the app they are under F8.
    """
    del version
    if context.invoked_subcommand is not None:
        if continues:
            what = f"--continue cannot be used with {context.invoked_subcommand}"
            raise UsageError(what, "it opens the last chat in the app")
        if folder:
            what = f"--folder stands behind {context.invoked_subcommand}, or opens the app"
            raise UsageError(what, "it opens the app with a folder")
        if serves:
            what = f"--serve cannot be used with {context.invoked_subcommand}"
            raise UsageError(what, "it serves beside the app", "Alone: specchat serve")
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "there is no terminal",
            "",
            'Use `specchat ask "…"` in scripts, or `specchat chat` to talk through pipes.',
        )
    from app.cli.app_start import app_start, can_show_app, open_app, server_start  # only the app

    if can_show_app():
        from app.serve.serving import serving

        paths = Paths.of_this_user()
        start = app_start(
            context, paths, continues=continues, no_shell=no_shell, folder=folder or ""
        )
        open_app(start, serving(server_start(context, paths), start.answering) if serves else None)
        return
    if continues or serves:
        what = "--continue" if continues else "--serve"
        raise UsageError(f"{what} needs the app", "this terminal cannot show it")
    group = context.command
    assert isinstance(group, Group)
    command = group.get_command(context, "chat")
    assert command is not None
    with command.make_context("chat", [], parent=context) as inner:
        command.invoke(inner)


def main() -> None:
    """Run the command line; every end has its exit code and no traceback."""
    process.prepare()
    tighten(Paths.of_this_user())
    with interrupt.end_signals():
        code = _run()
    sys.exit(code_after(interrupt.ended_by()) if interrupt.ended_by() else code)


def _defaults(paths: Paths) -> dict[str, Any]:
    settings = {name: value for name, value in file.read(paths.settings).items() if name in BY_NAME}
    common = {name: value for name, value in settings.items() if name in _COMMON}
    with_settings = ("acp", "ask", "chat", "serve", "verify")
    return {**common, **dict.fromkeys(with_settings, settings), "models": {"pair": common}}


def _run() -> int | str | None:
    defaults, fault = {}, None
    try:
        try:
            defaults = _defaults(Paths.of_this_user())
        except SpecchatError as error:
            fault = error  # raised by the commands that need settings; help and paths work
        app(prog_name="specchat", default_map=defaults, obj=fault)
    except SystemExit as ended:
        return ended.code
    except SpecchatError as error:
        stderr.show_error(error)
        return exit_code(error)
    except stdout.ReaderGoneError:
        return EXIT_DONE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        stderr.show_error(SpecchatError("cannot go on", str(error)))
    except Exception as error:
        stderr.show_error(crash_report(error, Paths.of_this_user()))
    return EXIT_ERROR
