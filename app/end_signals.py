"""Signals by which a system asks a program to end."""

import signal

END_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK")  # the last is Windows': its console is closed
    if hasattr(signal, name)
)


def code_after(number: int) -> int:
    """The exit code of a program that a signal ended, by the convention of shells."""
    return 128 + number


def heeded(numbers: tuple[int, ...] = END_SIGNALS) -> list[int]:
    """Those that whoever started the program did not have it ignore, as nohup does."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
