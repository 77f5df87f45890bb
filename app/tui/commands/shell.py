"""Shell commands of the user's, whose output joins the question that is typed."""

import asyncio
import contextlib
import os
import signal
import sys

from rich.text import Text
from textual.worker import Worker

from app.chat.attachments import OUTPUT, Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.printable import one_line
from app.tui.commands.chat import ChatCommands
from app.tui.prompt.folding import PromptText
from backends.base import UsageError

_MOST_SECONDS = 60.0
_MOST_BYTES = 64 << 20
_KEPT_BYTES = 32 << 10
"""Of the beginning, and of the end: more would fill most contexts."""
_END_SECONDS = 2.0
"""What was killed is waited for no longer: a process of another user may go on."""


class ShellCommands(ChatCommands):
    _running: Worker[None] | None = None
    _command = ""
    _outputs: tuple[tuple[Dialogue, str, str], ...] = ()
    """What commands wrote, with the chat that each was started in and what names it there."""

    def shell(self, command: str) -> None:
        """Run a command beside the chat; the model neither asks for it nor sees it unsent."""
        if not self.store.preferences.shell:
            raise UsageError("commands are switched off", "specchat was started with --no-shell")
        if not command:
            raise UsageError("which command?", "", "Example: !git diff")
        if self.is_running:
            raise UsageError("a command is running", "", "Esc stops it.")
        self.app.notify(f"Running {one_line(command)} · Esc stops it", timeout=_MOST_SECONDS)
        self._command = f"!{command}"
        self._running = self.app.run_worker(self._attach(command))
        self.store.runs_command = True

    @property
    def unsent(self) -> list[PromptText]:
        """The command that runs, and outputs that wait for their chats."""
        waiting = [
            Attachment(AttachmentKind.PASTE, f"[{told}]", output)
            for _, output, told in self._outputs
        ]
        return [PromptText(self._command), *(PromptText(one.name, (one,)) for one in waiting)]

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.is_finished

    def stop(self) -> None:
        """Stop the command that runs; without one, the answer in progress."""
        if self._running is not None and self.is_running:
            self._command = ""
            self._running.cancel()
            self.app.clear_notifications()
            self.app.notify("Stopped the command.")
        else:
            super().stop()

    async def _attach(self, command: str) -> None:
        chat = self.view.dialogue
        output, end = await run(command, _MOST_SECONDS)
        self._command = ""
        self.app.clear_notifications()
        told = ", ".join(filter(None, [f"{OUTPUT[1:]}{one_line(command)[:40]}", end]))
        self._outputs = (*self._outputs, (chat, output, told))
        self.attach_outputs()
        if self._outputs:
            self.app.notify(f"The output of {told} waits in its chat.")

    def attach_outputs(self) -> None:
        """Attach what was written for the chat shown; that of a new chat is for any new one.

        None is for a question that is edited.
        """
        if self.store.edited is not None:
            return
        waiting, self._outputs = self._outputs, ()
        shown = self.view.dialogue
        for chat, output, told in waiting:
            if shown.is_same_chat(chat) or shown.chat is chat.chat is None:
                self.prompt.area.attach(output, f"{told}:")
                self.prompt.area.focus()
            else:
                self._outputs = (*self._outputs, (chat, output, told))


async def run(command: str, seconds: float) -> tuple[str, str]:
    """A command with what it wrote, cut at a time and a length, and how it ended if not well.

    It reads nothing.
    """
    loop = asyncio.get_running_loop()
    transport, output = await loop.subprocess_shell(
        _Output,
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    end = ""
    try:
        async with asyncio.timeout(seconds):
            await output.ended.wait()
        if not output.lost.is_set():
            end = f"ended after {_MOST_BYTES >> 20} MB"
        elif code := transport.get_returncode():
            end = f"exit code {code}"
    except TimeoutError:
        end = f"stopped after {seconds:.0f} s"
    finally:
        _end(transport)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output.lost.wait(), _END_SECONDS)
        with contextlib.suppress(PermissionError):
            transport.close()
    if output.left_out:
        told = f"\n[{output.left_out:,} bytes are left out here]\n"
        output.written[_KEPT_BYTES:_KEPT_BYTES] = told.encode()
    plain = Text.from_ansi(output.written.decode(errors="replace")).plain.rstrip()
    return "\n".join(filter(None, [f"$ {command}", plain, end and f"[{end}]"])), end


class _Output(asyncio.SubprocessProtocol):
    """Beginning and end of what a command wrote; it has ended once that is all, or too much."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.left_out = 0
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd
        self.written += data
        if (more := len(self.written) - 2 * _KEPT_BYTES) > 0:
            self.left_out += more
            del self.written[_KEPT_BYTES:-_KEPT_BYTES]
        if self.left_out > _MOST_BYTES:
            self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended.set()
        self.lost.set()


def _end(transport: asyncio.SubprocessTransport) -> None:
    """End a command with all that it started; what left its group keeps no pipe to here."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), signal.SIGKILL)
    if pipe := transport.get_pipe_transport(1):
        pipe.close()
