"""The one place of the screen's state: widgets watch what they show, and change nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.dom import DOMNode
from textual.reactive import reactive

from app.ahead.expected import AheadState
from app.chat.sources import Source
from app.dialogue.tree import Turn
from app.engine.metrics import PLAIN, Comparison, ReplyMetrics
from app.engine.status import Phase, Status
from app.settings.in_effect import Preferences, ServedAt


@dataclass(frozen=True, slots=True)
class Second:
    """One second of decoding: its rate in tokens a second, and its main drafter, empty if none."""

    rate: float
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """Figures of an answer; metrics: None before the first one has any."""

    metrics: ReplyMetrics | None = None
    plain: float | None = None
    """Tokens a second of plain decoding, the last that is known of this model."""
    minute: tuple[Second, ...] = ()
    """The last minute, oldest second first."""
    session: Comparison = PLAIN
    """All answers of this session together."""
    answers: int = 0
    """Answers that the session's comparison covers."""

    @property
    def comparison(self) -> Comparison:
        return self.metrics.comparison if self.metrics else PLAIN

    @property
    def rate(self) -> float | None:
        """Tokens a second of the whole answer so far, of which the comparison is too."""
        return self.metrics.decode_tokens_per_second if self.metrics else None


class Store(DOMNode):
    """State that more than one widget shows.

    A widget follows an attribute with `self.watch(store, "title", self._show_title)`.
    """

    status: reactive[Status] = reactive(Status(Phase.LOADING, "starting"))
    waiting_program: reactive[str] = reactive("")
    """The program that waits for an answer in progress, empty if none does."""
    draft: reactive[str] = reactive("auto")
    """The requested drafters."""
    drafting: reactive[str] = reactive("auto")
    """State of drafting: "auto", "off", "paused (11 % accepted, needs 22 %)" or "▲ lossy"."""
    schema: reactive[str] = reactive("")
    """File of the schema that the next answers must match; empty if they may be anything."""
    folder: reactive[str] = reactive("")
    """The folder of the chat, and how much of it is read; empty if it has none."""
    named_folders: reactive[str] = reactive("")
    """The folders that are named in the prompt, with what is in them."""
    ahead: reactive[AheadState | None] = reactive[AheadState | None](None)
    """How much of the next question is read already; None while an answer is in progress."""
    live: reactive[Live] = reactive(Live())
    """Figures of the newest answer."""
    sources: reactive[tuple[Source, ...]] = reactive(())
    """The passages that were read for the last answer."""
    title: reactive[str] = reactive("")
    """Title of the chat; empty for a new one."""
    not_saved: reactive[str] = reactive("")
    """Why a chat is not saved; empty if all are."""
    is_broken_off: reactive[bool] = reactive(False)
    """Whether the last answer was interrupted, or failed."""
    is_asked: reactive[bool] = reactive(False)
    """Whether the call of a tool waits for the user."""
    selected: reactive[str] = reactive("")
    """What has the focus beside the prompt: a message, by its role, an "attachment" of one, the
    "instructions", the "welcome" or the "panel"."""
    has_versions: reactive[bool] = reactive(False)
    """Whether the selected message has more than one version."""
    has_citations: reactive[bool] = reactive(False)
    """Whether the selected answer cites passages."""
    has_text: reactive[bool] = reactive(False)
    completing: reactive[str] = reactive("")
    """The kind of suggestions above the prompt: "/" for commands, "@" for files, "@ " if
    one of them is named in full."""
    is_answering: reactive[bool] = reactive(False)
    runs_command: reactive[bool] = reactive(False)
    """Whether a shell command of the user's runs."""
    queued: reactive[int] = reactive(0)
    """How many questions wait for the answer."""
    edited: reactive[Turn | None] = reactive[Turn | None](None)
    """The question that is edited in the prompt."""
    downloads: reactive[Mapping[str, str]] = reactive(dict[str, str])
    """Progress of each download, such as "34 %, 2 min left", by name of the model."""
    keeps_colours: reactive[bool] = reactive(False)
    is_panel_shown: reactive[bool] = reactive(False)
    shows_details: reactive[bool] = reactive(False)

    preferences: reactive[Preferences] = reactive(Preferences(Path()))

    def __init__(self, preferences: Preferences, served_at: ServedAt | None = None) -> None:
        super().__init__()
        self.model_order = "catalogue"
        """How the list of models was sorted last."""
        self.served_at: ServedAt | None = served_at
        """Where other programs reach the model, None if nowhere; it never changes."""
        self.set_reactive(Store.preferences, preferences)
