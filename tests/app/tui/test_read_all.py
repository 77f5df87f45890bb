"""/read all in the app: part by part, stopped or killed at any of them, and gone on with."""

import re
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.read_all import is_of_reading
from app.chat.sources import sources_of
from app.dialogue.tree import ASSISTANT, Turn
from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from app.tui.chat.reading import Reading
from app.tui.screens.passage import PassageScreen
from tests.app.tui.conftest import Chat, Chatting, start
from tests.fixtures.heard import hurry
from tests.fixtures.scripted import ScriptedModel

if TYPE_CHECKING:
    from app.tui.chat.view import ChatView

QUESTION = "How many boats are there?"
NOTE = ["two ", "boats ", "here"]
BOATS = Attachment(AttachmentKind.FILE, "boats.md", "a boat\n" * 550)
PARTS = 4


class FromPart(Event):
    """Holds passes from a part on, until it is set."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self._part = part
        self.view: ChatView | None = None

    def wait(self, timeout: float | None = None) -> bool:
        while (
            self.view is not None
            and self.view.reading is not None
            and self.view.reading.number >= self._part
            and not super().wait(0.01)
        ):
            pass
        return True


def scripted(gate: Event | None = None, holds_at: int = 0) -> ScriptedModel:
    return ScriptedModel(NOTE, n_ctx=2048, gate=gate, holds_at=holds_at)


async def asked(chat: Chat, attachment: Attachment = BOATS) -> Turn:
    """A question whose answer read little of what is attached."""
    await chat.ready()
    dialogue = chat.view.dialogue
    question = dialogue.add("user", QUESTION, (attachment,))
    answer = dialogue.add(ASSISTANT, "One.")
    answer.ending = "1 token"
    dialogue.save(answer)
    await chat.view.show_turn(answer)
    return question


async def begin(chat: Chat) -> None:
    await chat.say("/read all")
    await chat.until(lambda: chat.view.reading is not None)


async def end(chat: Chat) -> None:
    await chat.until(lambda: chat.view.reading is None and chat.view.is_idle)


def reading_of(chat: Chat) -> Reading:
    assert chat.view.reading is not None
    return chat.view.reading


def check_complete(chat: Chat, question: Turn) -> None:
    """Check that every part has its note, and that the answer was written from them."""
    dialogue = chat.view.dialogue
    before, parts, final = dialogue.versions(question)
    assert before.shown is not None
    assert before.shown.text == "One."
    complete = [
        one.ending.split(" · ")[0] for one in parts.children if one.ending.startswith("part")
    ]
    assert complete == [f"part {number} of {PARTS}" for number in range(1, PARTS + 1)]
    names = [one.name for one in final.attachments]
    assert names == [f"notes on part {number} of {PARTS}" for number in range(1, PARTS + 1)]
    assert all(one.text.endswith("two boats here") for one in final.attachments)
    assert [one.text for one in dialogue.turns] == [QUESTION, "two boats here"]
    assert dialogue.turns[0] is final
    assert final.text == QUESTION


async def test_every_part_is_noted_and_the_answer_is_from_the_notes(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(scripted(gate), toasts=True, reads_ahead=False) as chat:
        question = await asked(chat)
        await begin(chat)
        assert f"{PARTS} parts to read, " in chat.toasts
        assert "Esc stops" in chat.toasts
        await chat.until(f"part 1 of {PARTS}")
        gate.set()
        await end(chat)
        check_complete(chat, question)
        await chat.until("notes on part 3 of 4")
        await chat.say("/read all")  # the notes are there, and so is the answer
        await chat.until(lambda: "All of it was read" in chat.toasts)
        assert len(chat.view.dialogue.versions(question)) == 3
        await chat.press("ctrl+z", "ctrl+z")
        assert chat.view.dialogue.turns[-1].text == "One."


@pytest.mark.parametrize(
    "stopped", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))]
)
async def test_esc_stops_at_any_part_and_what_is_noted_stays(
    chatting: Chatting, stopped: int
) -> None:
    gate = FromPart(stopped)
    async with chatting(scripted(gate), toasts=True, reads_ahead=False) as chat:
        gate.view = chat.view
        question = await asked(chat)
        await begin(chat)
        await chat.until(lambda: reading_of(chat).number == stopped)
        await chat.say("/read all")
        assert "an answer is in progress · Esc stops it" in chat.prompt.fault
        chat.prompt.text = ""
        chat.view.stop()
        gate.set()
        await end(chat)
        told = f"Stopped at part {stopped} of {PARTS}. /read all goes on there."
        await chat.until(lambda: told in chat.toasts)
        notes = chat.view.dialogue.versions(question)[-1].children if stopped > 1 else []
        assert len([one for one in notes if one.ending.startswith("part")]) == stopped - 1
        assert not chat.prompt.text
        await chat.say("/read all")
        await chat.until(lambda: len(chat.view.dialogue.versions(question)) == 3)
        await end(chat)
        check_complete(chat, question)


async def test_a_partial_note_stays_too(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(scripted(gate, holds_at=2), reads_ahead=False) as chat:
        question = await asked(chat)
        await begin(chat)
        await chat.until("two boats")
        await chat.press("escape")
        gate.set()
        await end(chat)
        parts = chat.view.dialogue.versions(question)[-1]
        (partial,) = parts.children
        assert partial.text.startswith("two boats")
        assert "stopped after" in partial.ending
        await chat.say("/read all")
        await chat.until(lambda: len(chat.view.dialogue.versions(question)) == 3)
        await end(chat)
        check_complete(chat, question)
        assert partial in parts.children


@pytest.mark.slow
async def test_a_killed_app_goes_on_after_the_notes_that_were_saved(chatting: Chatting) -> None:
    gate = FromPart(3)
    async with chatting(scripted(gate, holds_at=1), reads_ahead=False) as chat:
        gate.view = chat.view
        question = await asked(chat)
        await begin(chat)
        await chat.until(lambda: reading_of(chat).number == 3)
        await chat.until(lambda: bool(chat.view.dialogue.turns[-1].text))
        assert chat.view.pending is not None
        saved = chat.view.dialogue.history
        assert saved is not None
        assert chat.view.dialogue.chat is not None
        rows = saved.messages(chat.view.dialogue.chat)  # what a kill leaves at this moment
        assert [row.ending[:11] for row in rows if row.text == "two boats here"] == [
            "part 1 of 4",
            "part 2 of 4",
        ]
        assert rows[-1].text.startswith("two")
        assert rows[-1].ending == ""
        chat.view.pending.answer.stop()
        chat.view.growing.clear()  # nothing more is saved
        chat.view.reading = None
    async with chatting(scripted(), continues=True, reads_ahead=False) as chat:
        await chat.ready()
        await chat.until(lambda: bool(chat.view.dialogue.turns))
        assert (
            chat.view.dialogue.turns[-1].is_growing or chat.view.dialogue.turns[-1].is_interrupted
        )
        (question, *_) = chat.view.dialogue.versions(chat.view.dialogue.turns[0])
        await chat.say("/read all")
        await chat.until(lambda: len(chat.view.dialogue.versions(question)) == 3)
        await end(chat)
        check_complete(chat, question)


@pytest.mark.slow
async def test_notes_that_do_not_fit_are_read_in_parts_again(chatting: Chatting) -> None:
    script = [f"boat{number} " for number in range(30)]
    boats = Attachment(AttachmentKind.FILE, "boats.md", "a boat\n" * 3000)
    async with chatting(ScriptedModel(script, n_ctx=2048), reads_ahead=False) as chat:
        question = await asked(chat, boats)
        await chat.say("/read all")
        await chat.until(lambda: len(chat.view.dialogue.versions(question)) > 1)
        await end(chat)
        versions = chat.view.dialogue.versions(question)
        assert len(versions) >= 4
        outlines = [one.attachments[0].name for one in versions[1:-1]]
        assert all(name.endswith("parts of what is read") for name in outlines)
        counts = [int(name.partition(" ")[0]) for name in outlines]
        assert counts == sorted(counts, reverse=True)
        assert len(versions[-1].attachments) == counts[-1]
        assert chat.view.dialogue.turns[-1].text.startswith("boat0 ")


async def test_a_question_about_all_says_that_only_passages_were_read(chatting: Chatting) -> None:
    passage = Attachment(AttachmentKind.PASSAGE, "[1] boats.md, lines 1 to 2", "a boat\n")
    async with chatting(scripted()) as chat:
        await chat.ready()
        await chat.view.send(QUESTION, (passage,))
        await chat.until("only 1 passage was read · /read all")
        await chat.view.send("Which one leaks?", (passage,))
        await chat.until("1 passage of 1 file")


async def test_where_nothing_fits_that_is_said_beside_the_answer(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("piers.md").write_text("A boat lies at the pier. " * 400)
    model = ScriptedModel(NOTE, n_ctx=512)
    async with chatting(model, size=(120, 36), reads_ahead=False) as chat:
        await chat.ready()
        await chat.ask("How many boats are in @piers.md ?")
        await chat.until(
            lambda: (
                "passages of piers.md were read" in chat.view.line_of(chat.view.dialogue.turns[-1])
            )
        )


@pytest.mark.slow
async def test_a_folder_that_was_searched_is_read_in_all(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "harbour"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text("".join(f"A boat at pier {n}.\n\n" for n in range(150)))
    gate = FromPart(1)
    async with chatting(scripted(gate), size=(120, 36), reads_ahead=False) as chat:
        gate.view = chat.view
        await chat.ready()
        await chat.say("/folder harbour/")
        await chat.until(lambda: chat.screen.store.folder == "harbour")
        await chat.ask("How many boats are at the pier?")
        read = re.search(r"only (\d+) of (\d+) passages? were read · /read all", chat.shown)
        assert read is not None
        own = chat.view.libraries.own
        assert own is not None
        assert int(read[1]) < int(read[2]) == own.passages
        question = chat.view.dialogue.turns[0]
        source = sources_of(question.attachments)[1]
        assert chat.view.libraries.path_of(source.path) == folder / Path(source.path).name
        chat.screen.action_show_passage(source)
        await chat.until(lambda: isinstance(chat.app.screen, PassageScreen))
        await chat.app.workers.wait_for_complete()
        await chat.pilot.pause()
        assert "as it was read" not in chat.shown
        await chat.press("escape")
        await begin(chat)
        pieces = [one for part in reading_of(chat).plan.parts for one in part]
        gate.set()
        whole = "".join(one.text for one in pieces)
        assert whole == "".join(one.read_text() for one in sorted(folder.iterdir()))
        await end(chat)
        assert all(map(is_of_reading, chat.view.dialogue.turns[0].attachments))


async def test_what_fits_is_read_at_once(chatting: Chatting) -> None:
    short = Attachment(AttachmentKind.FILE, "short.md", "a boat\n")
    async with chatting(scripted(), toasts=True) as chat:
        question = await asked(chat, short)
        await chat.say("/read all")
        await chat.until(lambda: "All of it was read" in chat.toasts)
        assert chat.view.dialogue.versions(question) == [question]


@pytest.mark.parametrize(
    ("attached", "typed", "fault"),
    [
        (False, "/read all", "no text is attached"),
        (True, "/read boats.md", "read what?"),
    ],
)
async def test_what_cannot_be_read_is_said(
    chatting: Chatting, attached: bool, typed: str, fault: str
) -> None:
    async with chatting(scripted()) as chat:
        await chat.ready()
        await chat.say("/read all")
        await chat.until("there is no question yet")
        blank = Attachment(AttachmentKind.FILE, "blank.md", "\n")
        question = await asked(chat, BOATS if attached else blank)
        await chat.say(typed)
        await chat.until(fault)
        assert chat.view.dialogue.versions(question) == [question]


async def test_a_broken_engine_ends_the_reading_with_its_fault(chatting: Chatting) -> None:
    model = ScriptedModel(NOTE, n_ctx=2048, fails_at=1)
    async with chatting(model, reads_ahead=False) as chat:
        question = await asked(chat)
        await chat.say("/read all")
        await chat.until("Ctrl+T continues")
        assert chat.view.reading is None
        (partial,) = chat.view.dialogue.versions(question)[-1].children
        assert partial.text == NOTE[0]


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
async def test_the_bundled_model_reads_all_of_a_small_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hurry(monkeypatch)
    paths = Paths.of_this_user()
    engine = Engine(SessionOptions("demo", draft="off", ctx=1024, threads=1), paths)
    with closing(History.open(paths.history)) as history:
        app = SpecchatApp(engine, history, start(16))
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot)
            names = ["Anna", "Berta", "Clara", "Дора", "漢字"]
            text = "".join(f"Boat {n} is called {names[n % 5]}.\n" for n in range(70))
            question = await asked(chat, Attachment(AttachmentKind.FILE, "boats.md", text))
            await begin(chat)
            plan = reading_of(chat).plan
            notes = reading_of(chat).turn
            await chat.until(lambda: "left" in chat.shown or chat.view.reading is None)
            await end(chat)
            assert not chat.cards.startswith("the prompt")
            done = [one for one in notes.children if one.ending.startswith("part")]
            assert len(done) == len(plan.parts) > 1
            final = chat.view.dialogue.versions(question)[-1]
            assert final.attachments
            assert all(map(is_of_reading, final.attachments))
            assert chat.view.dialogue.turns[-1].text
        assert engine.close(30.0)
