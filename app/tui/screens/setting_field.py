"""The rows of the settings: what each is called, how its value reads, and what it does."""

from dataclasses import dataclass
from enum import Enum, auto

from app.loading.context_check import LEAST_CONTEXT
from app.loading.session_options import DEFAULT_CONTEXT
from app.printable import one_line
from app.settings.catalogue import Value
from app.settings.reading_ahead import AHEAD_AUTO, AHEAD_OFF, AHEAD_ON, MOST_AHEAD_WASTE
from app.tui.usable_preferences import THEMES


class Edit(Enum):
    """How a row is changed."""

    TEXT = auto()
    LINES = auto()
    CHOICE = auto()
    LIST = auto()

    @property
    def keys(self) -> str:
        """The keys that change it."""
        return {Edit.CHOICE: "← → change", Edit.LIST: "Enter lists them"}.get(self, "Enter edit")


@dataclass(frozen=True, slots=True)
class SettingField:
    """A row. name: of the setting. text: what it does. unit: after a number.

    wanted: what can be typed, said after something else was.
    """

    name: str
    label: str
    text: str
    edit: Edit = Edit.TEXT
    unit: str = ""
    words: tuple[tuple[Value, str, str], ...] = ()
    """Values with their words, and with shorter ones for narrow screens."""
    choices: tuple[Value, ...] = ()
    wanted: str = ""

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
_AHEAD = (
    (AHEAD_AUTO, "when the machine has time to spare", "with spare time"),
    (AHEAD_ON, "always", "always"),
    (AHEAD_OFF, "never", "never"),
)

PRESET_FIELD = SettingField(
    "preset", "Preset", "Settings under a name, from the settings file.", Edit.CHOICE
)
CHAT = (
    SettingField("system", "Instructions", "What the model is told before the chat.", Edit.LINES),
    SettingField(
        "temperature", "Temperature", "0 always picks the likeliest word; higher varies.",
        wanted="0, or a number from 0.001 to 100, such as 0.7",
    ),
    SettingField(
        "max_tokens", "Longest answer", "Longer ones are cut; Ctrl+T continues.", unit="tokens",
        wanted="a whole number from 1, such as 2048",
    ),
    PRESET_FIELD,
)  # fmt: skip
MORE = (
    SettingField("top_k", "Top-k", "Only the k likeliest tokens; 0 for all.",
                 wanted="a whole number from 0, such as 40"),
    SettingField("top_p", "Top-p", "Only the likeliest tokens that add up to this share.",
                 wanted="a number above 0, at most 1, such as 0.95"),
    SettingField("min_p", "Min-p", "Only tokens with this share of the likeliest one's.",
                 wanted="a number from 0 to 1, such as 0.05"),
    SettingField("repeat_penalty", "Repetition", "Above 1 repeats less; 1 changes nothing.",
                 wanted="a number from 0.01 to 100, such as 1.1"),
    SettingField("seed", "Seed", "A number makes the same answer again.",
                 wanted="a whole number from 0, such as 7"),
    SettingField(
        "lossy", "Lossy", "Also keeps guesses that the model would not have made: faster, but no "
        "longer its own answers. off, typical, ears:0.1 or lenient:2.",
        wanted="off, typical, ears:0.1 or lenient:2",
    ),
)  # fmt: skip
EVERY_CHAT = (
    SettingField(
        "model", "Model", "What answers.", Edit.LIST, words=(("", "not loaded", "not loaded"),)
    ),
    SettingField("draft", "Drafter", "What guesses ahead.", Edit.LIST),
    SettingField(
        "ctx", "Context size", "What the model can see; more takes more memory.", unit="tokens",
        wanted=f"a whole number from {LEAST_CONTEXT}, such as {DEFAULT_CONTEXT}",
    ),
    _switch("learn", "Learn", "Drafters learn from answers, on this machine alone."),
    SettingField(
        "ahead", "Read ahead", "Reads what you type before you send it.", Edit.CHOICE,
        words=_AHEAD, choices=tuple(value for value, _, _ in _AHEAD),
    ),
    SettingField(
        "ahead_waste", "Reading limit", "Processor time for text that changes before it is sent.",
        unit="s a message", wanted=f"a number from 0 to {MOST_AHEAD_WASTE:g}, such as 5",
    ),
)  # fmt: skip
APPEARANCE = (
    SettingField("theme", "Theme", "Colours of the app.", Edit.CHOICE, choices=THEMES),
    SettingField(
        "panel", "Panel", "Figures beside the chat; F2 shows and hides them.", Edit.CHOICE,
        words=_PANEL, choices=tuple(value for value, _, _ in _PANEL),
    ),
    _switch("animations", "Animation", "Moving and fading on the screen."),
    _switch("enter_sends", "Enter sends", "If not, Ctrl+J sends and Enter starts a new line."),
)  # fmt: skip
MORE_TEXT = f"More: {', '.join(field.label.lower() for field in MORE)}"
MORE_SHORT = "More…"
