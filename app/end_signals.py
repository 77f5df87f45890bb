"""Signals that ask a process to end."""

import signal

END_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGTERM",
        "SIGHUP",
        "SIGBREAK",
    )  # the last: a closing Windows console
    if hasattr(signal, name)
)


def code_after(number: int) -> int:
    """The exit code of a process that a signal ended, by the convention of shells."""
    return 128 + number


def heeded(numbers: tuple[int, ...] = END_SIGNALS) -> list[int]:
    """Signals that the parent process did not set to be ignored, as nohup does."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
