"""The list of drafters for the loaded model, ranked by measured speedup."""

from concurrent.futures import Future
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.pairing.pairing_format import doubt, facts_in_words
from app.pairing.ranking import Pair, Ranking
from app.printable import one_line
from backends.base import SpecchatError

_POLL_SECONDS = 0.1
_HINT = (
    "Enter drafts with the drafter, after downloading it if needed. "
    "Speedups follow from measured costs and past acceptance; unmeasured ones are left out."
)


class DraftersScreen(ModalScreen[str | None]):
    """Returns the SPEC of the drafter to use, None if none was chosen."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "Back")]
    DEFAULT_CSS: ClassVar[str] = """
    DraftersScreen { align: center middle; }
    DraftersScreen Vertical {
        width: 96%; max-width: 110; height: 80%; border: round $primary; background: $surface;
    }
    DraftersScreen OptionList { height: 1fr; border: none; }
    DraftersScreen Static { color: $text-muted; padding: 0 1; height: auto; }
    """

    def __init__(self, ranking: Future[Ranking]) -> None:
        super().__init__()
        self._ranking = ranking
        self._is_shown = False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield OptionList()
            yield Static("Comparing as soon as no answer is in progress…")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self.set_interval(_POLL_SECONDS, self._show)

    def _show(self) -> None:
        if self._is_shown or not self._ranking.done():
            return
        self._is_shown = True
        hint = self.query_one(Static)
        try:
            ranking = self._ranking.result()
        except SpecchatError as error:
            hint.update(Content(str(error)))
            return
        warning = f" Costs were {doubt(ranking.spread)}." if ranking.spread else ""
        hint.update(Content(_HINT + warning))
        option_list = self.query_one(OptionList)
        option_list.add_options([_option(pair) for pair in ranking.pairs])
        option_list.highlighted = 0

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


def _option(pair: Pair) -> Option:
    drafter = pair.drafter
    facts = one_line("; ".join(facts_in_words(pair)))
    line = Content.assemble((one_line(drafter.name), "bold"), f"  {facts}")
    return Option(line, id=drafter.name, disabled=drafter.is_compatible is False)
