"""Shell commands of the user's, whose output joins the question that is typed."""

import asyncio
import contextlib
import os
import signal
import sys

from rich.text import Text

from app.printable import one_line
from app.tui.commands.app import Commands
from backends.base import UsageError
from backends.chat.message import whole_characters

_MOST_SECONDS = 60.0
_MOST_BYTES = 1 << 20
"""As much as of an attached file."""


class ShellCommands(Commands):
    def shell(self, command: str) -> None:
        """Run a command beside the chat; the model neither asks for it nor sees it unsent.

        Raises:
            UsageError: commands are switched off.
        """
        if not self.store.preferences.shell:
            raise UsageError("no command is run", "specchat was started with --no-shell")
        self.app.notify(f"Running {one_line(command)}")
        self.app.run_worker(self._attach(command))

    async def _attach(self, command: str) -> None:
        output = await run(command, _MOST_SECONDS)
        self.app.clear_notifications()
        self.prompt.area.attach(output, f"$ {one_line(command)[:40]}:")
        self.prompt.area.focus()


async def run(command: str, seconds: float) -> str:
    """A command as typed and what it wrote, cut at a time and a length; it reads nothing."""
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    written, end = b"", ""
    try:
        async with asyncio.timeout(seconds):
            while piece := await process.stdout.read(1 << 16):
                written += piece
                if len(written) > _MOST_BYTES:
                    end = f"[cut at {_MOST_BYTES >> 20} MB]"
                    break
            else:
                code = await process.wait()
                end = f"[exit code {code}]" if code else ""
    except TimeoutError:
        end = f"[stopped after {seconds:.0f} s]"
    finally:
        _end(process)
        await process.wait()
    text = whole_characters(written[:_MOST_BYTES].decode(errors="replace"))
    plain = Text.from_ansi(text).plain.rstrip()
    return "\n".join(filter(None, [f"$ {command}", plain, end]))


def _end(process: asyncio.subprocess.Process) -> None:
    """End a command with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
