"""The console script: as little as possible before Ctrl-C is understood."""

import signal
import sys


def main() -> None:
    """Load and run the command line; an interrupt ends it quietly wherever it comes."""
    try:
        from app.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # One more would replace the exit code while the interpreter ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
