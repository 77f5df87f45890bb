"""Tools of a command: what its model calls is run, and read by the model."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.cli.session import stream_answer
from app.cli.terminal import stderr, stdout
from app.engine.answerer import Answerer
from app.engine.reply import Reply, Request
from app.paths import Paths
from app.printable import one_line
from app.tools.mcp_servers import Servers
from app.tools.toolbox import (
    MOST_ROUNDS,
    OFF,
    Toolbox,
    before_calls,
    calls_in,
    chosen_names,
    is_allowed,
    result_of,
)
from backends.chat.chat_template import Prompt
from backends.chat.message import Message, ToolCall
from decoding.events import FinishReason

_LOOK_SECONDS = 0.1
"""Between two looks at a call, of which Ctrl-C comes through on each system."""


class Calling:
    """What a command's model calls. told: each call with its result.

    roots: the folders that our own tools read. allowed: as is_allowed has it, and added to by
    whoever answers. ask: what the model is told in place of a result, "" for a call that may be
    run; asked about what is not allowed.
    """

    def __init__(
        self, roots: Callable[[], Sequence[Path]], ask: Callable[[ToolCall], str], *, offline: bool
    ) -> None:
        self.chosen, self.allowed = OFF, ""
        self.told: list[dict[str, str]] = []
        self._ask = ask
        self._toolbox = Toolbox(Servers(Paths.of_this_user().servers, is_offline=offline), roots)
        self._rounds = 0

    @property
    def is_on(self) -> bool:
        return bool(chosen_names(self.chosen))

    def choose(self, tools: str, *, is_plain: bool) -> None:
        """Have the chosen tools offered. is_plain: whether an answer may be anything."""
        self.chosen = tools
        if self.is_on and not is_plain:
            self.chosen = OFF
            stderr.note("note: with --raw, --schema or --grammar the model calls no tools")

    def offered(self, request: Request) -> Request:
        """A question with the tools that are chosen, once their servers run or have failed."""
        if not self.is_on:
            return request
        self._rounds = 0
        stderr.status("starting tools")
        wait_for(*self._toolbox.start(self.chosen).values())
        stderr.clear_status()
        stderr.remarks(*(fault.summary for fault in self._toolbox.faults(self.chosen)))
        tools = self._toolbox.offered(self.chosen)
        shown = replace(request.options, shows_control=bool(tools))
        return replace(request, tools=tools, options=shown)

    def streamed(
        self, session: Answerer, reply: Reply, prompt: Prompt, *, says: bool
    ) -> Iterator[Reply]:
        """Stream a reply, and then those that its calls lead to; each is yielded before it is.

        says: whether they are printed, without their calls: with tools each when it is complete.

        Raises:
            ModelError: as stream_answer does.
            PromptTooLongError: results do not fit the context.
        """
        while True:
            yield reply
            stream_answer(session, prompt, reply, shown=says and not self.is_on)
            following = self._following(reply, prompt)
            if says and self.is_on:
                stdout.write(f"{before_calls(reply.text)}\n" if following else reply.text)
            if following is None:
                return
            reply = Reply(following)
            prompt, _ = session.prompt(following)

    def _following(self, reply: Reply, prompt: Prompt) -> Request | None:
        """What a reply's calls lead to, once they have results; None if it has none."""
        request = reply.request
        is_whole = reply.finish_reason is FinishReason.STOP and request.tools
        calls = calls_in(reply.text, prompt.form, request.tools) if is_whole else ()
        self._rounds += 1
        if self._rounds > MOST_ROUNDS and calls:
            stderr.note(f"note: {MOST_ROUNDS} answers in a row have called tools: it ends here")
        if not calls or self._rounds > MOST_ROUNDS:
            return None
        turns = [Message("assistant", before_calls(reply.text), calls)]
        turns += (Message("tool", self._result(call), answers=call.id) for call in calls)
        told = request.conversation
        return replace(request, conversation=replace(told, turns=[*told.turns, *turns]))

    def _result(self, call: ToolCall) -> str:
        stderr.note(f"{one_line(call.name)} {one_line(call.arguments)}")
        refusal = "" if is_allowed(call.name, self.allowed) else self._ask(call)
        future = None if refusal else self._toolbox.call(call.name, call.arguments, self.chosen)
        if future is not None:
            wait_for(future)
        text = refusal if future is None else result_of(future)[0]
        self.told.append({"name": call.name, "arguments": call.arguments, "result": text})
        return text

    def close(self) -> None:
        self._toolbox.close()


def wait_for(*futures: Future[Any]) -> None:
    while wait(futures, _LOOK_SECONDS).not_done:
        pass
