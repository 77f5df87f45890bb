"""Everything the app can be told to do: one list gives keys, slash commands, palette and help."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. name: of the screen's action method, and of the key in settings."""

    name: str
    title: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    """What follows the slash command, in brackets where it may be left out."""
    label: str = ""
    """For the bottom line; empty where its key is not named there."""

    @property
    def shown(self) -> bool:
        """Whether the bottom line names its key."""
        return bool(self.label)

    @property
    def needs_argument(self) -> bool:
        """Whether the slash command says nothing alone."""
        return bool(self.argument) and not self.argument.startswith("[")


ACTIONS = (
    Action("stop", "Stop the answer", "escape", "stop", label="Stop"),
    Action("help", "Help: every key and command", "f1", "help", label="Help"),
    Action("panel", "Show or hide the live panel", "f2", "panel", label="Panel"),
    Action("model", "Choose a model, here or on the hub", "ctrl+l", "model", "[NAME]"),
    Action("cycle_draft", "Next drafter: auto, lookup, self … off", "f3", label="Drafter"),
    Action("drafters", "Drafters for this model, the best first", "", "drafters"),
    Action("draft", "Choose the drafter", "", "draft", "SPEC"),
    Action("origins", "Where each token of the answer came from", "f4", "origins"),
    Action("race", "Race: plain against drafted, side by side", "f5", "race"),
    Action("new", "New chat", "ctrl+n", "new"),
    Action("chats", "Open, search, rename or delete chats", "ctrl+o", "chats", label="Chats"),
    Action("rename", "Rename this chat", "", "rename", "TITLE"),
    Action("export", "Write this chat to a file, .md or .json", "", "export", "FILE"),
    Action("regenerate", "Answer the last question again", "ctrl+r", "regenerate"),
    Action("edit", "Edit the last question, send it again", "f9", "edit"),
    Action("go_on", "Go on with the last answer", "ctrl+t", "continue"),
    Action("copy_answer", "Copy the last answer", "f12", "copy"),
    Action("copy_code", "Copy a code block of the last answer", "", "code", "[NUMBER]"),
    Action("editor", "Write the question in your editor", "ctrl+g", "editor"),
    Action("system", "What the model is told first; or off", "", "system", "[TEXT]"),
    Action("set", "Set one thing: temperature, top_k, …", "", "set", "KEY VALUE"),
    Action("settings", "Settings of this chat and of the app", "f8", "settings"),
    Action("preset", "Use a preset for this chat; off for none", "", "preset", "[NAME]"),
    Action("theme", "Choose the colours", "", "theme", "[NAME]"),
    Action("quit", "Quit", "ctrl+q", "quit", label="Quit"),
)

BY_NAME = {action.name: action for action in ACTIONS}
BY_SLASH = {action.slash: action for action in ACTIONS if action.slash}


def matching(text: str) -> list[Action]:
    """Slash commands that what was typed so far may become, the best first."""
    typed = text.removeprefix("/").lower()
    begins = [action for slash, action in BY_SLASH.items() if slash.startswith(typed)]
    holds = [
        action
        for slash, action in BY_SLASH.items()
        if action not in begins and (typed in slash or typed in action.title.lower())
    ]
    return begins + holds


def parse(text: str) -> tuple[Action, str] | None:
    """The action and argument of a slash command; None for text that is none."""
    if not text.startswith("/") or "\n" in text:
        return None
    name, _, argument = text[1:].partition(" ")
    action = BY_SLASH.get(name.lower())
    return None if action is None else (action, argument.strip())


def unknown_command(text: str) -> str | None:
    """The word that was meant as a slash command but is none; a path is not meant so."""
    word = text.partition("\n")[0].partition(" ")[0]
    is_meant = word.startswith("/") and word[1:].isalpha()
    return word if is_meant and word[1:].lower() not in BY_SLASH else None
