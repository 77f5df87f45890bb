"""The prompt's keys: what they send, what they ask for, and what they bring back."""

import random
import re
from pathlib import Path

import pytest
from textual import events

from app.actions import BY_NAME
from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.tree import Turn
from app.settings.in_effect import Preferences
from app.tui.prompt.folding import PromptText
from tests.fixtures.prompt_app import Prompting, prompting

NO_PREFERENCES = Path("config.toml")


async def test_enter_sends_and_a_new_line_does_not(prompt: Prompting) -> None:
    await prompt.type("one\ntwo")
    await prompt.press("enter")
    assert prompt.submitted == ["one\ntwo"]
    assert prompt.text == ""


async def test_enter_may_start_a_new_line_instead(prompt: Prompting) -> None:
    prompt.store.preferences = Preferences(NO_PREFERENCES, enter_sends=False)
    await prompt.type("one")
    await prompt.press("enter")
    assert prompt.text == "one\n"
    await prompt.press("ctrl+j")
    assert prompt.submitted == ["one"]


async def test_enter_on_an_empty_prompt_is_told(prompt: Prompting) -> None:
    await prompt.press("space", "enter")
    assert prompt.wanted == ("send_next",)


@pytest.mark.parametrize(("enter_sends", "key"), [(True, "Enter"), (False, "Ctrl+J")])
async def test_title_and_keys_tell_alike_what_sends_an_edit(
    prompt: Prompting, enter_sends: bool, key: str
) -> None:
    prompt.store.preferences = Preferences(NO_PREFERENCES, enter_sends=enter_sends)
    prompt.store.edited = Turn("user", "see @nots.md")
    prompt.area.begin_edit(PromptText("see @nots.md"), 2)
    shown = "".join(await prompt.lines())
    assert f"editing: {key} adds version 2" in shown
    assert f"{key} adds a version" in shown
    assert "send" not in shown
    await prompt.press(key.lower())
    assert f"{key} again sends your text without the file" in prompt.title


@pytest.mark.parametrize("typed", ["see @nots.md", '@"my notes', "/foo is a folder"])
async def test_what_is_doubtful_is_sent_at_the_second_time(prompt: Prompting, typed: str) -> None:
    prompt.area.write(typed)
    await prompt.press("enter")
    assert (prompt.text, prompt.submitted) == (typed, [])
    shown = "".join(await prompt.lines())
    assert "✕ no " in shown or '✕ @"my notes has no closing quote' in shown
    await prompt.press("enter")
    assert (prompt.text, prompt.submitted) == ("", [typed])


async def test_a_changed_text_is_doubted_again_and_the_error_goes(prompt: Prompting) -> None:
    prompt.area.write("see @nots.md")
    await prompt.press("enter", "x")
    assert "✕" not in prompt.title
    await prompt.press("enter")
    assert prompt.submitted == []
    assert "no file nots.mdx" in prompt.title


async def test_a_file_that_was_read_before_is_not_missing(prompt: Prompting) -> None:
    file = Attachment(AttachmentKind.FILE, "gone.md", "contents")
    prompt.area.write("see @gone.md", (file,))
    await prompt.press("enter")
    assert prompt.sent[-1].attachments == (file,)


@pytest.mark.slow
async def test_a_command_is_told_with_its_argument(prompt: Prompting) -> None:
    await prompt.type("/set temperature 1")
    await prompt.press("enter")
    asked = "temperature 1"
    assert prompt.wanted == ("run_typed", BY_NAME["set"], asked, f"/set {asked}")


@pytest.mark.slow
async def test_a_picked_command_runs_or_awaits_its_argument(prompt: Prompting) -> None:
    await prompt.type("/hel")
    await prompt.press("enter")
    assert prompt.wanted[:2] == ("run_typed", BY_NAME["help"])
    await prompt.type("/draft")
    await prompt.press("enter", "x")
    assert prompt.text == "/draft x"


async def test_an_alias_runs_the_same_action(prompt: Prompting) -> None:
    await prompt.type("/ret")
    await prompt.press("enter")
    assert prompt.wanted[:2] == ("run_typed", BY_NAME["regenerate"])


async def test_ctrl_c_stops_then_clears_then_quits(prompt: Prompting) -> None:
    await prompt.type("abc")
    prompt.store.is_answering = True
    await prompt.press("ctrl+c")
    assert prompt.wanted == ("perform", "stop")
    prompt.store.is_answering = False
    await prompt.press("ctrl+c")
    assert prompt.text == ""
    await prompt.press("ctrl+c")
    assert prompt.title == "Ctrl+C again quits"
    assert prompt.wanted != ("perform", "quit")
    await prompt.press("ctrl+c")
    assert prompt.wanted == ("perform", "quit")


async def test_another_key_between_takes_ctrl_c_back(prompt: Prompting) -> None:
    await prompt.press("ctrl+c", "home")
    assert prompt.title == ""
    await prompt.press("ctrl+c")
    assert prompt.app.messages == []


@pytest.mark.parametrize("back", ["up", "ctrl+z"])
async def test_a_cleared_text_comes_back(prompt: Prompting, back: str) -> None:
    await prompt.type("abc")
    await prompt.press("ctrl+c", back)
    assert prompt.text == "abc"


async def test_a_text_deleted_at_once_is_among_the_earlier_ones(prompt: Prompting) -> None:
    await prompt.type("precious")
    await prompt.press("ctrl+u")
    prompt.area.begin_edit(PromptText("question"), 2)
    await prompt.press("escape")
    assert prompt.text == ""
    await prompt.press("up")
    assert prompt.text == "precious"


async def test_a_text_deleted_letter_by_letter_is_not(prompt: Prompting) -> None:
    await prompt.type("ab")
    await prompt.press("backspace", "backspace", "up")
    assert prompt.text == ""


async def test_ctrl_c_copies_a_selection(
    prompt: Prompting, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("pyperclip.copy", copied.append)
    await prompt.type("abc")
    await prompt.press("shift+left", "ctrl+c")
    assert (copied, prompt.text) == (["c"], "abc")


async def test_ctrl_d_quits_where_nothing_is_typed(prompt: Prompting) -> None:
    await prompt.type("ab")
    await prompt.press("home", "ctrl+d")
    assert (prompt.text, prompt.app.messages) == ("b", [])
    await prompt.press("ctrl+d", "ctrl+d")
    assert prompt.wanted == ("perform", "quit")


async def test_escape_closes_suggestions_then_leaves_the_edit_then_stops(prompt: Prompting) -> None:
    await prompt.type("/he")
    prompt.store.is_answering = True
    await prompt.press("escape")
    assert (prompt.app.actions, prompt.text) == ([], "/he")
    prompt.area.begin_edit(PromptText("question"), 2)
    await prompt.press("escape")
    assert prompt.wanted == ("edit_ended",)
    assert (prompt.app.actions, prompt.text) == ([], "/he")
    await prompt.press("escape")  # closes the suggestions for the restored command
    await prompt.press("escape")
    assert prompt.app.actions == ["stop"]


async def test_a_command_is_not_sent_to_the_model_unasked(prompt: Prompting) -> None:
    for text in ("!rm x\n\nWhat is this?", "/new\nWhat is this?"):
        prompt.area.write(text)
        await prompt.press("enter")
        assert "a command is a line of its own · Enter again sends" in prompt.area.fault
    prompt.area.begin_edit(PromptText("question"), 2)
    prompt.area.rewrite(PromptText("!rm x"))
    await prompt.press("enter")
    assert "an edit runs no commands · Enter again sends" in prompt.area.fault
    assert prompt.submitted == []
    await prompt.press("enter")
    assert prompt.submitted == ["!rm x"]


async def test_escape_twice_selects_the_last_question(prompt: Prompting) -> None:
    await prompt.press("escape", "home", "escape")
    assert prompt.app.messages == []
    await prompt.press("escape")
    assert prompt.wanted == ("select_last", "user")


@pytest.mark.slow
async def test_tab_selects_the_last_message(prompt: Prompting) -> None:
    await prompt.press("tab")
    assert prompt.wanted == ("select_last",)


async def test_up_takes_a_queued_question_back_and_keeps_what_is_typed(prompt: Prompting) -> None:
    prompt.store.queued = 1
    await prompt.press("up")
    assert prompt.wanted == ("take_back",)
    prompt.area.write("queued")
    await prompt.press("up")
    await prompt.press("down")
    assert prompt.text == "queued"
    wanted = [one.action for one in prompt.app.messages]
    assert wanted.count("take_back") == 1


async def test_undo_and_redo_go_on_in_the_app_where_nothing_is_typed(prompt: Prompting) -> None:
    await prompt.type("a")
    await prompt.press("ctrl+z")
    assert (prompt.text, prompt.app.actions) == ("", [])
    await prompt.press("ctrl+z")
    assert prompt.app.actions == ["undo"]
    await prompt.press("ctrl+y")
    assert (prompt.text, prompt.app.actions) == ("", ["undo", "redo"])
    await prompt.press("ctrl+y")
    assert prompt.text == "a"
    await prompt.press("ctrl+y", "ctrl+z", "ctrl+z")
    assert prompt.app.actions == ["undo", "redo", "undo"]


async def test_what_was_deleted_comes_back_before_the_app_undoes(prompt: Prompting) -> None:
    await prompt.type("abc")
    await prompt.press("ctrl+u", "ctrl+z")
    assert (prompt.text, prompt.app.actions) == ("abc", [])


async def test_what_was_sent_is_not_undone_in_the_prompt(prompt: Prompting) -> None:
    await prompt.type("abc")
    await prompt.press("enter", "ctrl+z")
    assert (prompt.text, prompt.app.actions) == ("", ["undo"])


@pytest.mark.slow
async def test_earlier_texts_are_browsed_and_their_changes_kept(prompt: Prompting) -> None:
    for text in ("one", "two"):
        prompt.area.remember(PromptText(text))
    await prompt.type("new")
    await prompt.press("up", "x", "up")
    assert prompt.text == "one"
    await prompt.press("down")
    assert prompt.text == "twox"
    await prompt.press("down")
    assert prompt.text == "new"
    await prompt.press("up", "up", "enter")
    assert prompt.submitted == ["one"]
    earlier: list[str] = []
    for _ in range(5):
        await prompt.press("up")
        earlier.append(prompt.text)
    assert earlier == ["one", "new", "twox", "two", "one"]


async def test_an_edit_changes_nothing_until_it_is_sent(prompt: Prompting) -> None:
    await prompt.type("unsent")
    prompt.area.begin_edit(PromptText("question"), 2)
    assert prompt.text == "question"
    await prompt.press("x", "escape")
    assert prompt.text == "unsent"
    assert prompt.submitted == []
    await prompt.press("up")
    assert prompt.text == "questionx"


async def test_a_sent_edit_is_told_and_the_prompt_is_as_before(prompt: Prompting) -> None:
    await prompt.type("unsent")
    prompt.area.begin_edit(PromptText("question"), 2)
    assert [one.text for one in prompt.area.unsent] == ["unsent"]
    await prompt.press("x")
    assert [one.text for one in prompt.area.unsent] == ["unsent", "questionx"]
    await prompt.press("enter")
    assert prompt.wanted == ("submit", PromptText("questionx"), True)
    assert prompt.text == "unsent"


async def test_a_text_put_back_stands_before_what_is_typed(prompt: Prompting) -> None:
    await prompt.type("typed")
    prompt.area.put_before(PromptText("came back"))
    prompt.area.show_fault("the disk is full")
    await prompt.pilot.pause()
    assert prompt.text == "came back\n\ntyped"
    assert prompt.title == "✕ the disk is full"


_KEYS = {"\r": "enter", "/": "slash", " ": "space", "\x03": "ctrl+c"}


def hurry(prompt: Prompting, text: str) -> None:
    """Have keys wait for the prompt all at once, as on a busy machine."""
    for letter in text:
        character = letter if letter.isprintable() else None
        prompt.area.post_message(events.Key(_KEYS.get(letter, letter), character))


@pytest.mark.parametrize(
    ("typed", "hurried", "left", "sent"),
    [
        ("", "one\rtwo", "two", ["one"]),
        ("", "one\rtwo\r", "", ["one", "two"]),
        ("", "one\x03two", "two", []),
        ("", "/wrong\rtwo", "/wrongtwo", []),  # a wrong command stays in front
        ("/set", "\rtop", "/set top", []),  # one that is picked goes on
        ("/set", " temperature 0.5\r", "", []),  # not cut to what is offered for its beginning
    ],
)
async def test_keys_that_come_at_once(
    prompt: Prompting, typed: str, hurried: str, left: str, sent: list[str]
) -> None:
    await prompt.type(typed)
    hurry(prompt, hurried)
    await prompt.until(lambda: prompt.text == left and len(prompt.submitted) == len(sent))
    assert prompt.submitted == sent


LINES = "a line\n" * 42
KEYS = (
    "ctrl+c", "escape", "up", "down", "enter", "ctrl+j", "tab", "left", "right", "space",
    "ctrl+z", "ctrl+y", "ctrl+d", "home", "end", "slash", "at",
)  # fmt: skip


async def act(prompt: Prompting, dice: random.Random, number: int) -> str:
    """Do something that a user, or the screen for the user, can do; returns the key, if any."""
    match dice.randrange(12):
        case 0:
            await prompt.paste(f"{number} {LINES}")
        case 1:
            prompt.area.write(f"written{number}")
        case 2:
            prompt.area.put_before(PromptText(f"before{number}"))
        case 3:
            prompt.area.begin_edit(PromptText(f"question{number}"), 2)
        case 4:
            prompt.area.end_edit()
        case 5:
            prompt.store.is_answering = not prompt.store.is_answering
        case 6 | 7 | 8:
            await prompt.type(f"w{number}")
        case _:
            key = dice.choice(KEYS)
            await prompt.press(key)
            return key
    return ""


def is_within(before: str, after: str) -> bool:
    """Whether a text is still there, perhaps with more typed into it."""
    letters = iter(after)
    return all(letter in letters for letter in before)


def findable(prompt: Prompting) -> list[PromptText]:
    """All that is in the prompt, sent, or among the earlier texts."""
    past = prompt.area._past
    run = (one for one in prompt.app.messages if one.action == "run_typed")
    typed = [PromptText(str(one.arguments[-1])) for one in run]
    return [*prompt.area.unsent, *past._past, *past._changed.values(), *prompt.sent, *typed]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_random_keys_lose_nothing(seed: int) -> None:
    dice = random.Random(seed)
    async with prompting(dice.choice([(80, 24), (40, 20), (10, 3)])) as prompt:
        seen: list[PromptText] = []
        for number in range(60):
            before = prompt.area.written
            undoable = len(prompt.area.history.undo_stack)
            key = await act(prompt, dice, number)
            after = prompt.area.written
            if re.fullmatch(r"question\d+", before.text) or before.text.startswith("/"):
                continue  # an edit without a change, or a command
            is_taken = not is_within(before.text.strip(), after.text)
            is_own = key in ("ctrl+z", "ctrl+y")
            if is_taken and not is_own and len(prompt.area.history.undo_stack) <= undoable:
                seen.append(before)
        found = findable(prompt)
        for one in seen:
            assert any(
                is_within(one.text.strip(), other.text)
                and {paste.text for paste in one.attachments}
                <= {paste.text for paste in other.attachments}
                for other in found
            ), one
