"""The bottom row: the keys that work now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from app.actions import BY_NAME
from app.engine.status import Phase
from app.loading.streaming import StreamOfferError
from app.tui.keymap import keys_of
from app.tui.store import Store

_GAP, _NARROW_GAP = 3, 2


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what it does. name: a key, or the action whose key it is."""

    name: str
    label: str


_SEND = "send"
"""Stands for the key that sends."""

_HELP = Key("help", "help")
_MODELS = Key("model", "models")
_STOP = Key("stop", "stop")
_UP = "↑"
_VERSIONS = "← →"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a state, most important first; narrow: where not all of wide fit."""

    wide: tuple[Key, ...]
    narrow: tuple[Key, ...]


_IDLE = Keys(
    (
        Key(_SEND, "send"),
        Key("/", "commands"),
        Key("@", "files"),
        Key("chats", "chats"),
        _MODELS,
        _HELP,
    ),
    (Key(_SEND, "send"), Key("/", "commands"), _HELP),
)
_IDLE_DEMO = Keys(_IDLE.wide, (Key(_SEND, "send"), _MODELS, _HELP))
_ANSWERING = Keys(
    (_STOP, Key(_SEND, "queues"), Key("panel", "panel"), Key("colours", "keep colours"), _HELP),
    (_STOP, Key("panel", "panel"), _HELP),
)
_ANSWERING_WITH_PANEL = Keys(_ANSWERING.wide, (_STOP, Key("panel", "details"), _HELP))
_ANSWERING_WITH_DETAILS = Keys(_ANSWERING.wide, (_STOP, Key("panel", "close details"), _HELP))
_ANSWERING_WITH_QUEUE = Keys(
    (_STOP, Key(_UP, "takes back the last one"), Key(_SEND, "queues"), _HELP),
    (_STOP, Key(_UP, "take back"), _HELP),
)
_QUEUE = Keys(
    (
        Key(_SEND, "on an empty prompt sends the next"),
        Key(_UP, "takes back the last one"),
        _HELP,
    ),
    (Key(_SEND, "sends next"), Key(_UP, "take back"), _HELP),
)
_EDITING = Keys(
    (Key(_SEND, "send"), Key("Esc", "back"), Key("@", "files"), Key("editor", "editor"), _HELP),
    (Key(_SEND, "send"), Key("Esc", "back"), _HELP),
)
_NO_MODEL_WITH_TEXT = Keys((Key(_SEND, "queues"), _MODELS, _HELP), (Key(_SEND, "queues"), _MODELS))
_NO_MODEL = Keys((Key(_SEND, "try again"), _MODELS, _HELP), (Key(_SEND, "again"), _MODELS))
_STREAM_OFFER = Keys(
    (Key(_SEND, "reads it from disk"), _MODELS, _HELP), (Key(_SEND, "from disk"), _MODELS)
)
_BROKEN_OFF = Keys((Key("go_on", "continue"), _MODELS, _HELP), (Key("go_on", "continue"), _MODELS))
_COMPLETING_FILE = Keys(
    (Key("↑ ↓", "choose"), Key("Enter", "fill in"), Key("Esc", "close")),
    (Key("↑ ↓", "choose"), Key("Enter", "fill in"), Key("Esc", "close")),
)
_COMPLETING = Keys(
    (Key("↑ ↓", "choose"), Key("Enter", "run"), Key("Tab", "fill in"), Key("Esc", "close")),
    (Key("↑ ↓", "choose"), Key("Tab", "fill in"), Key("Esc", "close")),
)
_PANEL = Keys(
    (Key("↑ ↓", "explain the next"), Key("panel", "details"), Key("Esc", "back"), _HELP),
    (Key("↑ ↓", "explain"), Key("Esc", "back")),
)
_PANEL_WITH_DETAILS = Keys(
    (Key("↑ ↓", "explain the next"), Key("panel", "close"), Key("Esc", "back"), _HELP),
    (Key("↑ ↓", "explain"), Key("panel", "close"), Key("Esc", "back")),
)
_QUESTION = Keys(
    (
        Key("↑ ↓", "move"),
        Key("Enter", "edit"),
        Key(_VERSIONS, "versions"),
        Key("Esc", "back"),
        _HELP,
    ),
    (Key("Enter", "edit"), Key(_VERSIONS, "versions"), Key("Esc", "back")),
)
_ATTACHMENT = Keys(
    (Key("↑ ↓", "move"), Key("Enter", "unfold, or fold again"), Key("Esc", "back"), _HELP),
    (Key("↑ ↓", "move"), Key("Enter", "unfold"), Key("Esc", "back")),
)
_INSTRUCTIONS = Keys(
    (Key("↑ ↓", "move"), Key("Enter", "edit"), Key("Esc", "back"), _HELP),
    (Key("↑ ↓", "move"), Key("Enter", "edit"), Key("Esc", "back")),
)
_WELCOME = Keys(
    (Key("↑ ↓", "move"), Key("Enter", "choose"), Key("Esc", "back"), _HELP),
    (Key("↑ ↓", "move"), Key("Enter", "choose"), Key("Esc", "back")),
)
_ANSWER = Keys(
    (
        Key("↑ ↓", "move"),
        Key("Enter", "copy"),
        Key(_VERSIONS, "versions"),
        Key("Esc", "back"),
        _HELP,
    ),
    (Key("Enter", "copy"), Key(_VERSIONS, "versions"), Key("Esc", "back")),
)


class KeysBar(Static):
    """One row of keys, which can be clicked; those on the right drop out as it narrows."""

    DEFAULT_CSS: ClassVar[str] = """
    KeysBar {
        height: 1; padding: 0 1; text-wrap: nowrap;
        link-style: none; link-color: $text-muted; link-style-hover: underline;
        link-background-hover: transparent; link-color-hover: $foreground;
    }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._shown: tuple[tuple[str, str, str], ...] = ()
        self._shown_gap = 0

    def on_mount(self) -> None:
        for attribute in (
            "status",
            "is_answering",
            "queued",
            "is_editing",
            "is_broken_off",
            "selected",
            "has_versions",
            "has_text",
            "completing",
            "is_panel_shown",
            "shows_details",
            "preferences",
        ):
            self.watch(self._store, attribute, self._show, init=False)

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        width = self.content_size.width
        keys = self._keys_now
        wide = self._texts(keys.wide)
        gap = _GAP
        shown = wide
        if _width(wide, _GAP) > width:
            gap, shown = _NARROW_GAP, self._texts(keys.narrow)
            while len(shown) > 1 and _width(shown, gap) > width:
                shown = shown[:-1]
        if (tuple(shown), gap) == (self._shown, self._shown_gap):
            return
        self._shown, self._shown_gap = tuple(shown), gap
        self.update(
            Content(" " * gap).join(
                Content.assemble((key, _style(action)), (f" {label}", "$text-muted"))
                for action, key, label in shown
            ),
            layout=False,
        )

    @property
    def _keys_now(self) -> Keys:
        store = self._store
        has_failed = store.status.phase is Phase.FAILED and store.status.loaded is None
        is_offered = isinstance(store.status.error, StreamOfferError)
        takes_back = store.queued > 0 and not store.has_text
        with_panel = _ANSWERING_WITH_DETAILS if store.shows_details else _ANSWERING_WITH_PANEL
        states = (
            (store.completing == "@", _COMPLETING_FILE),
            (bool(store.completing), _COMPLETING),
            (store.selected == "panel" and store.shows_details, _PANEL_WITH_DETAILS),
            (store.selected == "panel", _PANEL),
            (store.selected == "attachment", _ATTACHMENT),
            (store.selected == "instructions", _INSTRUCTIONS),
            (store.selected == "welcome", _WELCOME),
            (store.selected == "user", _QUESTION),
            (bool(store.selected), _ANSWER),
            (store.is_editing, _EDITING),
            (store.is_answering and takes_back, _ANSWERING_WITH_QUEUE),
            (store.is_answering and store.is_panel_shown, with_panel),
            (store.is_answering, _ANSWERING),
            (is_offered and not store.has_text, _STREAM_OFFER),
            (has_failed and store.has_text, _NO_MODEL_WITH_TEXT),
            (has_failed, _NO_MODEL),
            (takes_back, _QUEUE),
            (store.is_broken_off, _BROKEN_OFF),
            (store.status.loaded is not None and store.status.loaded.name == "demo", _IDLE_DEMO),
        )
        return next((keys for holds, keys in states if holds), _IDLE)

    def _texts(self, keys: Sequence[Key]) -> list[tuple[str, str, str]]:
        """Action (or nothing), key and label of each."""
        preferences = self._store.preferences
        own = preferences.keys if preferences else dict[str, str]()
        sends = preferences.enter_sends if preferences else True
        texts: list[tuple[str, str, str]] = []
        for key in keys:
            if key.name == _VERSIONS and not self._store.has_versions:
                continue
            if key.name == _SEND:
                texts.append(("", "Enter" if sends else "Ctrl+J", key.label))
            elif key.name in BY_NAME:
                name = shown_key(keys_of(BY_NAME[key.name], own))
                if name:
                    texts.append((key.name, name, key.label))
            else:
                texts.append(("", key.name, key.label))
        return texts


def shown_key(keys: str) -> str:
    """The first of some keys as it is written on the screen: "ctrl+l" as "Ctrl+L"."""
    first = keys.partition(",")[0]
    parts = ["Esc" if part == "escape" else part.capitalize() for part in first.split("+")]
    return "+".join(parts)


def _width(texts: Sequence[tuple[str, str, str]], gap: int) -> int:
    return sum(cell_len(key) + 1 + cell_len(label) for _, key, label in texts) + gap * (
        len(texts) - 1
    )


def _style(action: str) -> Style:
    if not action:
        return Style()
    return Style.from_meta({"@click": f"screen.perform('{action}')"})
