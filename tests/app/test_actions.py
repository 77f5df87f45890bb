"""Slash commands: found by what is typed, and misspelt ones told."""

import pytest

from app.actions import ACTIONS, BY_SLASH, matching, nearest_command, parse, unknown_command


def test_names_keys_and_slash_commands_are_unique() -> None:
    names = [action.name for action in ACTIONS]
    keys = [action.keys for action in ACTIONS if action.keys]
    slashes = [command[1:] for action in ACTIONS for command in action.commands]
    for one in (names, keys, slashes):
        assert len(set(one)) == len(one)
    assert set(slashes) == set(BY_SLASH)


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("/draft", "draft"),
        ("/ret", "retry"),
        ("/aga", "again"),
        ("/cl", "clear"),
        ("/colour", "colours"),
        ("/f", ""),
    ],
)
def test_the_best_match_comes_first(typed: str, first: str) -> None:
    assert not first or matching(typed)[0][0] == first


def test_an_action_is_listed_once() -> None:
    for typed in ("", "/", "/re", "/c", "/n"):
        names = [action.name for _, action in matching(typed)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/context 8192", "context", "8192"),
        ("/retry", "regenerate", ""),
        ("/again 2", "regenerate", "2"),
        ("/clear", "new", ""),
        ("/SET top_k 3", "set", "top_k 3"),
    ],
)
def test_a_command_with_its_argument(text: str, name: str, argument: str) -> None:
    command = parse(text)
    assert command is not None
    assert (command[0].name, command[1]) == (name, argument)


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("/modle x", "/modle", "/model"),
        ("/xyzzy", "/xyzzy", ""),
        ("/nonsense", "/nonsense", ""),
        ("/my-prompt x", "/my-prompt", ""),
        ("/git:sub x", "/git:sub", ""),
        ("/etc/hosts", None, None),
        ("/notes.txt", None, None),
        ("/2nd try", None, None),
    ],
)
def test_a_misspelt_command(text: str, unknown: str | None, nearest: str | None) -> None:
    assert unknown_command(text) == unknown
    if unknown is not None:
        assert nearest_command(unknown) == nearest
