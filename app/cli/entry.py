"""Starts the command line; imports almost nothing before Ctrl-C is handled."""

import signal
import sys


def main() -> None:
    """Load and run the command line; an interrupt ends it quietly at any time."""
    try:
        from app.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Another Ctrl-C would replace the exit code while the interpreter ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
