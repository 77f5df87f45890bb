"""The console script: as little as possible before Ctrl-C is understood."""

import sys


def main() -> None:
    """Load and run the command line; an interrupt ends it quietly wherever it comes."""
    try:
        from app.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
