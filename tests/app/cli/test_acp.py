"""`specchat acp`: chats in an editor, asked for by a real client of the protocol."""

import asyncio
import json
import os
import signal
import socket
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

pytest.importorskip("acp")

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    connect_to_agent,
    run_agent,
    schema,
    spawn_agent_process,
    text_block,
)
from acp.helpers import (
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
)
from acp.interfaces import Agent, Client

from app.cli.commands.acp import EditorAgent, Lines
from app.engine.engine import Engine
from app.history.store import open_history
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.tools.toolbox import MOST_ROUNDS
from app.tui.chat.pending import PendingAnswer
from tests.app.conftest import PATIENCE_SECONDS, Specchat
from tests.fixtures import tool_servers
from tests.fixtures.caller import Caller, call
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.speaker import HERMES, Speaker
from tests.fixtures.tiny.projector import picture

Told = tuple[str, str]
"""Kind and text of an update."""

OTHER_PROGRAMS = Path(__file__).parents[2] / "fixtures" / "other_programs"


class Editor:
    """A client that keeps what it is told; whenever it is, `told` changes."""

    def __init__(self) -> None:
        self.updates: list[Told] = []
        self.changed = asyncio.Event()
        self.calls: list[Any] = []
        self.asked: list[Any] = []
        self.says: list[str] = []
        """Options that are taken when it is asked; "" cancels, "never" does not answer."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        said = getattr(update, "content", None)
        text = getattr(said, "text", "") or getattr(update, "title", "") or ""
        self.updates.append((update.session_update, text))
        if update.session_update.startswith("tool_call") and "figures" not in update.tool_call_id:
            self.calls.append(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        self.updates.append(("asked", ""))
        self.changed.set()
        said = self.says.pop(0)
        if said == "error":
            raise RequestError.method_not_found("session/request_permission")
        if said == "never":
            await asyncio.Event().wait()
        outcome = schema.AllowedOutcome(outcome="selected", option_id=said)
        assert not said or any(one.option_id == said for one in options)
        denied = schema.DeniedOutcome(outcome="cancelled")
        return schema.RequestPermissionResponse(outcome=outcome if said else denied)

    def shown(self) -> list[tuple[str, str]]:
        """Status of each call and its texts, as they changed; forgets them."""
        told = [
            (one.status, "\n".join(part.content.text for part in one.content or []))
            for one in self.calls
        ]
        self.calls.clear()
        return told

    def on_connect(self, conn: Agent) -> None: ...

    def take(self) -> list[Told]:
        """The updates since the last call; those of one kind that follow each other are one."""
        taken: list[Told] = []
        for kind, text in self.updates:
            if taken and taken[-1][0] == kind:
                taken[-1] = kind, taken[-1][1] + text
            else:
                taken.append((kind, text))
        self.updates.clear()
        return taken

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(kind == one for one, _ in self.updates):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def editing(home: Path, model: ScriptedModel) -> AsyncGenerator[tuple[Agent, Editor]]:
    """An editor that is connected with an agent whose model is scripted."""
    paths = Paths(home / "config", home / "data", home / "cache")
    history = open_history(paths)
    engine = Engine(SessionOptions(draft="off"), paths, opened(model))
    agent = EditorAgent(engine, history, Answering.of({"temperature": 0.0}))
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=far)
    running = asyncio.create_task(run_agent(cast("Agent", agent), Lines(reader, writer)))
    engine.start()
    editor = Editor()
    answers, asks = await asyncio.open_connection(sock=near)
    client = connect_to_agent(cast("Client", editor), asks, answers)
    try:
        await client.initialize(PROTOCOL_VERSION)
        yield cast("Agent", client), editor
    finally:
        await cast("Any", client).close()
        asks.close()
        await running
        writer.close()
        agent.abandon()
        assert engine.close(PATIENCE_SECONDS)
        history.close()


ECHO = call("probe.echo", '{"text": "hello"}')


@pytest.fixture
def calls(home: Path, tmp_path: Path) -> Path:
    """What a server was called with; mcp.json names it."""
    (home / "config").mkdir(parents=True)
    noted = tmp_path / "calls"
    broken = {"command": "/no/such/program"}
    servers = {"probe": tool_servers.quick(noted), "broken": broken}
    tool_servers.write(home / "config", servers)
    return noted


@pytest.fixture
def speaker() -> Speaker:
    model = Speaker(HERMES)
    model.say("Yes.")
    return model


async def begun(agent: Agent, editor: Editor) -> str:
    session = await agent.new_session(cwd="/", mcp_servers=[])
    assert editor.updates == []  # of a session that it does not know yet
    await editor.until("available_commands_update")
    editor.take()
    return session.session_id


def ask(agent: Agent, session: str, *blocks: Any) -> Any:
    told = [text_block(block) if isinstance(block, str) else block for block in blocks]
    return agent.prompt(prompt=told, session_id=session)


async def test_a_question_is_answered_with_its_figures_in_a_row_of_their_own(
    home: Path, speaker: Speaker
) -> None:
    async with editing(home, speaker) as (agent, editor):
        session = await begun(agent, editor)
        ended = await ask(agent, session, "Is it?")
        (_, answer), (kind, figures) = editor.take()
    assert ended.stop_reason == "end_turn"
    assert answer == "Yes."
    assert kind == "tool_call"
    assert "tok/s" in figures


async def test_what_the_model_thinks_is_told_apart(home: Path, speaker: Speaker) -> None:
    speaker.say("<think>Hm.</think>Yes.")
    async with editing(home, speaker) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "Is it?")
        live = editor.take()
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[])
        again = editor.take()
    said = [("agent_thought_chunk", "Hm."), ("agent_message_chunk", "Yes.")]
    assert live[:2] == said
    assert again[1:4] == [("user_message_chunk", "Is it?"), *said]


async def test_versions_are_those_of_the_app(home: Path, speaker: Speaker) -> None:
    async with editing(home, speaker) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "Is it?")
        speaker.say("No.")
        await ask(agent, session, "/again")
        editor.take()
        await ask(agent, session, "/version 1")
        assert ("agent_message_chunk", "Yes.") in editor.take()
        speaker.say("Never.")
        await ask(agent, session, "/edit Will it be?")
        with pytest.raises(RequestError, match="the answer has 1 version"):
            await ask(agent, session, "/version 2")
    history = open_history(Paths(home / "config", home / "data", home / "cache"))
    texts = [message.text for message in history.messages(int(session))]
    shown = [message.text for message in history.path(int(session))]
    history.close()
    assert texts == ["Is it?", "Yes.", "No.", "Will it be?", "Never."]
    assert shown == ["Will it be?", "Never."]


async def test_what_is_stopped_stays_and_what_waits_is_asked_next(home: Path) -> None:
    gate = Event()
    model = ScriptedModel([*"It goes on and on"], gate=gate, holds_at=5)
    async with editing(home, model) as (agent, editor):
        session = await begun(agent, editor)
        first = asyncio.ensure_future(ask(agent, session, "How long?"))
        await editor.until("agent_message_chunk")
        second = asyncio.ensure_future(ask(agent, session, "And then?"))
        await agent.list_sessions()  # the second has arrived: what is sent is read in order
        await agent.cancel(session_id=session)
        await agent.list_sessions()
        gate.set()
        assert (await first).stop_reason == "cancelled"
        assert (await second).stop_reason == "end_turn"
        told = editor.take()
        editor.updates.clear()
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[])
        again = editor.take()
    answers = [text for kind, text in told if kind == "agent_message_chunk"]
    assert "It goes on and on".startswith(answers[0])
    assert answers[1] == "It goes on and on"
    said = [text for kind, text in again if kind.endswith("message_chunk")]
    assert said == ["How long?", answers[0], "And then?", answers[1]]


async def test_files_are_attached_and_what_is_no_text_is_refused(
    home: Path, speaker: Speaker, tmp_path: Path
) -> None:
    file = tmp_path / "a file.txt"
    file.write_text("its text")
    linked = resource_link_block("a file.txt", file.as_uri())
    held = resource_block(embedded_text_resource("file:///b.py", "print(1)"))
    pdf = b64encode((OTHER_PROGRAMS / "frogs.pdf").read_bytes()).decode()
    blob = resource_block(embedded_blob_resource("file:///c.pdf", pdf))
    async with editing(home, speaker) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "Compare ", linked, " and ", held, " and ", blob)
        assert "a file.txt:\n```\nits text" in speaker.prompts[-1]
        assert "b.py:\n```\nprint(1)" in speaker.prompts[-1]
        assert "c.pdf:\n```\nFrogs" in speaker.prompts[-1]
        for refused, why in (
            (image_block("AA==", "image/png"), "image is not text"),
            (image_block(b64encode(picture(1)).decode(), "image/png"), "sees no images"),
            (resource_block(embedded_blob_resource("file:///d", "?")), "d is not base64"),
            (resource_block(embedded_blob_resource("file:///d", "AAAA")), "d is not text"),
            (resource_link_block("gone", (tmp_path / "gone").as_uri()), "no file"),
        ):
            with pytest.raises(RequestError, match=why):
                await ask(agent, session, "What is it? ", refused)
        sessions = (await agent.list_sessions()).sessions
    assert [one.session_id for one in sessions] == [session]


async def test_a_folder_is_linked_or_belongs_to_the_chat(
    home: Path, speaker: Speaker, tmp_path: Path
) -> None:
    folder = tmp_path / "my notes"
    folder.mkdir()
    (folder / "a.md").write_text("The dog is called Rex.")
    linked = resource_link_block("my notes", f"{folder.as_uri()}/")
    async with editing(home, speaker) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "Who is in ", linked)
        assert "a.md:\n```\nThe dog is called Rex." in speaker.prompts[-1]
        other = (await agent.new_session(cwd="/", mcp_servers=[])).session_id
        await ask(agent, other, f"/folder {folder}")
        await ask(agent, other, "Who is it?")
        assert "The dog is called Rex." in speaker.prompts[-1]
        await ask(agent, other, "/edit Who is she?")
        assert speaker.prompts[-1].count("The dog is called Rex.") == 1
        with pytest.raises(RequestError, match="no folder nowhere"):
            await ask(agent, other, "/folder nowhere")


async def test_own_tools_are_rows_of_the_protocol_and_ask_nobody(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "plan.md").write_text("Buy green tea.\n```\n![](http://x.org/?tea)\n")
    read = call("read_lines", '{"path": "notes/plan.md"}')
    async with editing(home, Caller(f"Let me look.\n{read}", "Green tea.")) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, f"/folder {tmp_path / 'notes'}")
        await ask(agent, session, "/tools files")
        with pytest.raises(RequestError, match="no tools 'nobodys'"):
            await ask(agent, session, "/tools nobodys")
        ended = await ask(agent, session, "What did I want?")
        assert ended.stop_reason == "end_turn"
        said = "".join(text for kind, text in editor.updates if kind == "agent_message_chunk")
        assert said == "Let me look.Green tea."
        first = editor.calls[0]
        assert (first.title, first.kind) == ("read_lines", "read")
        assert first.raw_input == {"path": "notes/plan.md"}
        assert len({one.tool_call_id for one in editor.calls}) == 1
        live = editor.shown()
        assert [status for status, _ in live] == ["pending", "in_progress", "completed"]
        assert live[0][1] == '```\n{\n  "path": "notes/plan.md"\n}\n```'
        assert "\n````\nnotes/plan.md, lines 1 to 3 of 3:\nBuy green tea.\n```\n![" in live[2][1]
        editor.updates.clear()
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[])
        assert editor.shown() == [("pending", live[2][1]), live[2]]
        again = "".join(text for kind, text in editor.updates if kind == "agent_message_chunk")
        assert again == said
        assert not editor.asked


@pytest.mark.parametrize(
    ("says", "runs", "asks"),
    [
        ("once", 2, 2),
        pytest.param("tool", 2, 1, marks=pytest.mark.slow),
        ("server", 2, 1),
        ("no", 0, 2),
        pytest.param("error", 0, 2, marks=pytest.mark.slow),
    ],
)
async def test_a_call_of_a_server_runs_only_with_the_users_permission(
    home: Path, calls: Path, says: str, runs: int, asks: int
) -> None:
    model = Caller(ECHO, "Done.")
    async with editing(home, model) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "/tools probe, broken")
        editor.says = [says, says]
        await ask(agent, session, "Say hello")
        assert any("broken" in text for _, text in editor.updates)  # and the chat goes on
        assert (editor.asked[0].title, editor.calls[0].raw_input) == (
            "probe.echo", {"text": "hello"},
        )  # fmt: skip
        statuses = [status for status, _ in editor.shown()]
        run = ["in_progress", "completed"] if runs else ["failed"]
        assert statuses == ["pending", *run]
        result = "hello" if runs else "The user refused this call."
        assert f"<|im_start|>tool\n{result}<|im_end|>" in model.asked[-1]
        await ask(agent, session, "Again")
        assert len(editor.asked) == asks
    assert calls.read_text().count("echo") == runs


@pytest.mark.parametrize("says", ["", "never"])
async def test_a_call_that_is_cancelled_waits_and_can_be_continued(
    home: Path, calls: Path, says: str
) -> None:
    async with editing(home, Caller(ECHO, "Done.")) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "/tools probe")
        editor.says = [says, "once"]
        asked = asyncio.ensure_future(ask(agent, session, "Say hello"))
        await editor.until("asked")
        if says == "never":
            await agent.cancel(session_id=session)
        assert (await asked).stop_reason == "cancelled"
        assert "echo" not in calls.read_text()
        editor.take()
        assert (await ask(agent, session, "/continue")).stop_reason == "end_turn"
        assert calls.read_text().count("echo") == 1
        assert ("agent_message_chunk", "Done.") in editor.take()


@pytest.mark.slow
async def test_calls_without_an_end_end(home: Path, tmp_path: Path) -> None:
    async with editing(home, Caller(call("list_files"))) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "/tools files")
        ended = await ask(agent, session, "What is there?")
        assert ended.stop_reason == "max_turn_requests"
        assert len(editor.shown()) == 3 * MOST_ROUNDS
        with pytest.raises(RequestError, match="there is no answer"):
            await ask(agent, session, "/again")


async def test_an_error_of_the_engine_is_told_and_the_text_before_it_stays(home: Path) -> None:
    async with editing(home, ScriptedModel([*"It breaks"], fails_at=4)) as (agent, editor):
        session = await begun(agent, editor)
        with pytest.raises(RequestError, match="the engine failed"):
            await ask(agent, session, "Go on?")
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[])
        assert ("agent_message_chunk", "It b") in editor.take()
        with pytest.raises(RequestError, match="no chat 77"):
            await agent.load_session(cwd="/", session_id="77", mcp_servers=[])


async def test_what_is_no_message_gets_an_error_and_ends_nothing() -> None:
    near, far = socket.socketpair()
    lines = Lines(*await asyncio.open_connection(sock=far))
    said, asks = await asyncio.open_connection(sock=near)
    asks.write(b'garbage\n42\n\n[1]\n{"id": 1}\n')
    assert await lines.receive() == {"id": 1}
    codes = [json.loads(await said.readline())["error"]["code"] for _ in range(3)]
    assert codes == [-32700, -32600, -32600]
    asks.close()
    assert await lines.receive() is None
    await lines.close()


def test_without_an_editor_it_says_who_starts_it(specchat: Specchat) -> None:
    ended = specchat("acp")
    assert ended.returncode == 2
    assert "no editor is connected" in ended.stderr


async def test_nothing_is_told_before_it_is_saved(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, save = Event(), PendingAnswer.save
    saved: list[str] = []

    def saved_while_more_is_written(pending: PendingAnswer) -> None:
        save(pending)
        if pending.turn.text:
            saved.append(pending.turn.text)
            rest.set()
            assert pending.answer.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(PendingAnswer, "save", saved_while_more_is_written)
    model = ScriptedModel([*"abcdef"], gate=rest, holds_at=1)
    async with editing(home, model) as (agent, editor):
        session = await begun(agent, editor)
        await ask(agent, session, "Go on?")
        told = [text for kind, text in editor.updates if kind == "agent_message_chunk"]
    assert "".join(told) == "abcdef"
    assert told[0] == saved[0] != "abcdef"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")
async def test_what_was_told_is_kept_when_the_editor_kills_it(home: Path, llamacpp: object) -> None:
    editor = Editor()
    command = [sys.executable, "-m", "specchat", "acp", "--model", "demo", "--draft", "lookup"]
    async with spawn_agent_process(cast("Client", editor), *command, env=dict(os.environ)) as (
        agent,
        process,
    ):
        await agent.initialize(PROTOCOL_VERSION)
        session = (await agent.new_session(cwd="/", mcp_servers=[])).session_id
        asked = asyncio.ensure_future(ask(agent, session, "Write a long story."))
        await editor.until("agent_message_chunk")
        process.send_signal(signal.SIGKILL)
        await process.wait()
        asked.cancel()
    told = "".join(text for kind, text in editor.updates if kind == "agent_message_chunk")
    history = open_history(Paths.of_this_user())
    question, answer = history.messages(int(session))
    history.close()
    assert question.text == "Write a long story."
    assert told
    assert answer.text.startswith(told)
