"""Limits how often an answer is painted: painting takes processor time from the model."""

import time

_CPU_SHARE = 0.035
"""Largest share of one core for painting an answer."""

_MIN_PAUSE_SECONDS = 0.08
_MAX_PAUSE_SECONDS = 0.6


class Pacing:
    """Tells when the next paint is due, from the processor time that the last one took."""

    def __init__(self) -> None:
        self._painted_at = 0.0
        self._cpu_at_paint = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to paint."""
        pause = time.monotonic() - self._painted_at
        cpu = time.thread_time() - self._cpu_at_paint
        return pause >= _MIN_PAUSE_SECONDS and (
            cpu <= _CPU_SHARE * pause or pause >= _MAX_PAUSE_SECONDS
        )

    def begin(self) -> None:
        """Note that a paint begins."""
        self._painted_at, self._cpu_at_paint = time.monotonic(), time.thread_time()
