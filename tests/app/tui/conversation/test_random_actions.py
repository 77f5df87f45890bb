"""Random actions at random moments: every word that was on the screen is in the history."""

import random

import pytest

from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER, Turn
from app.history import History
from app.paths import Paths
from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(40)]
ACTIONS = (
    "send", "send", "edit", "regenerate", "continue", "stop", "version", "take back",
    "send next", "undo", "redo", "other chat", "compact", "several", "several", "pick",
)  # fmt: skip


class Campaign:
    """Acts at random, and keeps what was said meanwhile."""

    def __init__(self, chat: Chat, seed: int) -> None:
        self.chat = chat
        self.chance = random.Random(seed)
        self.asked: list[str] = []
        self.taken: list[str] = []
        self.said: dict[Turn, str] = {}
        self.chats = [chat.view.dialogue]

    def look(self) -> None:
        """Keep the answers that are on the screen."""
        for view in self.chat.messages:
            if view.turn.role == ASSISTANT and view.turn.text:
                assert view.turn.text.startswith(self.said.get(view.turn, ""))
                self.said[view.turn] = view.turn.text

    def _new_text(self) -> str:
        self.asked.append(f"question {len(self.asked)}")
        return self.asked[-1]

    async def act(self) -> None:  # noqa: C901, PLR0912
        view, chance = self.chat.view, self.chance
        questions = [turn for turn in view.dialogue.turns if turn.role == USER]
        match chance.choice(ACTIONS):
            case "send":
                await view.send(self._new_text())
            case "edit" if questions:
                await view.edit(chance.choice(questions), self._new_text())
            case "regenerate":
                await view.regenerate()
            case "several":
                models = chance.choices(("", "", "other", "broken"), k=chance.randint(1, 4))
                await view.regenerate(models)
            case "pick" if view.several is not None and view.several.turns:
                await view.pick(chance.choice(view.several.turns))
            case "continue":
                await view.continue_answer()
            case "stop":
                view.stop()
            case "version" if view.dialogue.turns:
                turn = chance.choice(view.dialogue.turns)
                await view.show_version(turn, chance.choice((-1, 1)))
            case "take back":
                taken = await view.take_back()
                self.taken += [taken.text] if taken is not None else []
            case "send next":
                await view.send_next()
            case "undo":
                await self.chat.app.changes.undo()
            case "redo":
                await self.chat.app.changes.redo()
            case "other chat":
                others = [*self.chats, view.dialogue.fresh()]
                await view.open(chance.choice(others))
            case "compact" if chance.random() < 0.3:
                await view.compact()
            case _:
                pass
        if view.dialogue not in self.chats:
            self.chats.append(view.dialogue)


def shows_the_end(chat: Chat) -> bool:
    """Whether the messages on the screen are the last ones of the chat."""
    shown, turns = [view.turn for view in chat.messages], chat.view.dialogue.turns
    return shown == turns[len(turns) - len(shown) :]


def saved() -> tuple[set[str], set[str]]:
    """Every question and every answer in the history."""
    history = History.open(Paths.of_this_user().history)
    questions, answers = set[str](), set[str]()
    for chat in history.chats():
        for message in history.messages(chat.number):
            (questions if message.role == USER else answers).add(message.text)
        questions |= {queued.text for queued in history.queue(chat.number)}
    history.close()
    return questions, answers


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_nothing_said_is_lost(chatting: Chatting, seed: int) -> None:
    async with chatting(ScriptedModel(WORDS, rate=400.0, shares=bool(seed % 2)), (60, 20)) as chat:
        await chat.ready()
        campaign = Campaign(chat, seed)
        for _ in range(50):
            await campaign.act()
            await chat.pilot.pause(campaign.chance.choice((0.0, 0.01, 0.05, 0.15)))
            campaign.look()
        await chat.until(lambda: shows_the_end(chat))  # a chat just opened is still being mounted
    questions, answers = saved()
    back = {*campaign.taken, *chat.app.returned}
    assert {*campaign.asked} <= questions | back
    for turn, said in campaign.said.items():
        assert any(answer.startswith(said) for answer in answers), turn


@pytest.mark.slow
async def test_another_window_is_followed(chat: Chat) -> None:
    await chat.ask("here")
    number = chat.view.dialogue.chat
    assert number is not None
    history = History.open(Paths.of_this_user().history)
    other = Dialogue(history)
    other.open(number)
    other.add(USER, "there")
    answer = other.add(ASSISTANT, "well")
    await chat.until(lambda: chat.texts[2:] == ["there", "well"])
    answer.text, answer.ending = "well, well", "2 tokens"
    other.save(answer)
    await chat.until(lambda: chat.texts[3] == "well, well")
    assert "2 tokens" in chat.messages[3].turn.ending
    history.close()
