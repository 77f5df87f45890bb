"""The registered actions: the one source of keys, slash commands, palette and help."""

import re
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Action:
    """Something the user can do. name: of its method among the commands, and under [keys]."""

    name: str
    title: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    """Argument of the slash command, in brackets if it is optional."""
    alias: str = ""
    """Other names of the slash command, with blanks between them."""

    @property
    def commands(self) -> list[str]:
        """The slash command, and its other names."""
        return [f"/{name}" for name in f"{self.slash} {self.alias}".split()]

    @property
    def needs_argument(self) -> bool:
        """Whether the slash command cannot be run without an argument."""
        return bool(self.argument) and not self.argument.startswith("[")


ACTIONS = (
    Action("stop", "Stop the answer", "escape", "stop"),
    Action("help", "Help: every key and command", "f1", "help"),
    Action("panel", "Show the panel, then its details, then neither", "f2", "panel"),
    Action("model", "Choose a model, installed or to download", "ctrl+l", "model", "[NAME]"),
    Action("drafters", "Choose a drafter from a list", "f3", "drafters"),
    Action("draft", "Choose a drafter by name", "", "draft", "SPEC"),
    Action("train", "Train a drafter of your own", "", "train", "[start or stop]"),
    Action("colours", "Keep the colours of drafted text", "f4", "colours"),
    Action("race", "Race: plain against drafted", "f5", "race", "[SPEC]"),
    Action("new", "New chat; the present one is kept", "ctrl+n", "new", alias="clear"),
    Action("chats", "Open, search, rename or remove chats", "ctrl+o", "chats", "[NUMBER]"),
    Action("find", "Find in this chat", "ctrl+f", "find", "[TEXT]"),
    Action("rename", "Rename this chat", "", "rename", "TITLE"),
    Action("export", "Export this chat to a file, .md or .json", "", "export", "FILE"),
    Action(
        "regenerate",
        "Add another answer, or several",
        "ctrl+r",
        "again",
        "[N or MODELS]",
        "regenerate retry",
    ),
    Action("edit", "Edit the last question", "f9", "edit"),
    Action("go_on", "Continue the last answer", "ctrl+t", "continue"),
    Action("tools", "Tools for this chat: files, servers; off for none", "", "tools", "[NAMES]"),
    Action("allow", "Allow a tool call: once, tool, server, or no WHY", "", "allow", "[HOW]"),
    Action("undo", "Undo the last action", "ctrl+z", "undo"),
    Action("redo", "Redo what was undone", "ctrl+y", "redo"),
    Action("copy_answer", "Copy the last answer", "", "copy"),
    Action("copy_code", "Copy a code block of the last answer", "", "code", "[NUMBER]"),
    Action("read", "Read everything attached, in parts, and answer from it", "", "read", "all"),
    Action("shell", "Attach a shell command's output; !COMMAND too", "", "shell", "COMMAND"),
    Action("editor", "Write the question in your editor", "ctrl+g", "editor"),
    Action("system", "Set the instructions; off removes them", "", "system", "[TEXT]"),
    Action("folder", "Answer with the files of a folder; off ends it", "", "folder", "[FOLDER]"),
    Action("schema", "Make answers match a schema or grammar; off ends it", "", "schema", "FILE"),
    Action("compact", "Go on in a new chat that begins with a summary of this one", "", "compact"),
    Action("context", "Set the context size, in tokens", "", "context", "N"),
    Action("set", "Change a setting; KEY alone restores its default", "", "set", "KEY [VALUE]"),
    Action("think", "Think first: on, off, low, medium, high, or tokens", "", "think", "[HOW]"),
    Action("settings", "Settings of this chat and of the app", "f8", "settings"),
    Action("preset", "Use a preset for this chat; off for none", "", "preset", "[NAME]"),
    Action("theme", "Choose the colour theme", "", "theme", "[NAME]"),
    Action("commands", "Search all commands", "ctrl+p"),
    Action("quit", "Quit", "ctrl+q", "quit"),
)

BY_NAME = {action.name: action for action in ACTIONS}
BY_SLASH = {command[1:]: action for action in ACTIONS for command in action.commands}
_BY_MAIN_SLASH = [(action.slash, action) for action in (*ACTIONS[1:], ACTIONS[0]) if action.slash]

_OFTEN = ("new", "chats", "model", "system", "settings", "again", "export", "help", "undo")
"""Slash commands that are listed first while nothing of the name is typed."""


def matching(text: str) -> list[tuple[str, Action]]:
    """Slash commands that match what is typed so far, by name, best match first."""
    typed = text.removeprefix("/").lower()
    if not typed:
        often = [(name, BY_SLASH[name]) for name in _OFTEN]
        return often + [(slash, action) for slash, action in _BY_MAIN_SLASH if slash not in _OFTEN]
    prefixed = [(slash, action) for slash, action in BY_SLASH.items() if slash.startswith(typed)]
    prefixed.sort(key=lambda command: command[0] != typed)
    listed = {action.name for _, action in prefixed}
    containing = [
        (action.slash, action)
        for action in ACTIONS
        if action.slash
        and action.name not in listed
        and (typed in action.slash or typed in action.title.lower())
    ]
    return _once(prefixed) + containing


def _once(commands: list[tuple[str, Action]]) -> list[tuple[str, Action]]:
    """Commands without those whose action is listed before under its other name."""
    first: dict[str, tuple[str, Action]] = {}
    for slash, action in commands:
        first.setdefault(action.name, (slash, action))
    return list(first.values())


def parse(text: str) -> tuple[Action, str] | None:
    """The action and argument of a slash command; None if the text is not a known command.

    What follows a ! is a command of the shell.
    """
    if text.startswith("!") and "\n" not in text:
        return BY_NAME["shell"], text[1:].strip()
    if not text.startswith("/") or "\n" in text:
        return None
    name, _, argument = text[1:].partition(" ")
    action = BY_SLASH.get(name.lower())
    return None if action is None else (action, argument.strip())


def awaiting_argument(text: str) -> Action | None:
    """The action whose argument is to be typed next, once the name of its command is complete."""
    command = parse(text.lstrip()) if text.endswith(" ") else None
    return command[0] if command and command[0].argument and not command[1] else None


def unknown_command(text: str) -> str | None:
    """A misspelt slash command at the start of a text; a path is not taken for one."""
    word = text.partition("\n")[0].partition(" ")[0]
    looks_like_command = re.fullmatch(r"/[^\W\d][\w:-]*", word)
    return word if looks_like_command and word[1:].lower() not in BY_SLASH else None


def nearest_command(word: str) -> str:
    """The slash command that is most like a misspelt one; empty if none is."""
    nearest = get_close_matches(word[1:].lower(), BY_SLASH, 1)
    return f"/{nearest[0]}" if nearest else ""
