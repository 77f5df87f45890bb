"""Suggestions above the prompt: slash commands, their arguments, and file names."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app import completion
from app.actions import matching, parse
from app.chat.named_files import file_names
from app.printable import one_line
from app.settings.catalogue import BY_NAME, SETTABLE, Kind
from app.settings.presets import NO_PRESET, PROMPTS, described, prompts
from app.tui.store import Store
from app.tui.widgets import is_narrow, typed_app

_MOST_ROWS = 6

_MOST_SUGGESTIONS = 200
"""Suggestions beyond which typing on is quicker than scrolling."""

_OTHER_ROWS = 6
"""Rows of the screen that the suggestions leave to the prompt and the conversation."""

COMMAND, FILE, ARGUMENT, SENT = "/", "@", "=", "@ "
"""First character of a suggestion: its kind. SENT: files, of which one is named already."""


class Completion(OptionList):
    """Completions of what is typed at the cursor; hidden while there are none."""

    app = typed_app
    can_focus = False
    DEFAULT_CSS: ClassVar[str] = """
    Completion {
        height: auto; display: none; border: none; padding: 0 1;
        background: $background; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._completed = ("", "")
        self._listed: tuple[str, list[str]] = ("", [])
        """What the argument of a command may be, listed once while it is typed."""
        self._prompts: dict[str, str] | None = None

    def suggest(self, text: str, before_cursor: str) -> None:
        """Show suggestions: commands if the text begins with one, else files named at the cursor.

        before_cursor: the cursor's line, up to the cursor.
        """
        if self._completed == (text, before_cursor):
            return
        self._completed = text, before_cursor
        rows = max(0, min(_MOST_ROWS, (self.app.size.height - _OTHER_ROWS) // 2))
        self.styles.max_height = rows
        commands = self._commands(text) if rows else []
        arguments = self._arguments(text) if rows else []
        options = commands or arguments or (_files(before_cursor) if rows else [])
        self.clear_options()
        self.add_options(_shortened(options))
        typed = text if arguments else before_cursor.rpartition("@")[2]
        named = {f"{one.id}"[1:].rstrip("/") for one in options}
        is_whole = typed.endswith((" ", ",", "/")) or typed in named
        runs = is_whole and not commands and typed[:1] != '"'
        kind = COMMAND if commands else ARGUMENT if arguments else SENT if runs else FILE
        self._show(kind if options else "")
        if self.display:  # what is complete is run or sent as it stands
            self.highlighted = None if runs else 0

    def _commands(self, text: str) -> list[Option]:
        """Commands, then the user's prompts, then commands that have what is typed in their title.

        Prompts are read once while a name is typed.
        """
        if not text.startswith("/") or " " in text or "\n" in text:
            self._prompts = None
            return []
        if self._prompts is None:
            found = prompts(self._store.preferences.file.with_name(PROMPTS))
            self._prompts = {name: described(path) for name, path in found.items()}
        typed, has_room = text[1:].lower(), not is_narrow(self.app.size.width)
        rows = [
            (name, f"/{name} {one.argument * has_room}", one.title) for name, one in matching(text)
        ]
        begun = sum(name.startswith(typed) for name, _, _ in rows)
        own = ((name, f"/{name}", about) for name, about in self._prompts.items())
        rows[begun:begun] = [one for one in own if one[0].lower().startswith(typed)]
        width = max((len(shown.rstrip()) for _, shown, _ in rows), default=0) + 1
        return [
            Option(Content(f"{shown.rstrip():{width}} {title}"), id=f"{COMMAND}{name}")
            for name, shown, title in rows
        ]

    def _arguments(self, text: str) -> list[Option]:
        """What a command's argument may go on with; nothing if it is complete."""
        if " " not in text or (command := parse(text)) is None:
            self._listed = ("", [])
            return []
        slash, _, typed = text.partition(" ")
        action = command[0].name
        head, last = _divided(action, typed.lstrip())
        listed = f"{action} {head}"
        if listed != self._listed[0]:
            self._listed = listed, _values(action, head)
        takes_path = action in ("schema", "folder")
        files = file_names(f"@{last}") if takes_path else []
        files = [one for one in files if action != "folder" or one.endswith("/")]
        values = [*files, *self._listed[1]]
        begun = last.strip('"').lower()
        found = [value for value in values if value.strip('"').lower().startswith(begun)]
        if [value.strip() for value in found] == [last]:
            return []
        found.sort(key=lambda value: value != last)
        return [
            Option(Content(one_line(value)), id=f"{ARGUMENT}{slash} {head}{value}")
            for value in found
        ]

    def hide(self) -> None:
        """Hide the suggestions until the text changes."""
        self._show("")

    def _show(self, kind: str) -> None:
        self.display = bool(kind)
        self._store.completing = kind

    def pick(self, option: Option | None = None) -> str:
        """Hide the suggestions, and return one: that which is highlighted, or was clicked."""
        option = option or self.get_option_at_index(self.highlighted or 0)
        self._show("")
        self._completed = "", ""
        return option.id or ""


def _divided(action: str, typed: str) -> tuple[str, str]:
    """An argument in what is complete of it and what is being typed."""
    if action in ("draft", "race", "regenerate"):
        at = typed.rfind(" " if action == "regenerate" else ",") + 1
        if action == "regenerate" and typed[:at].count('"') % 2:
            at = typed.rfind('"', 0, at)  # where a name with spaces begins
    else:
        at = typed.find(" ") + 1 if action == "set" else 0
    return typed[:at], typed[at:]


def _values(action: str, head: str = "") -> list[str]:
    """What an argument may go on with; what ends in a blank is not all of it."""
    match action:
        case "model":
            return completion.models("")
        case "regenerate":
            names = completion.installed_models("")
            return ["2", "3", "4", *(f'"{one}"' if " " in one else one for one in names)]
        case "draft" | "race":
            return completion.drafters("")
        case "preset":
            return [*completion.presets(""), NO_PRESET]
        case "folder" | "schema":
            return ["off"]
        case "theme":
            from app.tui.keymap import THEMES

            return list(THEMES)
        case "set" if not head:
            return [f"{name} " for name in SETTABLE]
        case "set":
            return _values_of(head.strip())
        case _:
            return []


def _values_of(name: str) -> list[str]:
    key = BY_NAME.get(name)
    if name in ("model", "draft", "preset", "theme"):
        return _values(name)
    if key is None:
        return []
    return ["true", "false"] if key.kind is Kind.SWITCH else list(key.choices)


def _files(before_cursor: str) -> list[Option]:
    return [
        Option(Content(one_line(name)), id=f"{FILE}{name}") for name in file_names(before_cursor)
    ]


def _shortened(options: list[Option]) -> list[Option]:
    more = len(options) - _MOST_SUGGESTIONS
    if more <= 0:
        return options
    return [*options[:_MOST_SUGGESTIONS], Option(f"… {more:,} more: type on", disabled=True)]
