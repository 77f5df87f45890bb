"""The bottom row: the keys that work now."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from app.actions import BY_NAME
from app.engine.status import Phase
from app.loading.streaming import StreamOfferError
from app.tui.keymap import keys_of, sending_key
from app.tui.store import Store
from app.tui.widgets import clickable

_GAP, _NARROW_GAP = 3, 2


_SEND = "send"
"""Stands for the key that sends."""

_VERSIONS, _CITATIONS = "← →", "citations"


# The keys of a state, most important first, with two blanks between them. Each is a key, or the
# action whose key it is, a "=" and what it does, after a "|" in fewer words. Where not all of that
# fits, the words are few, and keys with a "?" before them are left out.

_IDLE = "send=send  /=commands  ?@=files  ?chats=chats  ?model=models  help=help"
_IDLE_DEMO = "send=send  ?/=commands  ?@=files  ?chats=chats  model=models  help=help"
_ANSWERING = "stop=stop  ?send=queues  panel=panel  ?colours=keep colours  help=help"
_ANSWERING_WITH_PANEL = _ANSWERING.replace("panel=panel", "panel=panel|details")
_ANSWERING_WITH_DETAILS = _ANSWERING.replace("panel=panel", "panel=panel|close details")
_ANSWERING_WITH_QUEUE = "stop=stop  ↑=takes back the last one|take back  ?send=queues  help=help"
_RUNNING = "stop=stops the command|stop the command  ?send=send  ?/=commands  ?@=files  help=help"
_QUEUE = (
    "send=on an empty prompt sends the next|sends next  ↑=takes back the last one|take back  "
    "help=help"
)
_QUEUE_WITH_TEXT = "send=queues this and sends the next|queues, sends next  help=help"
_EDITING = "send=adds a version|adds it  Esc=back  ?@=files  ?editor=editor  help=help"
_NO_MODEL_WITH_TEXT = "send=queues  model=models  ?help=help"
_NO_MODEL = "send=try again|again  model=models  ?help=help"
_STREAM_OFFER = "send=reads it from disk|from disk  model=models  ?help=help"
_ASKED = "go_on=decide  Esc=refuse  help=help"
_BROKEN_OFF = "go_on=continue  model=models  ?help=help"
_COMPLETING_FILE = "↑ ↓=choose  Enter=fill in  Esc=close"
_COMPLETING_SENT = "↑ ↓=choose  send=send  Tab=fill in  Esc=close"
_COMPLETING = "↑ ↓=choose  ?Enter=run  Tab=fill in  Esc=close"
_PANEL_WITH_DETAILS = "↑ ↓=explain the next|explain  panel=close  Esc=back  ?help=help"
_SELECTED = {
    "panel": "↑ ↓=explain the next|explain  ?panel=details  Esc=back  ?help=help",
    "attachment": "↑ ↓=move  Enter=unfold, or fold again|unfold  Esc=back  ?help=help",
    "instructions": "↑ ↓=move  Enter=edit  Esc=back  ?help=help",
    "welcome": "↑ ↓=move  Enter=choose  Esc=back  ?help=help",
    "find": "Enter=next  ↑=previous  Esc=back",
    "user": "?↑ ↓=move  Enter=edit  ← →=versions  Esc=back  ?help=help",
    "assistant": "?↑ ↓=move  Enter=copy  Tab=citations  ← →=versions  Esc=back  ?help=help",
}
"""By what has the focus beside the prompt."""

_WATCHED = (
    *("status", "is_answering", "queued", "edited", "is_broken_off", "preferences"),
    *("runs_command", "is_asked", "selected", "has_versions", "has_citations", "has_text"),
    *("completing", "is_panel_shown", "shows_details"),
)
"""Attributes of the store that determine the keys shown."""


class KeysBar(Static):
    """One row of keys, which can be clicked; those on the right drop out as it narrows."""

    DEFAULT_CSS: ClassVar[str] = """
    KeysBar {
        height: 1; padding: 0 1; text-wrap: nowrap;
        link-style: none; link-color: $foreground; link-style-hover: underline;
        link-background-hover: transparent; link-color-hover: $foreground;
    }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def on_mount(self) -> None:
        for attribute in _WATCHED:
            self.watch(self._store, attribute, self._show, init=False)

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        width, keys, gap = self.content_size.width, self._keys_now, _GAP
        shown = self._texts(keys)
        if _width(shown, gap) > width:
            gap, shown = _NARROW_GAP, self._texts(keys, is_short=True)
            while len(shown) > 1 and _width(shown, gap) > width:
                shown = shown[:-1]
        self.update(
            Content(" " * gap).join(
                Content.assemble((key, _style(action)), (f" {label}", "$text-muted"))
                for action, key, label in shown
            ),
            layout=False,
        )

    @property
    def _keys_now(self) -> str:
        store = self._store
        has_failed = store.status.phase is Phase.FAILED and store.status.loaded is None
        is_offered = isinstance(store.status.error, StreamOfferError)
        takes_back = store.queued > 0 and not store.has_text
        with_panel = _ANSWERING_WITH_DETAILS if store.shows_details else _ANSWERING_WITH_PANEL
        states = (
            (store.completing == "@", _COMPLETING_FILE),
            (store.completing == "@ ", _COMPLETING_SENT),
            (bool(store.completing), _COMPLETING),
            (store.selected == "panel" and store.shows_details, _PANEL_WITH_DETAILS),
            (bool(store.selected), _SELECTED.get(store.selected, _IDLE)),
            (store.edited is not None, _EDITING),
            (store.runs_command, _RUNNING),
            (store.is_answering and takes_back, _ANSWERING_WITH_QUEUE),
            (store.is_answering and store.is_panel_shown, with_panel),
            (store.is_answering, _ANSWERING),
            (is_offered and not store.has_text, _STREAM_OFFER),
            (has_failed and store.has_text, _NO_MODEL_WITH_TEXT),
            (has_failed, _NO_MODEL),
            (takes_back, _QUEUE),
            (store.queued > 0, _QUEUE_WITH_TEXT),
            (store.is_asked, _ASKED),
            (store.is_broken_off and not store.has_text, _BROKEN_OFF),
            (store.status.loaded is not None and store.status.loaded.name == "demo", _IDLE_DEMO),
        )
        return next((keys for holds, keys in states if holds), _IDLE)

    def _texts(self, keys: str, *, is_short: bool = False) -> list[tuple[str, str, str]]:
        """Action (or nothing), key and label of each."""
        preferences = self._store.preferences
        texts: list[tuple[str, str, str]] = []
        for key in keys.split("  "):
            name, _, words = key.removeprefix("?").partition("=")
            label = words.split("|")[-1 if is_short else 0]
            if is_short and key.startswith("?"):
                continue
            if name == _SEND:
                texts.append(("", sending_key(preferences), label))
            elif label == _CITATIONS and not self._store.has_citations:
                continue
            elif name not in BY_NAME and (name != _VERSIONS or self._store.has_versions):
                texts.append(("", name, label))
            elif name in BY_NAME and (shown := shown_key(keys_of(BY_NAME[name], preferences.keys))):
                texts.append((name, shown, label))
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
    return clickable(f"screen.perform('{action}')") if action else Style()
