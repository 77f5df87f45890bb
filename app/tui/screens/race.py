"""A race: one question answered twice, plain and then drafted, with two clocks and one text."""

import math
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Stage
from app.engine.engine import Engine
from app.engine.metrics import PLAIN, Comparison, Standing, compare_replies
from app.engine.reply import Request
from app.learned.speeds import PlainReplies
from app.paths import Paths
from app.printable import one_line, printable
from app.tui import wording
from app.tui.look import kind_of
from app.tui.panel.figures import first_drafter
from app.tui.screens.drafters import DraftersScreen
from app.tui.store import Store
from app.tui.widgets import MUTED, is_narrow, keys_line, typed_app
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings

_TITLE, _SECONDS, _RATE = 9, 8, 15
_HALF_SECONDS = 10.0
"""When the first bar is half full while nothing tells how long the answer takes."""


def _seconds(answer: Answer) -> float:
    """Seconds of decoding; 0 before the first token."""
    return answer.reply.statistics.decode_seconds or 0.0


def _clock(title: str, answer: Answer, width: int, longest: float | None, hue: str) -> Content:
    """A bar that grows with the time, and the speed; longest: seconds of a full bar, if known."""
    head, seconds = f" {title:<{_TITLE}}", _seconds(answer)
    if answer.stage is Stage.QUEUED:
        return Content.assemble(head, ("waiting", MUTED))
    if not seconds and not answer.is_done:
        done, total = answer.read
        note = f"reading {100 * done // total} %" if total else "reading"
        return Content.assemble(head, (note, MUTED))
    is_small = is_narrow(width)
    room = max(width - 2 - _TITLE - _SECONDS - (0 if is_small else _RATE), 0)
    half = 1.0 - math.exp2(-seconds / _HALF_SECONDS)
    filled = round(room * (min(seconds / longest, 1.0) if longest else half))
    time = f"{seconds:.1f} s" if seconds else ""
    rate = answer.reply.statistics.decode_tokens_per_second if seconds else None
    speed = f"  {wording.rate(rate)}" if rate is not None and not is_small else ""
    bar = ("█" * filled, hue), " " * (room - filled)
    return Content.assemble(head, *bar, f"{time:>{_SECONDS}}{speed}").truncate(width)


def verdict(plain: Answer, drafted: Answer, paths: Paths) -> tuple[str, ...]:
    """How the speeds, and how the texts of the two answers of a race that has ended compare."""
    fault = plain.error or drafted.error
    if fault or plain.is_stopped or drafted.is_stopped:
        why = one_line(fault.summary) if fault else "an answer was stopped"
        return (f"✕ no verdict: {why}",)
    compared = comparison(plain, drafted, paths)
    is_plain = compared.standing is Standing.PLAIN
    speed = "nothing was drafted, so both are plain" if is_plain else compared.panel_words
    return speed, _text_words(plain, drafted)


def comparison(plain: Answer, drafted: Answer, paths: Paths) -> Comparison:
    """The speed of one answer against the other, both measured on decoding alone.

    Only the time from the first token to the last one counts. The second answer finds the prompt in
    the cache, where the first one had to read it, so time to the first token would favour it.

    The error is that of two whole replies, each of which varies as plain replies do here.
    """
    metrics = drafted.metrics
    if plain.metrics is None or metrics is None:
        return Comparison(Standing.SHORT)
    rates = plain.metrics.decode_tokens_per_second, metrics.decode_tokens_per_second
    if not rates[0] or not rates[1]:
        return Comparison(Standing.SHORT)
    if not metrics.drafted:
        return PLAIN
    spread = PlainReplies.of(metrics.model, paths).spread
    tokens = min(len(plain.token_ids), len(drafted.token_ids))
    return compare_replies(rates[1], rates[0], tokens, spread)


def first_difference(plain: str, drafted: str) -> int | None:
    """Where two texts begin to differ: at the start of a word; None if they are equal."""
    if plain == drafted:
        return None
    shorter = min(len(plain), len(drafted))
    pairs = zip(plain, drafted, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)
    while same and not plain[same - 1].isspace():
        same -= 1
    return same


def _text_words(plain: Answer, drafted: Answer) -> str:
    lossy = drafted.metrics.lossy if drafted.metrics is not None else ""
    counts = f"{len(plain.token_ids):,} and {wording.counted(len(drafted.token_ids), 'token')}"
    temperature = plain.request.settings.temperature
    place = first_difference(plain.text, drafted.text)
    if place is None:
        same = f"word for word the same, {wording.counted(len(plain.token_ids), 'token')}"
    elif temperature > 0.0 or lossy:
        drawn = f", drawn at temperature {temperature:g}" if temperature > 0.0 else ""
        same = f"unequal texts{drawn}: {counts}"
    else:
        words = len(plain.text[:place].split())
        same = f"same up to word {words:,}, then a tie; `specchat verify` checks"
    return wording.joined([lossy, same])


_UPDATE_SECONDS = 0.25
"""Between two paints: painting takes the same little time from both answers."""

_OFF, _AUTO = "off", "auto"
_NAMES = "plain", "drafted"
_ADVICE = "Run one after the other, so that neither slows the other down."
_KEYS = ("Enter again   ", "F3 another drafter   Esc back")
_SHORT_KEYS = ("Enter again  ", "F3 drafter  Esc back")
"""The keys: those of a race that has ended, and those of every race."""

_TYPED = "Esc back to the chat, to type there"


_DEMONSTRATION = """\
Correct the spelling of this letter and change nothing else:

Dear Ms Lindqvist, thank you for your letter of the third of April. The weather here is often \
rainy, so it is wise to bring an umbrela when you come. From the station you walk along the river \
for ten minuts; our house is the one with the green door. We are at home from four on, and there \
will be tea. If the train is late, do not hurry: the kettle can wait."""
"""An editing task; lookup drafts about 80 % of the 90 tokens that the demo model answers with."""


def demonstration() -> tuple[str, Request]:
    """A race that shows what drafting does: win or not, it is this machine's result."""
    conversation = Conversation("", [Message("user", _DEMONSTRATION)])
    settings = SamplingSettings(temperature=0.0)
    return "correcting a letter", Request(conversation, settings, 300)


class RaceScreen(Screen[None]):
    """Runs plain decoding first, then drafting: at once they would slow each other down.

    title: of the chat, or of the built-in text. request: what is raced. draft: the drafters to
    race, by default those in use.
    """

    app = typed_app
    AUTO_FOCUS: ClassVar[str | None] = "#page"
    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Back"),
        Binding("enter", "again", "Again"),
        Binding("f3", "drafters", "Another drafter"),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    RaceScreen .line { height: 1; text-wrap: nowrap; }
    RaceScreen #clocks { height: 2; text-wrap: nowrap; margin: 1 0; }
    RaceScreen #verdict, RaceScreen #advice { padding: 0 1; }
    RaceScreen #advice { color: $text-muted; }
    RaceScreen #page { height: 1fr; margin: 1 0 0 0; padding: 0 1 0 3; scrollbar-size-vertical: 1; }
    RaceScreen #texts { height: auto; layout: vertical; max-width: 77; }
    RaceScreen #texts.-paired { max-width: 100%; }
    RaceScreen.-wide #texts.-paired { layout: horizontal; }
    RaceScreen.-wide #texts.-paired Static { width: 1fr; padding: 0 2 0 0; }
    """

    def __init__(
        self, store: Store, engine: Engine, title: str, request: Request, draft: str | None = None
    ) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self._of, self._request = title, request
        wanted = draft or engine.draft
        self._draft = wanted if wanted != _OFF else _AUTO
        self.answers: tuple[Answer, ...] = ()
        """The plain answer and the drafted one."""
        self.outcome: tuple[str, ...] = ()
        """The verdict, once both answers are done."""
        self._shown_text: tuple[str, int] | None = None
        self._is_typed_into = False
        """Whether letters were typed: Enter then ends a text for the chat, and is no wish."""

    def compose(self) -> ComposeResult:
        yield Static(id="title", classes="line")
        yield Static(id="clocks")
        yield Static(id="verdict")
        yield Static(_ADVICE, id="advice")
        with VerticalScroll(id="page"), Container(id="texts"):
            yield Static(id="first")
            yield Static(id="second")
        keys = Static(id="keys", classes="line")
        keys.auto_links = False
        yield keys

    def on_mount(self) -> None:
        self._begin()
        self.set_interval(_UPDATE_SECONDS, self._update)

    def on_resize(self, event: events.Resize) -> None:
        width = event.size.width
        self._show_keys()
        self.query_one("#advice").display = not is_narrow(width)
        self.query_one("#title", Static).update(self._title(width))
        self._show_clocks()
        self._show_verdict()

    def on_key(self, event: events.Key) -> None:
        """Nothing can be typed here: say where."""
        if event.is_printable:
            event.stop()
            self._is_typed_into = True
            self._show_keys()

    def _show_keys(self) -> None:
        again, others = _SHORT_KEYS if is_narrow(self.app.size.width) else _KEYS
        keys = f"{again if self.outcome else ''}{others}"
        self.query_one("#keys", Static).update(
            keys_line(f" {_TYPED if self._is_typed_into else keys}")
        )

    def _begin(self) -> None:
        """Ask both questions; the engine answers one after the other, and learns from neither."""
        self._stop()
        self.answers = self._ask(_OFF), self._ask(self._draft)
        self.outcome = ()
        self._shown_text = None
        self._show_beside(False)
        self._show_verdict()
        self._update()

    def _show_beside(self, is_paired: bool) -> None:
        """Show one text, or two: side by side where there is room."""
        self.query_one("#second").display = is_paired
        self.query_one("#texts").set_class(is_paired, "-paired")

    def _ask(self, draft: str) -> Answer:
        own = self._request.conversation
        conversation = replace(own, turns=list(own.turns))
        return self._engine.ask(replace(self._request, conversation=conversation, draft=draft))

    def _stop(self) -> None:
        for answer in self.answers:
            answer.stop()

    def _title(self, width: int) -> Content:
        title = f"Race: {one_line(self._of)}"
        loaded = self._engine.status.loaded
        model = one_line(loaded.name) if loaded else ""
        if loaded and not is_narrow(width):
            model = f"{model} · {loaded.info.device.partition(':')[0]}"
        room = max(width - 3 - cell_len(model), 0)
        named = Content.styled(title, "bold").truncate(room, ellipsis=True, pad=True)
        return Content.assemble(" ", named, " ", (model, MUTED))

    def _update(self) -> None:
        if self.outcome or not self.answers:
            return
        self._show_clocks()
        plain, drafted = self.answers
        if not (plain.is_done and drafted.is_done):
            self._show_progress(plain, drafted)
            return
        self.outcome = verdict(plain, drafted, self._engine.paths)
        self._show_verdict()
        self._show_texts(plain, drafted)

    def _show_clocks(self) -> None:
        is_known = bool(self.answers) and self.answers[0].is_done
        longest = max(map(_seconds, self.answers)) if is_known else None
        lines = [
            _clock(name, one, self.size.width, longest, hue)
            for name, one, hue in zip(_NAMES, self.answers, (MUTED, self._hue), strict=False)
        ]
        self.query_one("#clocks", Static).update(Content("\n").join(lines))

    @property
    def _hue(self) -> str:
        metrics = self.answers[1].metrics if self.answers else None
        if metrics is None or not metrics.accepted:
            return MUTED
        return kind_of(first_drafter(metrics.by_drafter)).hue

    def _show_verdict(self) -> None:
        separator = "\n" if is_narrow(self.app.size.width) else " · "
        self._show_keys()
        said = separator.join(filter(None, self.outcome))
        text = Content(said or f"drafted by: {one_line(self._draft)}")
        self.query_one("#verdict", Static).update(text.stylize("bold") if said else text)

    def _show_progress(self, plain: Answer, drafted: Answer) -> None:
        """One text: while the second answer runs, what it has not reached yet is muted."""
        text = plain.text
        reached = drafted.text
        difference = first_difference(text[: len(reached)], reached)
        done = (
            len(text) if not plain.is_done else len(reached) if difference is None else difference
        )
        if (text, done) == self._shown_text:
            return
        self._shown_text = text, done
        shown = printable(text[:done]), (printable(text[done:]), MUTED)
        self.query_one("#first", Static).update(Content.assemble(*shown))
        if not plain.is_done:
            self.query_one("#page", VerticalScroll).scroll_end(animate=False)

    def _show_texts(self, plain: Answer, drafted: Answer) -> None:
        texts = plain.text, drafted.text
        first, second = self.query_one("#first", Static), self.query_one("#second", Static)
        self.query_one("#page", VerticalScroll).scroll_home(animate=False)
        place = first_difference(*texts)
        self._show_beside(place is not None)
        if place is None:
            first.update(Content(printable(texts[0])))
            return
        for widget, title, text in zip((first, second), _NAMES, texts, strict=True):
            rest = f"{'… ' if place else ''}{printable(text[place:])}"
            widget.update(Content.assemble((f"{title}\n", MUTED), rest, "\n"))

    def action_again(self) -> None:
        """Race once more, after a race that has ended; not with the end of a typed text."""
        if self._is_typed_into:
            self._is_typed_into = False
            self._show_keys()
        elif self.outcome:
            self._begin()

    def action_drafters(self) -> None:
        # Measuring would wait for the race to end, and delay the next one.
        screen = DraftersScreen(self._store, self._engine, is_measured=bool(self.outcome))
        self.app.push_screen(screen, self._use)

    def _use(self, choice: tuple[str, str] | None) -> None:
        if choice is not None and choice[1] != _OFF:
            self._draft = choice[1]
            self._begin()

    def action_leave(self) -> None:
        self._stop()
        self._engine.set_draft(self._engine.draft)  # the race had drafters of its own
        self.dismiss()
