"""What the model of a chat may call: tools of our own, and those of servers, as the user chose."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from app.tools import read_only
from app.tools.events import TextDelta, ToolArguments, ToolCallBegun
from app.tools.mcp_servers import Servers
from app.tools.reply_splitter import ReplySplitter
from backends.base import ToolError
from backends.chat.message import Tool, ToolCall
from backends.chat.reply_form import CALL_MARKS, ReplyForm, split
from backends.chat.tools import as_object

OFF, FILES = "off", "files"
"""Chosen for no tools, and for those of our own."""

MOST_ROUNDS = 20
"""Answers in a row that call tools."""

_OWN = {tool.name for tool in read_only.TOOLS}


def chosen_names(chosen: str) -> list[str]:
    """What a setting such as "files, github" turns on."""
    return [name for name in dict.fromkeys(chosen.replace(",", " ").split()) if name != OFF]


def calls_in(text: str, form: ReplyForm, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    splitter = ReplySplitter(form, tools)
    calls: list[ToolCall] = []
    for event in (*splitter.feed(TextDelta(text)), *splitter.finish()):
        if isinstance(event, ToolCallBegun):
            calls.append(ToolCall(event.id, event.name, ""))
        elif isinstance(event, ToolArguments):
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + event.text)
    return tuple(calls)


def before_calls(text: str) -> str:
    """What a reply that ends with calls says before them."""
    answer = split(text).answer
    if answer.lstrip().startswith(("{", "[", "```")):
        answer = ""
    ends = (answer.find(mark) for mark in CALL_MARKS)
    end = min((end for end in ends if end >= 0), default=len(answer))
    return text[: len(text) - len(split(text).answer)] + answer[:end].rstrip()


def is_allowed(name: str, allowed: str) -> bool:
    """Whether a call needs no approval: our own, and what the user allowed in this chat.

    allowed: names of tools, and servers' with .* after them, with blanks between.
    """
    return name in _OWN or bool({name, for_server(name)} & {*allowed.split()})


def for_server(name: str) -> str:
    """What allows all tools of the server that has one."""
    return f"{name.partition('.')[0]}.*"


class Toolbox:
    """roots: the folders that are attached to the chat."""

    def __init__(self, servers: Servers, roots: Callable[[], Sequence[Path]]) -> None:
        self._servers, self._roots = servers, roots
        self._pool = ThreadPoolExecutor(1, "tools")

    def start(self, chosen: str) -> dict[str, "Future[tuple[Tool, ...]]"]:
        """Start the servers that are chosen, unless they run."""
        names = (name for name in chosen_names(chosen) if name != FILES)
        return {name: self._servers.start(name) for name in names}

    def is_ready(self, chosen: str) -> bool:
        """Whether no server that is chosen is about to start."""
        return all(future.done() for future in self.start(chosen).values())

    def faults(self, chosen: str) -> list[ToolError]:
        errors = (one.exception() for one in self.start(chosen).values() if one.done())
        return [error for error in errors if isinstance(error, ToolError)]

    def retry(self, chosen: str) -> None:
        for name in chosen_names(chosen):
            self._servers.retry(name)

    def offered(self, chosen: str) -> tuple[Tool, ...]:
        """The tools that are chosen, without those of servers that do not run."""
        own = read_only.TOOLS if FILES in chosen_names(chosen) else ()
        running = (one for one in self.start(chosen).values() if one.done() and not one.exception())
        return (*own, *(tool for future in running for tool in future.result()))

    def call(self, name: str, arguments: str, chosen: str) -> "Future[str]":
        """The result of a call, whoever allowed it; the future has a ToolError if there is none."""
        parsed = as_object(arguments or "{}")
        failed: Future[str] = Future()
        if not any(tool.name == name for tool in self.offered(chosen)):
            failed.set_exception(ToolError(f"there is no tool {name}"))
        elif parsed is None:
            why = "its arguments are not a JSON object"
            failed.set_exception(ToolError(f"{name} cannot be called", why))
        elif name in _OWN:
            return self._pool.submit(read_only.run, name, parsed, self._roots())
        else:
            return self._servers.call(name, parsed)
        return failed

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._servers.close()


def result_of(future: "Future[str]") -> tuple[str, str]:
    """What the model is told of a call that has ended, and how it ended if it has no result."""
    if future.cancelled():
        return "The user stopped this call.", "stopped"
    error = future.exception()
    if error is not None:
        return f"Error: {error.summary if isinstance(error, ToolError) else error}", "failed"
    return future.result() or "(no result)", ""
