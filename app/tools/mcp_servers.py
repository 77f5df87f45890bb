"""Servers of the Model Context Protocol, as mcp.json of the settings folder names them.

They run in an event loop of their own, on a thread that starts with the first of them. The client
tells a server nothing but the calls that it is given: no roots, no samples of the model.
"""

import asyncio
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from app.printable import one_line
from app.tools.read_only import MOST_CHARACTERS
from backends.base import SpecchatError, ToolError, UsageError
from backends.base.safe_files import read_bounded
from backends.chat.message import Tool, whole_characters

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import ContentBlock

_Value = TypeVar("_Value")

_MOST_BYTES = 1 << 20
_MOST_TOOLS, _MOST_PAGES, _MOST_NAME, _MOST_DESCRIPTION, _MOST_WHY = 128, 20, 100, 1_000, 300
_NAME = re.compile("[A-Za-z0-9_-]{1,40}")
_CLOSE_SECONDS = 8.0
"""The client gives a server six to end."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is reached: by a command with its arguments and variables, or at a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def configured(file: Path) -> dict[str, Server]:
    """Servers by name; none if there is no file.

    Raises:
        UsageError: it cannot be used, with why.
    """
    try:
        parsed: object = json.loads(read_bounded(file, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        why = "" if isinstance(error, OSError) else "it is no JSON: "
        raise UsageError(f"{file} cannot be used", f"{why}{error}") from error
    try:
        rows = cast("dict[str, dict[str, Any]]", cast("Any", parsed)["mcpServers"])
        if not all(map(_NAME.fullmatch, rows)):  # with a dot it would be a tool's
            raise ValueError
        return {name: _server(row) for name, row in rows.items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        form = 'its form is {"mcpServers": {NAME: {"command": …, "args": […]} or {"url": …}}}'
        form += ", where names have letters, digits, _ and -, and others are texts"
        raise UsageError(f"{file} cannot be used", form) from error


def _server(row: dict[str, Any]) -> Server:
    command, url = row.get("command", ""), row.get("url", "")
    args, env, headers = tuple(row.get("args", ())), row.get("env", {}), row.get("headers", {})
    texts = (command, url, *args, *env.keys(), *env.values(), *headers.keys(), *headers.values())
    if not all(isinstance(one, str) for one in texts) or bool(command) == bool(url):
        raise ValueError
    return Server(command, args, env, url, headers)


@dataclass(slots=True)
class _Running:
    """A server that was started. tools: ours by name, with the name that the server gave."""

    ready: "Future[tuple[Tool, ...]]"
    ends: asyncio.Event
    client: "Client | None" = None
    tools: dict[str, str] = field(default_factory=dict[str, str])


class Servers:
    """Started as they are needed; any thread may call all methods, and only close waits.

    connect_seconds: the longest start; programs may be downloaded first. call_seconds: the longest
    call.
    """

    def __init__(
        self,
        file: Path,
        *,
        is_offline: bool = False,
        connect_seconds: float = 60.0,
        call_seconds: float = 120.0,
    ) -> None:
        self._file, self._is_offline = file, is_offline
        self._connect_seconds, self._call_seconds = connect_seconds, call_seconds
        self._lock = Lock()
        self._running: dict[str, _Running] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def names(self) -> list[str]:
        return sorted(configured(self._file))

    def start(self, name: str) -> "Future[tuple[Tool, ...]]":
        """The tools of a server, which is started unless it runs; one that failed stays so.

        The future has a ToolError if it cannot be used.
        """
        with self._lock:
            if name not in self._running:
                ready: Future[tuple[Tool, ...]] = Future()
                running = self._running[name] = _Running(ready, asyncio.Event())
                self._submit(self._run(name, running))
            return self._running[name].ready

    def retry(self, name: str) -> None:
        with self._lock:
            running = self._running.get(name)
            if running is not None and running.ready.done() and running.ready.exception():
                del self._running[name]

    def call(self, name: str, arguments: Mapping[str, object]) -> "Future[str]":
        """The result of a tool, of at most MOST_CHARACTERS.

        name: as that of our Tool. The future has a ToolError if there is none.
        """
        return self._submit(self._call(name, arguments))

    def close(self) -> None:
        """End all servers; one that does not is left to the system."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            running, self._running = list(self._running.values()), {}
        if loop is None or thread is None:
            return

        async def end() -> None:
            for one in running:
                one.ends.set()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=_CLOSE_SECONDS)
            loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(_CLOSE_SECONDS + 1.0)

    def _submit(self, work: "Coroutine[Any, Any, _Value]") -> "Future[_Value]":
        if self._loop is None:
            logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it would write on the screen
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=_run, args=(self._loop,), name="mcp", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _run(self, name: str, running: _Running) -> None:
        """Connect, and hold the connection until it is to end."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
            try:
                async with asyncio.timeout(self._connect_seconds) as limit:
                    async with self._client(name, told) as client:
                        tools = await _tools(name, client)
                        limit.reschedule(None)
                        running.client, running.tools = (
                            client,
                            {tool.name: told_name for tool, told_name in tools},
                        )
                        running.ready.set_result(tuple(tool for tool, _ in tools))
                        await running.ends.wait()
            except BaseException as error:
                if not running.ready.done():
                    why = _why(error, self._connect_seconds) + _last_line(told)
                    running.ready.set_exception(ToolError(f"{name} cannot be started", why))
                if not isinstance(error, Exception):
                    raise

    @asynccontextmanager
    async def _client(self, name: str, told: IO[str]) -> "AsyncGenerator[Client, None]":
        server = configured(self._file).get(name)
        if server is None:
            raise UsageError(f"{self._file} names no server {name}")
        try:
            from mcp import Client
            from mcp.client.stdio import StdioServerParameters, stdio_client
            from mcp.client.streamable_http import streamable_http_client
            from mcp.shared._httpx_utils import create_mcp_http_client
        except ImportError as error:
            raise UsageError("it needs the package mcp", "pip install specchat[mcp]") from error
        async with AsyncExitStack() as stack:
            if server.url:
                if self._is_offline and urlsplit(server.url).hostname not in _LOOPBACK:
                    raise UsageError("specchat is offline")
                http = create_mcp_http_client(headers=dict(server.headers))
                await stack.enter_async_context(http)
                transport = streamable_http_client(server.url, http_client=http)
            else:
                started = StdioServerParameters(
                    command=server.command, args=list(server.args), env=dict(server.env)
                )
                transport = stdio_client(started, errlog=cast("Any", told))
            yield await stack.enter_async_context(Client(transport, cache=None))

    async def _call(self, name: str, arguments: Mapping[str, object]) -> str:
        found = (one for one in self._running.items() if name in one[1].tools)
        server, running = next(found, ("", None))
        if running is None or running.client is None:
            raise ToolError(f"{name} cannot be called", "its server is not running")
        try:
            async with asyncio.timeout(self._call_seconds):
                result = await running.client.call_tool(running.tools[name], dict(arguments))
        except Exception as error:
            if _is_gone(error):
                running.ends.set()
                with self._lock:
                    self._running.pop(server, None)
            raise ToolError(f"{name} failed", _why(error, self._call_seconds)) from error
        text = "\n".join(map(_told, result.content))
        if not text and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        if result.is_error:
            raise ToolError(f"{name} failed", text[:MOST_CHARACTERS])
        more = len(text) - MOST_CHARACTERS
        cut = f"{text[:MOST_CHARACTERS]}\n({more:,} more characters)" if more > 0 else text
        return whole_characters(cut)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _tools(server: str, client: "Client") -> list[tuple[Tool, str]]:
    """What a server offers, under names that say whose it is, with its own names."""
    found: dict[str, tuple[Tool, str]] = {}
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for one in page.tools:
            name = "".join(c if c.isalnum() or c in "_.-" else "_" for c in f"{server}.{one.name}")
            schema = json.dumps(one.input_schema, ensure_ascii=False)
            about = (one.description or "")[:_MOST_DESCRIPTION]
            found.setdefault(name[:_MOST_NAME], (Tool(name[:_MOST_NAME], about, schema), one.name))
        cursor = page.next_cursor
        if not cursor or len(found) >= _MOST_TOOLS:
            break
    return list(found.values())[:_MOST_TOOLS]


def _told(block: "ContentBlock") -> str:
    """A part of a result in words: pictures and sounds are named."""
    if block.type == "text":
        return block.text
    if block.type == "resource":
        return getattr(block.resource, "text", None) or f"[{block.resource.uri}]"
    return f"[{block.uri}]" if block.type == "resource_link" else f"[{block.mime_type}]"


def _is_gone(error: BaseException) -> bool:
    """Whether a server will answer no more calls."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return error.code == CONNECTION_CLOSED
    return not isinstance(error, TimeoutError)


def _why(error: BaseException, seconds: float) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {seconds:g} s"
    if isinstance(error, SpecchatError):
        return error.summary
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {one_line(str(error.filename))}"
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    return one_line(text)[:_MOST_WHY]


def _last_line(told: IO[str]) -> str:
    """What a server wrote last to its standard error, such as why it ended."""
    with suppress(OSError, ValueError):
        told.seek(max(0, told.seek(0, os.SEEK_END) - _MOST_WHY))
        lines = told.read(_MOST_WHY).strip().splitlines()
        return f" ({one_line(lines[-1])})" if lines else ""
    return ""
