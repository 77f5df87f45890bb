"""The rows of the settings: what each is called, how its value reads, and what it does."""

from dataclasses import dataclass
from enum import StrEnum

from app.printable import one_line
from app.settings.catalogue import Value
from app.tui.usable_preferences import THEMES


class Edit(StrEnum):
    """How a row is changed."""

    TEXT = "Enter edits"
    LINES = "Enter edits, Ctrl+J starts a new line"
    CHOICE = "← → change"
    LIST = "Enter lists them"


@dataclass(frozen=True, slots=True)
class SettingField:
    """A row. name: of the setting. text: what it does. unit: after a number."""

    name: str
    label: str
    text: str
    edit: Edit = Edit.TEXT
    unit: str = ""
    words: tuple[tuple[Value, str, str], ...] = ()
    """Values with their words, and with shorter ones for narrow screens."""
    choices: tuple[Value, ...] = ()

    def shown(self, value: Value | None, *, is_narrow: bool = False) -> str:
        """A value in words."""
        for known, words, short in self.words:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return short if is_narrow else words
        if value is None:
            return "random"
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
            return f"{number} {self.unit}".rstrip()
        return one_line(str(value)) or "none"


def _switch(name: str, label: str, text: str) -> SettingField:
    words = ((True, "yes", "yes"), (False, "no", "no"))
    return SettingField(name, label, text, Edit.CHOICE, "", words, (True, False))


_PANEL = (
    ("auto", "where there is room", "where it fits"),
    ("shown", "always", "always"),
    ("hidden", "never", "never"),
)

PRESET_FIELD = SettingField(
    "preset", "Preset", "Settings under a name, from the settings file.", Edit.CHOICE
)
CHAT = (
    SettingField("system", "Instructions", "What the model is told before the chat.", Edit.LINES),
    SettingField("temperature", "Temperature", "0 always picks the likeliest word; higher varies."),
    SettingField(
        "max_tokens", "Longest answer", "Longer ones are cut; Ctrl+T continues.", unit="tokens"
    ),
    PRESET_FIELD,
)
MORE = (
    SettingField("top_k", "Top-k", "Only the k likeliest tokens; 0 for all."),
    SettingField("top_p", "Top-p", "Only the likeliest tokens that add up to this share."),
    SettingField("min_p", "Min-p", "Only tokens with this share of the likeliest one's."),
    SettingField("repeat_penalty", "Repetition", "Above 1 repeats less; 1 changes nothing."),
    SettingField("seed", "Seed", "A number makes the same answer again."),
    SettingField("lossy", "Lossy", "Faster, another text: off, typical, ears:0.1, lenient:2."),
)
EVERY_CHAT = (
    SettingField("model", "Model", "What answers.", Edit.LIST),
    SettingField("draft", "Drafter", "What guesses ahead.", Edit.LIST),
    SettingField(
        "ctx", "Context size", "What the model can see; more takes more memory.", unit="tokens"
    ),
    _switch("learn", "Learn", "Drafters learn from answers, on this machine alone."),
)
APPEARANCE = (
    SettingField("theme", "Theme", "Colours of the app.", Edit.CHOICE, choices=THEMES),
    SettingField(
        "panel", "Panel", "Figures beside the chat; F2 shows and hides them.", Edit.CHOICE,
        words=_PANEL, choices=tuple(value for value, _, _ in _PANEL),
    ),
    _switch("animations", "Animation", "Moving and fading on the screen."),
    _switch("enter_sends", "Enter sends", "If not, Ctrl+J sends and Enter starts a new line."),
)  # fmt: skip
MORE_TEXT, MORE_SHORT = "More: top-k, top-p, min-p, repetition, seed, lossy", "More…"
