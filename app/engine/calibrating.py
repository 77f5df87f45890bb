"""Measures in idle time what the model's passes cost, where the next start would."""

import time
from collections.abc import Callable
from dataclasses import replace

from app.engine.session import Session
from app.learned.calibrations import Calibrations
from backends.base import PassStoppedError

_PAUSE_SECONDS = 20.0
"""Idle time before it begins: a measured pass cannot be stopped. A guess; not measured."""

_LOOK_AGAIN_SECONDS = 60.0
"""Time after which it is asked again whether anything may be measured."""

_SLOWEST_SECONDS = 0.1
"""Longest plain step: passes over 16 tokens then keep a request waiting for less than a second. A
guess; not measured."""


class Calibrating:
    """Measures costs that are uncertain, or have drifted, so that the next start need not.

    may_measure: why nothing may be measured now, "" if it may.
    """

    def __init__(self, session: Session, may_measure: Callable[[], str]) -> None:
        self._session = session
        self._may_measure = may_measure
        self._is_due = True
        self._not_before = 0.0

    def changed(self) -> None:
        """Note that a reply has corrected the costs."""
        self._is_due = True

    def due_in(self, idle: float) -> float | None:
        """Seconds until it begins, after so many idle ones; None if there is nothing to measure."""
        if not self._is_due or not self._is_possible:
            return None
        return max(_PAUSE_SECONDS - idle, self._not_before - time.monotonic())

    @property
    def _is_possible(self) -> bool:
        """Whether drafts are planned by measured costs, and passes are short."""
        drafting, info = self._session.drafting, self._session.model.info
        if drafting.controller is None or drafting.costs_file is None:
            return False
        is_slow = drafting.controller.costs.seconds(1) > _SLOWEST_SECONDS
        return not (is_slow or info.streamed_bytes_per_token)

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Measure what the next start would, unless is_wanted returns False before a pass."""
        if self._may_measure():
            self._not_before = time.monotonic() + _LOOK_AGAIN_SECONDS
            return
        session, self._is_due = self._session, False
        calibrations = Calibrations(session.paths, lambda _: None)
        try:
            is_new = calibrations.improve_target(session.model, session.context, is_wanted)
        except PassStoppedError:
            self._is_due = True
        except Exception:  # the next start measures it, and tells of errors
            return
        else:
            if is_new:  # replies would delete it again, as theirs have drifted from older ones
                session.drafting = replace(session.drafting, costs_file=None)
