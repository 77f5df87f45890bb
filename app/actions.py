"""The registered actions: the one source of keys, slash commands, palette and help."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """Something the user can do. name: of its method among the commands, and under [keys]."""

    name: str
    title: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    """Argument of the slash command, in brackets if it is optional."""
    label: str = ""
    """Label in the footer; empty if the action is not listed there."""

    @property
    def shown(self) -> bool:
        """Whether the footer lists the action."""
        return bool(self.label)

    @property
    def needs_argument(self) -> bool:
        """Whether the slash command cannot be run without an argument."""
        return bool(self.argument) and not self.argument.startswith("[")


ACTIONS = (
    Action("stop", "Stop the answer", "escape", "stop", label="Stop"),
    Action("help", "Help: every key and command", "f1", "help", label="Help"),
    Action("panel", "Show or hide the live panel", "f2", "panel", label="Panel"),
    Action("model", "Choose a model, installed or on the hub", "ctrl+l", "model", "[NAME]"),
    Action("cycle_draft", "Next drafter: auto, lookup, self … off", "f3", label="Drafter"),
    Action("drafters", "List drafters for this model, best first", "", "drafters"),
    Action("draft", "Choose the drafter", "", "draft", "SPEC"),
    Action("origins", "Colour the answer by origin of its tokens", "f4", "origins"),
    Action("race", "Race: plain against drafted, side by side", "f5", "race"),
    Action("new", "New chat", "ctrl+n", "new"),
    Action("chats", "Open, search, rename or delete chats", "ctrl+o", "chats", label="Chats"),
    Action("rename", "Rename this chat", "", "rename", "TITLE"),
    Action("export", "Export this chat to a file, .md or .json", "", "export", "FILE"),
    Action("regenerate", "Answer the last question again", "ctrl+r", "regenerate"),
    Action("edit", "Edit and resend the last question", "f9", "edit"),
    Action("go_on", "Continue the last answer", "ctrl+t", "continue"),
    Action("copy_answer", "Copy the last answer", "f12", "copy"),
    Action("copy_code", "Copy a code block of the last answer", "", "code", "[NUMBER]"),
    Action("editor", "Write the question in your editor", "ctrl+g", "editor"),
    Action("system", "Set the system prompt; off removes it", "", "system", "[TEXT]"),
    Action("set", "Change one setting: temperature, top_k …", "", "set", "KEY VALUE"),
    Action("settings", "Settings of this chat and of the app", "f8", "settings"),
    Action("preset", "Use a preset for this chat; off for none", "", "preset", "[NAME]"),
    Action("theme", "Choose the colour theme", "", "theme", "[NAME]"),
    Action("quit", "Quit", "ctrl+q", "quit", label="Quit"),
)

BY_NAME = {action.name: action for action in ACTIONS}
BY_SLASH = {action.slash: action for action in ACTIONS if action.slash}


def matching(text: str) -> list[Action]:
    """Slash commands that match what is typed so far, best match first."""
    typed = text.removeprefix("/").lower()
    prefixed = [action for slash, action in BY_SLASH.items() if slash.startswith(typed)]
    containing = [
        action
        for slash, action in BY_SLASH.items()
        if action not in prefixed and (typed in slash or typed in action.title.lower())
    ]
    return prefixed + containing


def parse(text: str) -> tuple[Action, str] | None:
    """The action and argument of a slash command; None if the text is not a known command."""
    if not text.startswith("/") or "\n" in text:
        return None
    name, _, argument = text[1:].partition(" ")
    action = BY_SLASH.get(name.lower())
    return None if action is None else (action, argument.strip())


def unknown_command(text: str) -> str | None:
    """A misspelt slash command at the start of a text; a path is not taken for one."""
    word = text.partition("\n")[0].partition(" ")[0]
    looks_like_command = word.startswith("/") and word[1:].isalpha()
    return word if looks_like_command and word[1:].lower() not in BY_SLASH else None
