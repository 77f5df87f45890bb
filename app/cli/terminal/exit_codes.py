"""Exit codes of every command."""

from backends.base import DownloadError, SpecchatError, UsageError

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NETWORK = 3
EXIT_INTERRUPTED = 130


def exit_code(error: SpecchatError) -> int:
    """The exit code that reports an error."""
    if isinstance(error, DownloadError):
        return EXIT_NETWORK
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR
