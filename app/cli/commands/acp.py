"""`specchat acp`: the chats of the app in an editor, by the Agent Client Protocol, version 1.

An editor starts it, and speaks JSON-RPC with it on standard input and output. Its sessions are
chats of the history, by their numbers: what was begun in an editor goes on in the app.
"""

import asyncio
import json
import logging
import math
import os
import stat
import sys
from base64 import b64decode
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import typer
from acp import PROTOCOL_VERSION, RequestError, run_agent, schema
from acp.helpers import (
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_available_commands,
    update_tool_call,
    update_user_message_text,
)
from acp.interfaces import Agent, Client
from acp.stdio import stdio_streams

from app.ahead.expected import Permission
from app.chat.attachments import Attachment, AttachmentKind, fenced
from app.chat.named_files import path_of, quoted, read_file
from app.chat.sources import sources_of, told
from app.cli import option_values, options
from app.cli.commands.serve import SWITCH_SECONDS
from app.cli.terminal import process
from app.cli.terminal.process import EXIT_DONE
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked, Libraries, folder_path, vectors_of
from app.dialogue.settings_editor import chosen_tools
from app.dialogue.tree import ASSISTANT, TOOL, USER, Turn, called, calls_after, path_to, sources_for
from app.documents.folders import is_folder
from app.engine.engine import Engine
from app.history import History, HistoryError
from app.history.records import Queued
from app.history.store import open_history
from app.loading.session_options import AUTO_DRAFT, OFF_DRAFT
from app.paths import Paths
from app.printable import one_line, printable
from app.serve.refusal import RefusedError
from app.serve.reply_reader import batches
from app.settings import catalogue
from app.settings.answering import ALLOWED, Answering
from app.settings.in_effect import settings_in_effect
from app.tools.events import Delta, ReasoningDelta, TextDelta
from app.tools.mcp_servers import Servers
from app.tools.reply_splitter import ReplySplitter
from app.tools.toolbox import MOST_ROUNDS, Toolbox, before_calls, for_server, is_allowed, result_of
from app.tui.chat.pending import PendingAnswer
from app.wording import SEPARATOR, counted, without_continuation
from backends.base import SpecchatError, UsageError
from backends.chat.message import whole_characters
from backends.chat.reply_form import split
from backends.chat.tools import as_object
from decoding.events import FinishReason
from models.stores.available_models import installed

_CLOSE_SECONDS = 0.8
"""How long the end waits for the engine."""

_SILENCE_SECONDS = 60.0
"""Between two looks at an answer of which nothing comes, as a prompt is read."""

_LONGEST_LINE = 50 << 20
"""Bytes of a message, as the protocol's library has it: files may stand in it."""

_FAILED, _NOT_FOUND = -32603, -32002
"""The protocol's codes of an internal error, and of a session that is not there."""

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.AvailableCommandsUpdate
    | schema.ToolCallStart
    | schema.ToolCallProgress
)
_Value = TypeVar("_Value")
_KINDS: Mapping[str, schema.ToolKind] = {
    "list_files": "read",
    "read_lines": "read",
    "search": "search",
}
Options = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]

_COMMANDS = {
    "again": ("Answer the last question once more, as another version", ""),
    "version": ("Show a version of the last answer", "its number"),
    "edit": ("Ask the last question otherwise, as another version", "the question"),
    "continue": ("Continue the last answer", ""),
    "folder": ("Answer with the files of a folder; off ends it", "the folder"),
    "tools": ("What the model may call: files, servers of mcp.json, or off", "their names"),
}


@options.with_options(*options.SESSION)
def acp(context: typer.Context) -> None:
    """Chat in an editor that speaks the Agent Client Protocol, such as Zed; it starts this.

    Its sessions are chats of the history, which the app opens too.
    """
    session_options = option_values.session_options(context)
    paths = Paths.of_this_user()
    values = settings_in_effect(paths).values
    engine = Engine(session_options, paths, may_read=Permission())
    if not all(map(_is_pipe, (sys.stdin, sys.stdout))):
        remedy = "Name `specchat acp` in your editor's settings: docs/use/serve.md shows how."
        raise UsageError("no editor is connected", "an editor starts this itself", remedy)
    history = open_history(paths)
    agent = EditorAgent(engine, history, Answering.of(values), str(values.get("system", "")))
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger().addHandler(logging.NullHandler())  # for what the protocol's library says
    engine.start()
    try:
        asyncio.run(_talk(agent))
    finally:
        agent.abandon()
        history.close()
        is_closed = engine.close(_CLOSE_SECONDS)
    if not is_closed:  # a pass that takes longer would delay the end of the interpreter
        process.leave(EXIT_DONE)


async def _talk(agent: "EditorAgent") -> None:
    lines = Lines(*await stdio_streams(limit=_LONGEST_LINE))
    await run_agent(cast("Agent", agent), lines)  # what the agent lacks is optional


class Lines:
    """Messages, a line each. What is none gets an error, and the connection goes on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        while line := await self._reader.readline():
            try:
                message: object = json.loads(line)
            except (ValueError, RecursionError):
                error = RequestError.parse_error()
            else:
                if isinstance(message, dict):
                    return cast("dict[str, Any]", message)
                error = RequestError.invalid_request()
            if line.strip():
                await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})
        return None

    async def close(self) -> None:
        self._writer.close()


def _is_pipe(stream: TextIO | None) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode if stream is not None else 0
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Chat:
    """A session: a chat, one question of which is answered at a time."""

    def __init__(
        self, session_id: str, dialogue: Dialogue, libraries: Libraries, servers: Servers
    ) -> None:
        self.id, self.dialogue = session_id, dialogue
        self.libraries = libraries
        self.servers, self.toolbox = servers, Toolbox(servers, self._roots)
        self.turn = asyncio.Lock()
        self.pending: PendingAnswer | None = None
        self.waits_for: asyncio.Future[Any] | None = None
        """What is neither an answer nor a question: the user's word, or a tool."""
        self.telling: asyncio.Task[None] | None = None

    @property
    def last_answer(self) -> Turn:
        turn = self.dialogue.turns[-1] if self.dialogue.turns else None
        if turn is None or turn.role != ASSISTANT:
            raise UsageError("there is no answer yet")
        return turn

    def _roots(self) -> list[Path]:
        return [Path(self.dialogue.folder)] if self.dialogue.folder else []

    async def ended(self, work: Awaitable[_Value]) -> "asyncio.Future[_Value]":
        """Work that has come to an end, which may be that the user cancelled it."""
        self.waits_for = future = asyncio.ensure_future(work)
        try:
            await asyncio.wait([future])
        finally:
            self.waits_for = None
            future.cancel()
        return future

    def stop(self) -> None:
        if self.pending is not None:
            self.pending.answer.stop()
        if self.waits_for is not None:
            self.waits_for.cancel()


class EditorAgent:
    """What an editor asks for. Used on one event loop; methods and errors as the protocol has them.

    defaults: settings of chats without their own. system: of new chats.
    """

    def __init__(
        self, engine: Engine, history: History, defaults: Answering, system: str = ""
    ) -> None:
        self._engine, self._history = engine, history
        self._defaults, self._system = defaults, system
        self._chats: dict[str, _Chat] = {}
        self._shown = 0
        """How many rows of figures were shown."""
        self._client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def _update(self, chat: _Chat, update: Update) -> None:
        await self._client.session_update(chat.id, update)

    def abandon(self) -> None:
        """Stop and save all answers: the editor has gone."""
        for chat in self._chats.values():
            chat.libraries.close()
            chat.stop()
            if chat.pending is not None:
                self._close(chat, chat.pending)
        for chat in self._chats.values():
            chat.toolbox.close()

    # Sessions

    async def initialize(self, protocol_version: int, **_meta: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True, image=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities()
                ),
            ),
            agent_info=schema.Implementation(
                name="specchat", title="specchat", version=metadata.version("specchat")
            ),
        )

    async def authenticate(self, method_id: str, **_meta: Any) -> None:
        del method_id  # nobody has to

    async def new_session(self, cwd: str, **_meta: Any) -> schema.NewSessionResponse:
        del cwd
        number = self._history.create(self._engine.options.model or "", self._system)
        chat = self._opened(str(number))
        chat.telling = asyncio.create_task(self._tell_commands(chat))  # after the reply
        return schema.NewSessionResponse(session_id=chat.id, config_options=self._options())

    async def load_session(self, session_id: str, **_meta: Any) -> schema.LoadSessionResponse:
        """Open a chat and tell the path shown; what waits there is asked with the next question."""
        chat = self._opened(session_id)
        await self._tell_commands(chat)
        for turn in chat.dialogue.turns:
            await self._tell(chat, turn)
        return schema.LoadSessionResponse(config_options=self._options())

    async def list_sessions(
        self, cwd: str | None = None, **_meta: Any
    ) -> schema.ListSessionsResponse:
        folder = cwd or str(Path.home())
        sessions = [
            schema.SessionInfo(
                session_id=str(chat.number),
                cwd=folder,
                title=chat.title,
                updated_at=datetime.fromtimestamp(chat.updated, UTC).isoformat(),
            )
            for chat in self._history.chats()
        ]
        return schema.ListSessionsResponse(sessions=sessions)

    def _opened(self, session_id: str) -> _Chat:
        dialogue = Dialogue(self._history, self._system)
        try:
            dialogue.open(int(session_id))
        except (ValueError, HistoryError) as error:
            raise _not_found(session_id) from error
        engine = self._engine
        vectors = vectors_of(engine.paths, lambda: not engine.is_answering)
        servers = Servers(engine.paths.servers, is_offline=engine.options.offline)
        chat = self._chats[session_id] = _Chat(
            session_id, dialogue, Libraries(engine.paths, vectors), servers
        )
        return chat

    async def _tell_commands(self, chat: _Chat) -> None:
        commands = [
            schema.AvailableCommand(
                name=name,
                description=about,
                input=schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint))
                if hint
                else None,
            )
            for name, (about, hint) in _COMMANDS.items()
        ]
        await self._update(chat, update_available_commands(commands))

    async def _tell(self, chat: _Chat, turn: Turn) -> None:
        if turn.role == USER:
            await self._update(chat, update_user_message_text(turn.text))
            return
        if turn.role == TOOL:
            await self._show_call(chat, turn)
            return
        parts = split(before_calls(turn.text) if calls_after(turn) else turn.text)
        if parts.thinking:
            update = update_agent_thought_text(parts.thinking)
            await self._update(chat, update)
        await self._update(chat, update_agent_message_text(parts.answer))
        await self._show_figures(chat, turn.ending)

    async def _show_figures(self, chat: _Chat, figures: str) -> None:
        """Show the line below an answer in a row of its own, which is no part of the answer."""
        if figures:
            title = without_continuation(figures)
            row = start_tool_call(self._row("figures"), title, kind="other", status="completed")
            await self._update(chat, row)

    def _row(self, what: str) -> str:
        self._shown += 1
        return f"{what}-{self._shown}"

    # Model and drafters, which all sessions share

    def _options(self) -> Options:
        loaded = self._engine.status.loaded
        model = loaded.name if loaded else self._engine.options.model or ""
        here = (one.name for one in installed(self._engine.paths.models))
        models = [*self._engine.remote_models] or [*here]
        return [
            _choice("model", "Model", model, models),
            _choice("draft", "Drafters", self._engine.draft, [AUTO_DRAFT, OFF_DRAFT]),
        ]

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_meta: Any
    ) -> schema.SetSessionConfigOptionResponse:
        del session_id
        if config_id == "model":
            self._engine.load(str(value))
        elif config_id == "draft":
            self._engine.set_draft(str(value))
        else:
            raise RequestError.invalid_params({"reason": f"no option {config_id!r}"})
        changed = self._options()
        for option in changed:
            if option.id == config_id and isinstance(option, schema.SessionConfigOptionSelect):
                option.current_value = str(value)
        return schema.SetSessionConfigOptionResponse(config_options=changed)

    # Answers

    async def prompt(
        self, prompt: Sequence[Block], session_id: str, **_meta: Any
    ) -> schema.PromptResponse:
        """Answer a question, after those of this chat that wait; or do what a command asks for."""
        chat = self._chats.get(session_id)
        if chat is None:
            raise _not_found(session_id)
        try:
            text, attachments = await asyncio.to_thread(_question, prompt)
            name, _, argument = text.removeprefix("/").partition(" ")
            if text.startswith("/") and name in _COMMANDS:
                async with chat.turn:
                    return await self._command(chat, name, argument.strip())
            chat.dialogue.enqueue(text, attachments)  # saved before anything else
            async with chat.turn:
                return await self._answer_queued(chat, text)
        except SpecchatError as error:
            raise _told(error.summary, error.remedy) from error

    async def cancel(self, session_id: str, **_meta: Any) -> None:
        """Stop the answer in progress; what waits behind it is asked next."""
        if (chat := self._chats.get(session_id)) is not None:
            chat.stop()

    async def _answer_queued(self, chat: _Chat, asked: str) -> schema.PromptResponse:
        """Answer what waits, up to a question; others, left by an earlier run, are told first."""
        response = schema.PromptResponse(stop_reason="end_turn")
        while (queued := chat.dialogue.next_queued()) is not None:
            if queued.text != asked:
                await self._update(chat, update_user_message_text(queued.text))
            found = await self._found(chat, queued, chat.dialogue.turns)
            question = chat.dialogue.add(USER, queued.text, found)
            answer = chat.dialogue.add(ASSISTANT, "")
            response = await self._answer(chat, answer, withdraws=question)
            if queued.text == asked:
                break
        return response

    async def _found(
        self, chat: _Chat, asked: Queued, turns: Sequence[Turn]
    ) -> tuple[Attachment, ...]:
        """What a question is sent along with; what is left out is told."""
        loaded = self._engine.status.loaded
        n_ctx = loaded.context_size if loaded is not None else None
        about = Asked(chat.dialogue, asked.text, asked.attachments, turns, n_ctx)
        found, told = await asyncio.to_thread(chat.libraries.found, about, math.inf)
        await self._show_figures(chat, SEPARATOR.join(told))
        return found

    async def _command(self, chat: _Chat, name: str, argument: str) -> schema.PromptResponse:
        dialogue, done = chat.dialogue, schema.PromptResponse(stop_reason="end_turn")
        if name == "folder":
            dialogue.set_folder("" if argument in ("", "off") else folder_path(argument))
            return done
        if name == "tools":
            present = self._defaults.changed(dialogue.own).tools
            chosen = chosen_tools(argument, present, chat.servers.names())
            chat.toolbox.retry(argument)
            dialogue.set_own({**dialogue.own, catalogue.TOOLS: chosen})
            return done
        if name == "continue" and dialogue.turns and dialogue.turns[-1].role == TOOL:
            return await self._run_calls(chat)
        answer = chat.last_answer
        if name == "version":
            versions = dialogue.versions(answer)
            if argument not in map(str, range(1, len(versions) + 1)):
                raise UsageError(f"the answer has {counted(len(versions), 'version')}")
            dialogue.show(versions[int(argument) - 1])
            await self._tell(chat, versions[int(argument) - 1])
            return done
        if name == "continue":
            return await self._answer(chat, answer)
        if name == "again":
            again = dialogue.add_version(answer, "")
            return await self._answer(chat, again, withdraws=again)
        question = _question_for(answer)
        if not argument:
            raise UsageError("/edit needs the new question")
        named = [one for one in question.attachments if f"@{quoted(one.name)}" in question.text]
        asked = Queued(argument, tuple(named))
        found = await self._found(chat, asked, path_to(question)[:-1])
        edited = dialogue.add_version(question, argument, found)
        return await self._answer(chat, dialogue.add(ASSISTANT, ""), withdraws=edited)

    async def _answer(
        self, chat: _Chat, turn: Turn, withdraws: Turn | None = None
    ) -> schema.PromptResponse:
        """Have a turn answered, and tell what comes once it is saved.

        withdraws: what leaves the chat if there is no answer, as the editor has it still.
        """
        answering = self._defaults.changed(chat.dialogue.own)
        starting = await chat.ended(self._start_tools(chat, answering.tools))
        pending = chat.pending = PendingAnswer.of(
            chat.dialogue,
            turn,
            answering,
            tools=chat.toolbox.offered(answering.tools),
            documents=chat.libraries.documents,
        )
        answer, fault = pending.answer, ""
        if starting.cancelled():
            answer.stop()
        try:
            await self._follow(chat, pending)
        except RefusedError as refused:
            fault = "" if answer.error is None and answer.is_stopped else refused.message
        finally:
            self._close(chat, pending)
        if not (pending.is_unbegun and (fault or answer.is_stopped)):
            asked = _question_for(turn)
            read, known = sources_of(asked.attachments).values(), frozenset(sources_for(turn))
            lines = told(read, turn.text, known, chat.libraries.searched(read))
            await self._show_figures(chat, SEPARATOR.join(lines))
            await self._show_figures(chat, turn.ending)
        elif withdraws is not None:
            chat.dialogue.withdraw(withdraws)
        if fault:
            raise _told(fault, answer.error.remedy if answer.error else "")
        reason: schema.StopReason = "cancelled" if answer.is_stopped else "end_turn"
        if answer.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT):
            reason = "max_tokens"
        if calls := pending.calls:
            chat.dialogue.add_calls(turn, calls)
            return await self._run_calls(chat)
        return schema.PromptResponse(stop_reason=reason)

    # Calls of tools

    async def _start_tools(self, chat: _Chat, chosen: str) -> None:
        """Have the servers that are chosen run, and tell which do not."""
        starting = map(asyncio.wrap_future, chat.toolbox.start(chosen).values())
        await asyncio.shield(asyncio.gather(*starting, return_exceptions=True))
        for fault in chat.toolbox.faults(chosen):
            await self._show_figures(chat, fault.summary)

    async def _run_calls(self, chat: _Chat) -> schema.PromptResponse:
        """Run the calls that an answer ends with, and go on answering; what is cancelled waits."""
        dialogue = chat.dialogue
        for call in dialogue.open_calls:
            if not await self._run_call(chat, call):
                return schema.PromptResponse(stop_reason="cancelled")
        if dialogue.rounds() >= MOST_ROUNDS:
            return schema.PromptResponse(stop_reason="max_turn_requests")
        turn = dialogue.add(ASSISTANT, "")
        return await self._answer(chat, turn, withdraws=turn)

    async def _run_call(self, chat: _Chat, call: Turn) -> bool:
        """Run a call if the user allows it; False if he cancels it."""
        name, arguments = called(call)
        row = await self._show_call(chat, call)
        is_wanted = await self._decided(chat, name, row)
        if is_wanted is None:
            return False
        if is_wanted:
            await self._update(chat, update_tool_call(row, status="in_progress"))
            chosen = self._defaults.changed(chat.dialogue.own).tools
            running = asyncio.wrap_future(chat.toolbox.call(name, arguments, chosen))
            result = result_of(cast("Any", await chat.ended(running)))
        else:
            result = "The user refused this call.", "refused"
        chat.dialogue.close_call(call, *result)
        await self._show_end(chat, row, call)
        return result[1] != "stopped"

    async def _decided(self, chat: _Chat, name: str, row: str) -> bool | None:
        """Whether a call may be run, by the user's word or an earlier one; None if he cancels."""
        allowed, server = str(chat.dialogue.own.get(ALLOWED, "")), for_server(name)
        if is_allowed(name, allowed):
            return True
        ways: dict[str, tuple[schema.PermissionOptionKind, str, str | None]] = {
            "once": ("allow_once", "Yes, once", ""),
            "tool": ("allow_always", f"Yes, {name} in this chat", name),
            "server": ("allow_always", f"Yes, {server} in this chat", server),
            "no": ("reject_once", "No", None),
        }
        options = [
            schema.PermissionOption(option_id=way, name=one_line(title), kind=kind)
            for way, (kind, title, _) in ways.items()
        ]
        asked = schema.ToolCallUpdate(tool_call_id=row, title=one_line(name), kind="other")
        answered = await chat.ended(self._client.request_permission(chat.id, asked, options))
        if answered.cancelled():
            return None
        if isinstance(answered.exception(), RequestError):  # it cannot ask
            return False
        outcome = answered.result().outcome
        if not isinstance(outcome, schema.AllowedOutcome):
            return None
        _, _, more = ways.get(outcome.option_id, ways["no"])
        if more:
            chat.dialogue.set_own({**chat.dialogue.own, ALLOWED: f"{allowed} {more}".strip()})
        return more is not None

    async def _show_call(self, chat: _Chat, call: Turn) -> str:
        """Show a call, with its result if it has one; the name of its row."""
        name, arguments = called(call)
        row = start_tool_call(
            self._row("call"),
            one_line(name),
            kind=_KINDS.get(name, "other"),
            status="pending",
            content=_contents_of(call),
            raw_input=as_object(arguments),
        )
        await self._update(chat, row)
        if call.text:
            await self._show_end(chat, row.tool_call_id, call)
        return row.tool_call_id

    async def _show_end(self, chat: _Chat, row: str, call: Turn) -> None:
        status: schema.ToolCallStatus = "failed" if call.ending else "completed"
        end = update_tool_call(row, status=status, content=_contents_of(call))
        await self._update(chat, end)

    async def _follow(self, chat: _Chat, pending: PendingAnswer) -> None:
        """Tell an answer as it grows, up to where it ends or is stopped."""
        answer, splitter, read = pending.answer, None, len(pending.turn.text)
        try:
            self._engine.begin(answer)
            async with aclosing(batches(self._engine, answer, None, _SILENCE_SECONDS)) as steps:
                async for _ in steps:
                    self._save(pending)
                    saved = pending.turn.text  # by now the engine may have written more
                    added, read = saved[read:], len(saved)
                    if added:
                        has_thinking = not answer.request.partial
                        splitter = splitter or ReplySplitter(
                            answer.form, answer.request.tools, has_thinking=has_thinking
                        )
                        await self._tell_parts(chat, splitter.feed(TextDelta(added)))
        finally:
            if splitter is not None:
                self._save(pending)
                await self._tell_parts(chat, splitter.feed(TextDelta(pending.turn.text[read:])))
                await self._tell_parts(chat, splitter.finish())

    async def _tell_parts(self, chat: _Chat, parts: Iterable[Delta]) -> None:
        for part in parts:
            if isinstance(part, ReasoningDelta):
                await self._update(chat, update_agent_thought_text(part.text))
            elif isinstance(part, TextDelta):
                await self._update(chat, update_agent_message_text(part.text))

    def _save(self, pending: PendingAnswer) -> None:
        pending.follow()
        pending.drop_oldest()
        pending.save()

    def _close(self, chat: _Chat, pending: PendingAnswer) -> None:
        pending.follow()
        if loaded := self._engine.status.loaded:
            chat.dialogue.set_model(loaded.name)
        pending.close()
        chat.pending = None


def _question_for(turn: Turn) -> Turn:
    """The question that leads to a turn, perhaps by calls; the turn itself if there is none."""
    return next((above for above in reversed(path_to(turn)) if above.role == USER), turn)


def _contents_of(call: Turn) -> list[Any]:
    """The arguments of a call, and its result if it has one, where nothing in them is markup."""
    arguments = as_object(called(call)[1])
    shown = json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else called(call)[1]
    texts = [text for text in (shown, call.text) if text.strip("{}")]
    return [tool_content(text_block(fenced(printable(text)))) for text in texts]


def _choice(
    name: str, title: str, current: str, others: Sequence[str]
) -> schema.SessionConfigOptionSelect:
    names = dict.fromkeys([current, *others] if current else others)
    choices = [schema.SessionConfigSelectOption(value=one, name=one) for one in names]
    return schema.SessionConfigOptionSelect(
        type="select", id=name, name=title, current_value=current, options=choices
    )


def _question(blocks: Sequence[Block]) -> tuple[str, tuple[Attachment, ...]]:
    """A question as it would be typed in the app: files are named in it, and attached.

    Raises:
        UsageError: it has something that is no text, or a file that cannot be read.
    """
    words: list[str] = []
    files: list[Attachment] = []
    for block in blocks:
        if isinstance(block, schema.TextContentBlock):
            words.append(block.text)
            continue
        if isinstance(block, schema.ResourceContentBlock):
            if is_folder(local := path_of(block.uri)):
                words.append(f"@{quoted(local.rstrip('/'))} ")
                continue
            files.append(read_file(local))
        elif isinstance(block, schema.EmbeddedResourceContentBlock):
            files.append(_embedded(block.resource))
        elif isinstance(block, schema.ImageContentBlock):
            files.append(_contents(path_of(block.uri or "image"), block.data))
        else:
            raise UsageError("only text and images can be read", f"this is {block.type}")
        words.append(f"@{quoted(files[-1].name)}")
    return whole_characters("".join(words)).strip(), tuple(files)


def _embedded(resource: schema.TextResourceContents | schema.BlobResourceContents) -> Attachment:
    name = whole_characters(path_of(resource.uri))
    if isinstance(resource, schema.TextResourceContents):
        return Attachment(AttachmentKind.FILE, name, whole_characters(resource.text))
    return _contents(name, resource.blob)


def _contents(name: str, encoded: str) -> Attachment:
    try:
        data = b64decode(encoded, validate=True)
    except ValueError as error:
        raise UsageError(f"{name} is not base64") from error
    return read_file(name, data)


def _not_found(session_id: str) -> RequestError:
    return RequestError(_NOT_FOUND, f"no chat {session_id}")


def _told(what: str, remedy: str = "") -> RequestError:
    """An error that the editor shows: its message is what it shows of it."""
    return RequestError(_FAILED, ". ".join(filter(None, [what, remedy])))
