"""The next request as far as it is known before it comes, and when it may be read ahead."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from app.chat.conversation import Conversation
from app.settings.catalogue import (
    AHEAD_AUTO,
    AHEAD_OFF,
    AHEAD_ON,
    DEFAULT_AHEAD_WASTE,
    SWITCHED_OFF,
)
from backends.chat.message import Message, Tool

if TYPE_CHECKING:
    from app.learned.calibrations import ProcessorTimes


# Whether the model may read ahead of the user now.

_LOOK_SECONDS = 1.0
"""Between two looks at the machine."""

_BUSY = 0.25
"""Share of the processors taken by other programs from which the machine is busy. A guess; not
measured."""


_PROFILE = Path("/sys/firmware/acpi/platform_profile")
"""Where Linux tells the power profile that the user chose."""

_SAVING = frozenset({"low-power", "quiet"})
"""Profiles that give up speed."""


@dataclass(slots=True)
class ThisMachine:
    """Readings of the machine that this runs on; all together take less than a millisecond."""

    _before: "ProcessorTimes | None" = field(default=None, init=False)

    def is_on_battery(self) -> bool | None:
        try:
            battery = psutil.sensors_battery()
        except (AttributeError, OSError, RuntimeError, ValueError):  # not on every system
            return None
        plugged = None if battery is None else battery.power_plugged
        return None if plugged is None else not plugged

    def saves_power(self) -> bool | None:
        try:
            return _PROFILE.read_text(encoding="ascii").strip() in _SAVING
        except (OSError, ValueError):  # another system, or a machine without profiles
            return None

    def others_share(self) -> float:
        """Share since the last call, which one long piece may separate from this; 0 if just now."""
        from app.learned.calibrations import ProcessorTimes  # when it is first asked

        before, self._before = self._before, ProcessorTimes.now()
        return 0.0 if before is None else before.load_until(self._before)


class Permission:
    """Tells why nothing may be read ahead; any thread may change the settings.

    setting: one of AHEAD_CHOICES. waste: processor seconds a message that may be read in vain.
    The program's own work never makes the machine busy.
    """

    def __init__(
        self,
        setting: str = AHEAD_AUTO,
        waste: float = DEFAULT_AHEAD_WASTE,
        machine: ThisMachine | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.setting = setting
        self.waste = waste
        self._machine = machine or ThisMachine()
        self._now = now
        self._looked_at = float("-inf")
        self._refusal = ""

    def __call__(self) -> str:
        """Why nothing may be read ahead now, in words; empty if it may. For one thread."""
        if self.setting == AHEAD_OFF:
            return SWITCHED_OFF
        if self.setting == AHEAD_ON:
            return ""
        if self._now() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._now()
            self._refusal = self._look()
        return self._refusal

    def most_waste(self) -> float:
        return self.waste

    def _look(self) -> str:
        machine = self._machine
        others = machine.others_share()  # always: it covers the time since the last look
        if machine.is_on_battery():
            return "on battery"
        if machine.saves_power():
            return "saving power"
        return "the machine is busy" if others >= _BUSY else ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A conversation that the next request is expected to begin with.

    conversation: ends with what is typed so far as the user's turn, attachments in full, or with
    the last answer while nothing is typed; not to be changed any more. typed_at: time.monotonic()
    of the last key. is_typing: whether its last word may still change; what is certain as it
    stands is read at once. tools: as in Request.
    """

    conversation: Conversation
    typed_at: float
    is_typing: bool
    tools: tuple[Tool, ...] = ()

    def leads_to(self, conversation: Conversation, tools: tuple[Tool, ...] = ()) -> bool:
        """Whether what is read of this is very likely the beginning of a conversation's prompt."""
        *before, last = conversation.turns or [Message("", "")]
        mine = self.conversation
        turns, text = mine.turns, ""
        if turns and turns[-1].role == "user":
            turns, text = turns[:-1], turns[-1].content
        led = conversation.system, conversation.think, before, tools
        return (mine.system, mine.think, turns, self.tools) == led and last.content.startswith(
            text.rstrip()
        )


@dataclass(frozen=True, slots=True)
class AheadState:
    """Progress of reading ahead, for any thread.

    read, total: tokens of the expected prompt that are ready, and all of them. paused: why nothing
    is read at present; empty while reading, and once all that is certain is read.
    """

    read: int
    total: int
    paused: str = ""


@dataclass(slots=True, eq=False)
class Expectation:
    """What is expected at present: any thread tells it, the engine's thread follows.

    latest: what was told last, None for nothing. followed: what the engine reads, that of which a
    pass may run, whatever was told since. may_read: why nothing may be read now, "" if it may.
    most_waste: processor seconds per message after which nothing that is typed is read until it is
    sent.
    """

    may_read: Callable[[], str]
    most_waste: Callable[[], float]
    publish: Callable[[AheadState | None], None]
    latest: Expected | None = None
    followed: Expected | None = None

    def led_to(self, conversation: Conversation, tools: tuple[Tool, ...] = ()) -> bool:
        """Whether what was read last is very likely the beginning of a conversation's prompt.

        Also if something else is expected meanwhile, or nothing, as the request is on its way.
        """
        followed = self.followed
        return followed is not None and followed.leads_to(conversation, tools)


_SENTENCE_ENDS = frozenset(".?!…。？！")  # noqa: RUF001 - as other scripts write them
_CLOSING = "\"')]}»”’」"  # noqa: RUF001

AFTER_SENTENCE_SECONDS = 0.05
"""After the end of a sentence, which Enter often follows, as soon as another key would. What is
read in vain where another sentence follows is a few tokens a sentence. A guess; not measured."""

ELSEWHERE_SECONDS = 0.6
"""Longer than between most keys, and than the pauses between most words. A guess; not measured."""


def ends_sentence(text: str) -> bool:
    return text.rstrip().rstrip(_CLOSING)[-1:] in _SENTENCE_ENDS


def pause_before(text: str) -> float:
    """Seconds without a key after which a text is read on."""
    return AFTER_SENTENCE_SECONDS if ends_sentence(text) else ELSEWHERE_SECONDS
